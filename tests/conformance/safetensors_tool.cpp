// The C++ side of safetensors_interop.py.
//   describe FILE       one JSON line per tensor: name, dtype, shape, bytes as hex; then the
//   metadata describe_hf FOLDER  the same of a Hugging Face model folder copy IN OUT         reads
//   IN with our reader, writes OUT with our writer make OUT            every dtype and odd shape,
//   byte i of a tensor being 37 i + i/251 + salt (mod 256) check FILE...       per file: "ok", or
//   "refused" when our reader calls it damaged

#include <ATen/ATen.h>

#include <cstdio>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/hf.h"
#include "checkpoint/safetensors.h"
#include "tool_main.h"

namespace octavo::checkpoint {
namespace {

void print_tensor(const std::string& name, const at::Tensor& tensor) {
  static constexpr char kDigits[] = "0123456789abcdef";
  const auto* bytes = static_cast<const unsigned char*>(tensor.const_data_ptr());
  std::string hex;
  for (size_t i = 0; i < tensor.nbytes(); ++i) {
    hex += kDigits[bytes[i] >> 4];
    hex += kDigits[bytes[i] & 15];
  }
  Json line = {{"name", name},
               {"dtype", safetensors_dtype_name(tensor.scalar_type())},
               {"shape", tensor.sizes().vec()},
               {"bytes", hex}};
  std::puts(line.dump().c_str());
}

void describe(const fs::path& path) {
  SafetensorsReader reader(path);
  for (const auto& item : reader.tensors()) print_tensor(item.first, reader.tensor(item.first));
  std::puts(Json{{"metadata", reader.metadata()}}.dump().c_str());
}

void describe_hf(const fs::path& folder) {
  HfModel model = open_hf_model(folder);
  for (const auto& item : model.shard_of) print_tensor(item.first, model.tensor(item.first));
  std::puts(Json{{"shards", model.shards.size()}}.dump().c_str());
}

void copy(const fs::path& from, const fs::path& to) {
  SafetensorsReader reader(from);
  NamedTensors tensors;
  for (const auto& item : reader.tensors())
    tensors.emplace_back(item.first, reader.tensor(item.first));
  write_safetensors(to, tensors, reader.metadata());
}

void make(const fs::path& path) {
  NamedTensors tensors;
  int salt = 0;
  for (const char* dtype : {"F64", "F32", "F16", "BF16", "I64", "I32", "I16", "I8", "U64", "U32",
                            "U16", "U8", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"}) {
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{}, {1}, {3, 5}, {2, 0, 3}, {64, 8}}) {
      at::Tensor tensor = at::empty(shape, at::TensorOptions().dtype(*safetensors_dtype(dtype)));
      auto* bytes = static_cast<unsigned char*>(tensor.data_ptr());
      for (size_t i = 0; i < tensor.nbytes(); ++i) {
        auto value = static_cast<unsigned char>(i * 37 + i / 251 + salt);
        bytes[i] = tensor.scalar_type() == at::kBool ? value & 1 : value;
      }
      std::string name = str(dtype, ".", shape.size(), ".", tensor.numel(), ".", salt++);
      tensors.emplace_back(name, tensor);
    }
  }
  write_safetensors(path, tensors, {{"format", "pt"}, {"größe", "\"quoted\"\n\u2028"}});
}

void check(const fs::path& path) {
  try {
    SafetensorsReader reader(path);
    for (const auto& item : reader.tensors()) reader.tensor_bytes(item.first);
    std::puts("ok");
  } catch (const Error& error) {
    if (error.code() != ExitCode::kDamaged) throw;
    std::puts("refused");
  }
}

void run(const std::vector<std::string>& arguments) {
  std::string verb = arguments.empty() ? "" : arguments[0];
  size_t count = arguments.size();
  if (verb == "describe" && count == 2)
    describe(arguments[1]);
  else if (verb == "describe_hf" && count == 2)
    describe_hf(arguments[1]);
  else if (verb == "copy" && count == 3)
    copy(arguments[1], arguments[2]);
  else if (verb == "make" && count == 2)
    make(arguments[1]);
  else if (verb == "check")
    for (size_t i = 1; i < count; ++i) check(arguments[i]);
  else
    fail(ExitCode::kUsage, "safetensors_tool",
         "wanted describe FILE | describe_hf FOLDER | copy IN OUT | make OUT | check FILE...");
}

}  // namespace
}  // namespace octavo::checkpoint

int main(int argc, char** argv) {
  return octavo::tool_main([&] { octavo::checkpoint::run({argv + 1, argv + argc}); });
}
