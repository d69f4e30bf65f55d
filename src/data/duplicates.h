#pragma once
// Which documents came before: exact, by the first 128 bits of SHA-256 of their text, in memory
// that is bounded. The hashes of each chunk lie in a file, in parts by their first bits; the same
// part of all chunks is sorted at a time. Of equal documents the first of the inputs stays.

#include <memory>
#include <vector>

#include "base/file.h"
#include "data/chunks.h"
#include "data/encode.h"
#include "data/work_folder.h"

namespace octavo::data {

// Parts that the hashes are divided into: one for each GiB of input, at most 1024. Sorting one
// takes 32 bytes for each of its documents: 10 billion documents, 320 MB.
size_t hash_parts(uint64_t source_bytes);

// Writes the hashes of a chunk's documents as `name`.
void write_hashes(const fs::path& folder, const std::string& name,
                  std::vector<DocumentHash> documents, size_t parts);

// Finds the documents of one part that came before; all chunks' files are in `from`. Writes them in
// order as `name`; its hash.
std::string write_duplicates(const fs::path& from, const std::vector<std::string>& files,
                             size_t part, size_t parts, const fs::path& folder,
                             const std::string& name);

// What was written of all parts.
class Duplicates {
 public:
  void add(const fs::path& path, const std::string& hash);
  std::vector<DocumentPlace> inside(const Chunk& chunk) const;  // in order

 private:
  std::vector<std::unique_ptr<MappedFile>> parts_;
};

}  // namespace octavo::data
