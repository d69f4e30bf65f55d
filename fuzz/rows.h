#pragma once
// Reads rows of a file to their end, or as many as fit a second, as `data prepare` does.

#include <sys/stat.h>

#include "base/json.h"
#include "data/row_format.h"
#include "data/row_reader.h"
#include "data/sources.h"
#include "fuzz/harness.h"

namespace octavo::fuzz {

inline constexpr uint64_t kMaxRowBytes = uint64_t{1} << 20;

inline data::Source source_of(const fs::path& path, data::SourceFormat format) {
  struct stat status {};
  check(::stat(path.c_str(), &status) == 0, "no such file");
  return {.path = path,
          .name = "input",
          .bytes = static_cast<uint64_t>(status.st_size),
          .modified_ns = status.st_mtim.tv_sec * int64_t{1'000'000'000} + status.st_mtim.tv_nsec,
          .format = format,
          .hash = {}};
}

inline void read_rows(data::RowReader& reader, uint64_t file_bytes) {
  constexpr int kBatches = 16;
  constexpr uint64_t kBatchBytes = 4096;
  for (int i = 0; i < kBatches; ++i) {
    const data::RowBatch batch = reader.next(kBatchBytes);
    check(batch.lines.size() < kBatchBytes + kMaxRowBytes + 64, "a batch that is too large");
    size_t begin = 0, rows = 0;
    data::RowFormat format;
    for (size_t end; (end = batch.lines.find('\n', begin)) != std::string::npos; begin = end + 1) {
      check(rows < batch.places.size(), "more lines than rows");
      check(batch.places[rows].begin <= batch.places[rows].end &&
                batch.places[rows].end <= file_bytes,
            "a row outside of its file");
      ++rows;
      const std::string refusal = refusal_of([&] {
        Json row = parse_json(std::string_view(batch.lines).substr(begin, end - begin), "row");
        if (rows == 1) format = data::detect_format({}, row, "row 1");
        if (format.has_answers())
          data::messages_of_row(format, row, "row");
        else
          data::text_of_row(format, row, "row");
      });
      if (!refusal.empty()) return;  // as `data prepare` ends
    }
    check(rows == batch.places.size(), "more rows than lines");
    if (batch.ends_file) return;
    check(rows > 0, "no progress");
  }
}

}  // namespace octavo::fuzz
