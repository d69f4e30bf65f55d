// model.safetensors.index.json beside two sound shards.
#include <ATen/ATen.h>

#include "checkpoint/hf.h"
#include "fuzz/harness.h"

namespace {

octavo::fuzz::ScratchFolder& scratch() {
  static octavo::fuzz::ScratchFolder folder;
  return folder;
}

const octavo::fs::path& model_folder() {
  using namespace octavo;
  const fuzz::ScratchFolder& folder = scratch();
  static const bool made = [&] {
    folder.write("config.json", "{}");
    const at::Tensor tensor = at::ones({2, 2});
    checkpoint::write_safetensors(folder.path() / "model-00001-of-00002.safetensors",
                                  {{"a", tensor}, {"b", tensor}}, {});
    checkpoint::write_safetensors(folder.path() / "model-00002-of-00002.safetensors",
                                  {{"c", tensor}}, {});
    return true;
  }();
  static_cast<void>(made);
  return folder.path();
}

}  // namespace

OCTAVO_FUZZ_TARGET(input) {
  using namespace octavo;
  const fs::path& folder = model_folder();
  scratch().write("model.safetensors.index.json", input);
  fuzz::refusal_of([&] {
    const checkpoint::HfModel model = checkpoint::open_hf_model(folder);
    for (const auto& [name, shard] : model.shard_of)
      fuzz::check(model.tensor(name).nbytes() == 16 && shard < 2, "a tensor from nowhere");
    fuzz::check(model.shard_of.size() <= 3, "more tensors than there are");
  });
}
