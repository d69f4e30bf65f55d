#include <ATen/ATen.h>

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/stream_file.h"

namespace octavo::checkpoint {

namespace {

constexpr uint64_t kAlignment = 64;

uint64_t byte_size(const at::Tensor& tensor) {
  return checked_mul(static_cast<uint64_t>(tensor.numel()),
                     static_cast<uint64_t>(tensor.element_size()), "tensor size");
}

void check_tensors(const fs::path& path, const NamedTensors& tensors) {
  std::map<std::string_view, int> seen;
  for (const auto& item : tensors) {
    std::string problem = tensor_name_problem(item.first);
    if (problem.empty() && ++seen[item.first] > 1) problem = "two tensors have it";
    if (!problem.empty())
      fail(ExitCode::kUsage, "checkpoint", "writing ", path.string(), ": tensor name ",
           quote_name(item.first), ": ", problem, "; rename the tensor");
    if (!item.second.defined() || item.second.layout() != at::kStrided ||
        static_cast<size_t>(item.second.dim()) > kMaxDimensions)
      fail(ExitCode::kUsage, "checkpoint", "writing ", path.string(), ": tensor ",
           quote_name(item.first), ": wanted a dense tensor of at most ", kMaxDimensions,
           " dimensions; make it one before saving");
    if (safetensors_dtype_name(item.second.scalar_type()).empty())
      fail(ExitCode::kUsage, "checkpoint", "writing ", path.string(), ": tensor ",
           quote_name(item.first), ": safetensors has no dtype for ",
           c10::toString(item.second.scalar_type()), "; convert it before saving");
  }
}

// Order in the file; see the header for why.
std::vector<const std::pair<std::string, at::Tensor>*> file_order(const NamedTensors& tensors) {
  std::vector<const std::pair<std::string, at::Tensor>*> order;
  for (const auto& item : tensors) order.push_back(&item);
  auto key = [](const std::pair<std::string, at::Tensor>* item) {
    bool ragged = byte_size(item->second) % kAlignment != 0;
    int64_t element = ragged ? -static_cast<int64_t>(item->second.element_size()) : 0;
    return std::tuple<bool, int64_t, const std::string&>(ragged, element, item->first);
  };
  std::sort(order.begin(), order.end(), [&](auto* a, auto* b) { return key(a) < key(b); });
  return order;
}

std::string padded_header(const Json& header, const fs::path& path) {
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception& error) {
    fail(ExitCode::kUsage, "checkpoint", "writing ", path.string(),
         ": names and metadata must be UTF-8 (", error.what(), "); correct them");
  }
  text.resize(round_up<uint64_t>(8 + text.size(), kAlignment) - 8, ' ');
  if (text.size() > kMaxHeaderBytes)
    fail(ExitCode::kUsage, "checkpoint", "writing ", path.string(), ": the header has ",
         text.size(), " bytes, the format allows ", kMaxHeaderBytes,
         "; spread the tensors over several files");
  return text;
}

}  // namespace

NamedTensors in_file_order(const NamedTensors& outlines) {
  NamedTensors ordered;
  for (const auto* item : file_order(outlines)) ordered.push_back(*item);
  return ordered;
}

WrittenFile write_safetensors_fed(const fs::path& path, const NamedTensors& outlines,
                                  const ByteProducer& feed,
                                  const std::map<std::string, std::string>& metadata) {
  check_tensors(path, outlines);
  auto order = file_order(outlines);
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t at = 0;
  for (const auto* item : order) {
    uint64_t end = checked_add(at, byte_size(item->second), "safetensors data");
    header[item->first] = {{"dtype", safetensors_dtype_name(item->second.scalar_type())},
                           {"shape", item->second.sizes().vec()},
                           {"data_offsets", {at, end}}};
    at = end;
  }
  std::string text = padded_header(header, path);
  std::string front(8, '\0');
  for (int i = 0; i < 8; ++i) front[i] = static_cast<char>(uint64_t{text.size()} >> (8 * i));
  front += text;

  WrittenFile written;
  written.header_hash = hash_bytes(std::as_bytes(std::span(front.data(), front.size())));
  StreamFile file(path);
  file.write(std::string_view(front));
  for (const auto* item : order) {
    RunningHash hash;
    uint64_t taken = 0;
    feed(item->first, [&](std::span<const std::byte> bytes) {
      hash.add(bytes);
      file.write(bytes);
      taken += bytes.size();
    });
    OCTAVO_ASSERT(taken == byte_size(item->second));
    written.tensor_hashes[item->first] = hash.digest();
  }
  written.size = file.size();
  written.hash = file.close();
  return written;
}

WrittenFile write_safetensors_streamed(
    const fs::path& path, const NamedTensors& outlines,
    const std::function<at::Tensor(const std::string& name)>& produce,
    const std::map<std::string, std::string>& metadata) {
  std::map<std::string_view, const at::Tensor*> outline;
  for (const auto& item : outlines) outline[item.first] = &item.second;
  const ByteProducer feed = [&](const std::string& name, const ByteConsumer& take) {
    // Small enough to be hashed, copied and hashed again within the processor's cache.
    constexpr size_t kPiece = size_t{256} << 10;
    const at::Tensor tensor = produce(name).detach().cpu().contiguous();
    OCTAVO_ASSERT(tensor.scalar_type() == outline.at(name)->scalar_type() &&
                  tensor.sizes() == outline.at(name)->sizes());
    std::span<const std::byte> bytes(static_cast<const std::byte*>(tensor.const_data_ptr()),
                                     byte_size(tensor));
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(kPiece, bytes.size())))
      take(bytes.first(std::min(kPiece, bytes.size())));
  };
  return write_safetensors_fed(path, outlines, feed, metadata);
}

WrittenFile write_safetensors_hashed(const fs::path& path, const NamedTensors& tensors,
                                     const std::map<std::string, std::string>& metadata) {
  std::map<std::string_view, const at::Tensor*> by_name;
  for (const auto& item : tensors) by_name[item.first] = &item.second;
  return write_safetensors_streamed(
      path, tensors, [&](const std::string& name) { return *by_name.at(name); }, metadata);
}

std::string write_safetensors(const fs::path& path, const NamedTensors& tensors,
                              const std::map<std::string, std::string>& metadata) {
  return write_safetensors_hashed(path, tensors, metadata).hash;
}

}  // namespace octavo::checkpoint
