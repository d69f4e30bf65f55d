// A safetensors file: its header, then every byte of every tensor.
#include <ATen/ATen.h>

#include "checkpoint/safetensors.h"
#include "fuzz/harness.h"

OCTAVO_FUZZ_TARGET(input) {
  using namespace octavo;
  static fuzz::MemoryFile file;
  const fs::path& path = file.write(input);
  fuzz::refusal_of([&] {
    const checkpoint::SafetensorsReader reader(path);
    for (const auto& [name, info] : reader.tensors()) {
      unsigned sum = 0;
      for (const std::byte b : reader.tensor_bytes(name)) sum += std::to_integer<unsigned>(b);
      const at::Tensor tensor = reader.tensor(name);
      fuzz::check(tensor.nbytes() == info.end - info.begin && sum < 256 * tensor.nbytes() + 1,
                  "a tensor of another size than its bytes");
      reader.release(name);
    }
  });
}
