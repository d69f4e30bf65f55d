#pragma once
// The input files of `data prepare`: found, told apart, hashed.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/prepare.h"

namespace octavo::data {

enum class SourceFormat { kText, kJsonl, kJson, kParquet, kArrow };

struct Source {
  fs::path path;
  std::string name;  // below the input it was found in: no machine's folders in the index
  uint64_t bytes = 0;
  int64_t modified_ns = 0;
  SourceFormat format = SourceFormat::kText;
  std::string hash;  // of the content; of its tag on S3
  size_t set = 0;    // number of the data set that it belongs to
};

// In the order of the inputs, folders in sorted order. Skipped, and said: hidden folders, build,
// .deps, symbolic links to folders, empty and binary files (a NUL byte in the first 4 KiB),
// `output` itself.
std::vector<Source> list_sources(const std::vector<fs::path>& inputs, const fs::path& output,
                                 bool say_skipped = true);

// Fails when the process was asked to stop. `doing`: "hashing inputs".
void stop_if_asked(const char* doing);

// Fills in the hashes, on `workers` threads. `cache` is the sources.jsonl of an earlier call: a
// file of the same name, size and time keeps the hash it has there.
void hash_sources(std::vector<Source>& sources, const fs::path& cache, int workers, bool quiet);

// The same; a stop leaves the hashes so far in `list`, unless a finished data set has it. Else a
// job whose time is shorter than the hashing would be started again for ever.
void hash_and_keep(std::vector<Source>& sources, const fs::path& list, int workers, bool quiet);

void write_sources(const fs::path& path, const std::vector<Source>& sources);
std::string sources_fingerprint(const std::vector<Source>& sources);  // names, sizes and hashes

// Global byte positions: sources laid end to end. begins[i] is where source i starts, begins[n] the
// total.
std::vector<uint64_t> source_begins(const std::vector<Source>& sources);

// One past the last byte of the last document of the sources from `first` to before `last`: blank
// lines at the end of JSONL files do not count. The last row of the other formats ends where its
// file does.
uint64_t last_document_end(const std::vector<Source>& sources, const std::vector<uint64_t>& begins,
                           size_t first, size_t last);

}  // namespace octavo::data
