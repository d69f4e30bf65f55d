#include "data/arrow/row_json.h"

#include <arrow/array.h>
#include <arrow/array/array_dict.h>
#include <arrow/array/array_nested.h>
#include <arrow/type.h>

#include <charconv>
#include <cmath>
#include <string_view>

namespace octavo::data {
namespace {

constexpr int kMaxDepth = 8;  // a list of structs of text has three

void append_string(std::string_view text, std::string& out) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += "\\u00";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

template <typename T>
void append_number(T value, std::string& out) {
  char buffer[40];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  out.append(buffer, end);
}

// The text that is being made, and where it must end.
struct Line {
  std::string& text;
  size_t end;
  bool is_full() const { return text.size() > end; }
};

void append_value(const arrow::Array& array, int64_t i, int depth, Line& out);

template <typename ListArray>
void append_list(const arrow::Array& array, int64_t i, int depth, Line& out) {
  const auto& list = static_cast<const ListArray&>(array);
  out.text += '[';
  for (int64_t j = 0; j < list.value_length(i) && !out.is_full(); ++j) {
    if (j > 0) out.text += ',';
    append_value(*list.values(), list.value_offset(i) + j, depth + 1, out);
  }
  out.text += ']';
}

void append_struct(const arrow::Array& array, int64_t i, int depth, Line& out) {
  const auto& record = static_cast<const arrow::StructArray&>(array);
  out.text += '{';
  for (int field = 0; field < record.num_fields() && !out.is_full(); ++field) {
    if (field > 0) out.text += ',';
    append_string(record.struct_type()->field(field)->name(), out.text);
    out.text += ':';
    append_value(*record.field(field), i, depth + 1, out);
  }
  out.text += '}';
}

void append_value(const arrow::Array& array, int64_t i, int depth, Line& out) {
  if (array.IsNull(i) || depth > kMaxDepth) {
    out.text += "null";
    return;
  }
  switch (array.type_id()) {
    case arrow::Type::STRING:
      return append_string(static_cast<const arrow::StringArray&>(array).GetView(i), out.text);
    case arrow::Type::LARGE_STRING:
      return append_string(static_cast<const arrow::LargeStringArray&>(array).GetView(i), out.text);
    case arrow::Type::STRING_VIEW:
      return append_string(static_cast<const arrow::StringViewArray&>(array).GetView(i), out.text);
    case arrow::Type::DICTIONARY: {
      const auto& coded = static_cast<const arrow::DictionaryArray&>(array);
      return append_value(*coded.dictionary(), coded.GetValueIndex(i), depth + 1, out);
    }
    case arrow::Type::LIST:
      return append_list<arrow::ListArray>(array, i, depth, out);
    case arrow::Type::LARGE_LIST:
      return append_list<arrow::LargeListArray>(array, i, depth, out);
    case arrow::Type::STRUCT:
      return append_struct(array, i, depth, out);
    case arrow::Type::INT32:
      return append_number(static_cast<const arrow::Int32Array&>(array).Value(i), out.text);
    case arrow::Type::INT64:
      return append_number(static_cast<const arrow::Int64Array&>(array).Value(i), out.text);
    default:
      out.text += "null";
  }
}

}  // namespace

void append_row_json(const arrow::RecordBatch& batch, int64_t row, uint64_t most,
                     std::string& out) {
  Line line{out, out.size() + most};
  out += '{';
  for (int column = 0; column < batch.num_columns() && !line.is_full(); ++column) {
    if (column > 0) out += ',';
    append_string(batch.column_name(column), out);
    out += ':';
    append_value(*batch.column(column), row, 0, line);
  }
  out += '}';
}

}  // namespace octavo::data
