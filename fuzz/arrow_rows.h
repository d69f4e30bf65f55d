#pragma once
// Parquet and Arrow by way of the module that `data prepare` loads.

#include "data/arrow/arrow_module.h"
#include "fuzz/rows.h"

namespace octavo::fuzz {

class BytesInput : public data::InputFile {
 public:
  explicit BytesInput(std::string_view bytes) : bytes_(bytes) {}
  std::string read(uint64_t offset, uint64_t bytes) const override {
    return offset >= bytes_.size() ? "" : std::string(bytes_.substr(offset, bytes));
  }

 private:
  std::string_view bytes_;
};

inline void read_arrow(std::string_view input, bool parquet) {
  const bool all = input.size() % 4 != 0;
  refusal_of([&] {
    data::ArrowRequest request{
        .name = "input",
        .file = std::make_unique<BytesInput>(input),
        .bytes = input.size(),
        .parquet = parquet,
        .fields = all ? std::vector<std::string>() : std::vector<std::string>{"text"},
        .first_row = all ? 0u : 1u,
        .max_row_bytes = kMaxRowBytes};
    const std::unique_ptr<data::RowReader> reader(octavo_arrow_open(&request));
    read_rows(*reader, input.size());
  });
}

}  // namespace octavo::fuzz
