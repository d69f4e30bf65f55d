#include "checkpoint/safetensors_layout.h"

#include <algorithm>
#include <tuple>

#include "base/checked.h"
#include "base/error.h"
#include "base/json.h"

namespace octavo::checkpoint {

namespace {

struct DtypeSize {
  std::string_view name;
  size_t bytes;
};

constexpr DtypeSize kDtypeSizes[] = {
    {"F64", 8},  {"F32", 4},     {"F16", 2},     {"BF16", 2},    {"I64", 8}, {"I32", 4},
    {"I16", 2},  {"I8", 1},      {"U64", 8},     {"U32", 4},     {"U16", 2}, {"U8", 1},
    {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
};

const DtypeSize* find_dtype(std::string_view name) {
  const auto* found = std::ranges::find(kDtypeSizes, name, &DtypeSize::name);
  return found == std::end(kDtypeSizes) ? nullptr : found;
}

template <typename... Parts>
[[noreturn]] void damaged(const fs::path& path, const Parts&... parts) {
  fail(ExitCode::kDamaged, "checkpoint", path.string(),
       ": not a sound safetensors file: ", str(parts...), "; fetch or write the file again");
}

uint64_t read_u64_le(const std::byte* bytes) {
  uint64_t value = 0;
  for (int i = 7; i >= 0; --i) value = value << 8 | std::to_integer<uint64_t>(bytes[i]);
  return value;
}

std::string_view header_text(std::span<const std::byte> bytes, const fs::path& path) {
  if (bytes.size() < 8)
    damaged(path, "wanted 8 bytes of header length, found a file of ", bytes.size());
  uint64_t length = read_u64_le(bytes.data());
  if (length > kMaxHeaderBytes)
    damaged(path, "header length ", length, ", at most ", kMaxHeaderBytes, " is allowed");
  if (length > bytes.size() - 8)
    damaged(path, "header length ", length, ", found only ", bytes.size() - 8,
            " bytes after it (truncated?)");
  std::string_view text(reinterpret_cast<const char*>(bytes.data()) + 8, length);
  if (text.empty() || text.front() != '{') damaged(path, "the header must start with '{'");
  return text;
}

std::vector<int64_t> read_shape(const Json& entry, const std::string& where, const fs::path& path) {
  const Json& list = entry.at("shape");
  if (!list.is_array() || list.size() > kMaxDimensions)
    damaged(path, where, "wanted \"shape\" as a list of at most ", kMaxDimensions, " sizes");
  std::vector<int64_t> shape;
  for (const Json& size : list) {
    if (!size.is_number_unsigned() || size.get<uint64_t>() > uint64_t{INT64_MAX})
      damaged(path, where, "wanted whole sizes >= 0 in \"shape\", found ", quote_name(size.dump()));
    shape.push_back(size.get<int64_t>());
  }
  return shape;
}

// Bytes of a tensor; every partial product is checked, also the one with zeros taken as ones, from
// which torch computes strides.
uint64_t tensor_size(const std::vector<int64_t>& shape, size_t element_size,
                     const std::string& what) {
  int64_t elements = 1, strides = 1;
  for (int64_t size : shape) {
    elements = checked_mul(elements, size, what);
    strides = checked_mul(strides, std::max<int64_t>(size, 1), what);
  }
  auto item = static_cast<int64_t>(element_size);
  checked_mul(strides, item, what);
  return static_cast<uint64_t>(checked_mul(elements, item, what));
}

TensorEntry read_entry(const std::string& name, const Json& entry, uint64_t data_size,
                       const fs::path& path) {
  std::string where = "tensor " + quote_name(name) + ": ";
  if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") ||
      !entry.contains("shape") || !entry.contains("data_offsets"))
    damaged(path, where, "wanted exactly the fields dtype, shape, data_offsets");
  const Json& dtype = entry.at("dtype");
  if (!dtype.is_string()) damaged(path, where, "wanted \"dtype\" as a string");
  const DtypeSize* known = find_dtype(dtype.get_ref<const std::string&>());
  if (known == nullptr)
    damaged(path, where, "dtype ", quote_name(dtype.get_ref<const std::string&>()),
            " is not known");

  TensorEntry info;
  info.dtype = known->name;
  info.shape = read_shape(entry, where, path);
  const Json& offsets = entry.at("data_offsets");
  if (!offsets.is_array() || offsets.size() != 2 || !offsets[0].is_number_unsigned() ||
      !offsets[1].is_number_unsigned())
    damaged(path, where, "wanted \"data_offsets\" as [begin, end], found ",
            quote_name(offsets.dump()));
  info.begin = offsets[0].get<uint64_t>();
  info.end = offsets[1].get<uint64_t>();
  if (info.begin > info.end || info.end > data_size)
    damaged(path, where, "data_offsets [", info.begin, ", ", info.end, "] do not fit the ",
            data_size, " bytes of data (truncated?)");
  uint64_t size = tensor_size(info.shape, known->bytes, path.string() + ": " + where + "shape");
  if (size != info.end - info.begin)
    damaged(path, where, "shape and dtype make ", size, " bytes, data_offsets span ",
            info.end - info.begin);
  return info;
}

// Sorted by offset, tensors must follow each other without a hole or an overlap to the file's end.
void check_tiling(const std::map<std::string, TensorEntry>& tensors, uint64_t data_size,
                  const fs::path& path) {
  struct Range {
    uint64_t begin, end;
    const std::string* name;
  };
  std::vector<Range> ranges;
  ranges.reserve(tensors.size());
  for (const auto& item : tensors)
    ranges.push_back({item.second.begin, item.second.end, &item.first});
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  uint64_t at = 0;
  for (const Range& range : ranges) {
    if (range.begin != at)
      damaged(path, "tensor ", quote_name(*range.name), " starts at ", range.begin, " where ", at,
              " was wanted (", range.begin < at ? "it overlaps another" : "a hole before it", ")");
    at = range.end;
  }
  if (at != data_size)
    damaged(path, "the tensors end at ", at, ", the file's data at ", data_size, " (bytes ",
            "that belong to no tensor)");
}

std::map<std::string, std::string> read_metadata(const Json& object, const fs::path& path) {
  if (!object.is_object()) damaged(path, "wanted \"__metadata__\" as an object of strings");
  std::map<std::string, std::string> metadata;
  for (const auto& item : object.items()) {
    if (!item.value().is_string())
      damaged(path, "metadata ", quote_name(item.key()), ": wanted a string, found ",
              item.value().type_name());
    metadata.emplace(item.key(), item.value().get<std::string>());
  }
  return metadata;
}

}  // namespace

SafetensorsLayout read_safetensors_layout(std::span<const std::byte> file, const fs::path& path) {
  SafetensorsLayout layout;
  std::string_view text = header_text(file, path);
  layout.data_begin = 8 + text.size();
  uint64_t data_size = file.size() - layout.data_begin;
  JsonLimits limits;
  limits.max_bytes = kMaxHeaderBytes;
  limits.max_depth = 8;
  Json header = parse_json(text, path.string() + " (safetensors header)", limits);
  if (!header.is_object()) damaged(path, "wanted the header as a JSON object");
  for (const auto& item : header.items()) {
    if (item.key() == "__metadata__") {
      layout.metadata = read_metadata(item.value(), path);
      continue;
    }
    std::string problem = tensor_name_problem(item.key());
    if (!problem.empty()) damaged(path, "tensor name ", quote_name(item.key()), ": ", problem);
    layout.tensors.emplace(item.key(), read_entry(item.key(), item.value(), data_size, path));
  }
  check_tiling(layout.tensors, data_size, path);
  return layout;
}

size_t safetensors_element_size(std::string_view dtype) {
  const DtypeSize* known = find_dtype(dtype);
  return known == nullptr ? 0 : known->bytes;
}

std::string tensor_name_problem(std::string_view name) {
  if (name.empty()) return "it is empty";
  if (name.size() > kMaxTensorName)
    return str("it has ", name.size(), " bytes, at most ", kMaxTensorName, " are allowed");
  if (name == "__metadata__") return "the format reserves it";
  for (size_t i = 0; i < name.size(); ++i) {
    auto c = static_cast<unsigned char>(name[i]);
    // Control characters, also those that UTF-8 writes as C2 80 to C2 9F: names reach terminals.
    bool c1 = c == 0xC2 && i + 1 < name.size() && static_cast<unsigned char>(name[i + 1]) < 0xA0;
    if (c < 0x20 || c == 0x7F || c1) return str("it has a control character at byte ", i);
  }
  return "";
}

std::string quote_name(std::string_view text) {
  constexpr size_t kShown = 100;
  bool cut = text.size() > kShown;
  std::string shown = Json(std::string(text.substr(0, kShown)))
                          .dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  return cut ? shown + "…" : shown;
}

}  // namespace octavo::checkpoint
