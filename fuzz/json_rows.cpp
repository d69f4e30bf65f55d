// A .json file as rows, and what the fields of a row mean.
#include "data/json_rows.h"
#include "fuzz/rows.h"

OCTAVO_FUZZ_TARGET(input) {
  using namespace octavo;
  static fuzz::MemoryFile file;
  const data::Source source = fuzz::source_of(file.write(input), data::SourceFormat::kJson);
  fuzz::refusal_of([&] {
    data::JsonRowReader reader(source, 0, 1, fuzz::kMaxRowBytes);
    fuzz::read_rows(reader, source.bytes);
  });
}
