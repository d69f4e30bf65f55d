#include "data/arrow_rows.h"

#include "base/module.h"
#include "data/arrow/arrow_module.h"

namespace octavo::data {

std::unique_ptr<RowReader> open_arrow_rows(const Source& source,
                                           const std::vector<std::string>& fields, uint64_t row,
                                           uint64_t max_row_bytes) {
  const auto open = reinterpret_cast<decltype(&octavo_arrow_open)>(
      module_symbol("liboctavo_arrow.so", "octavo_arrow_open", source.path.string()));
  ArrowRequest request{.name = source.path.string(),
                       .file = open_input(source),
                       .bytes = source.bytes,
                       .parquet = source.format == SourceFormat::kParquet,
                       .fields = fields,
                       .first_row = row - 1,
                       .max_row_bytes = max_row_bytes};
  return std::unique_ptr<RowReader>(open(&request));
}

}  // namespace octavo::data
