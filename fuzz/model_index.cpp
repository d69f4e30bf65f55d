// model.safetensors.index.json beside sound shards, or behind a C a config.json beside a single
// file, or behind an N one without weights.
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
    checkpoint::write_safetensors(folder.path() / "again.safetensors", {{"a", tensor}}, {});
    return true;
  }();
  static_cast<void>(made);
  return folder.path();
}

void read_config(std::string_view config, bool with_weights) {
  using namespace octavo;
  static const fuzz::ScratchFolder folders[2];
  static const bool made = [] {
    checkpoint::write_safetensors(folders[1].path() / "model.safetensors",
                                  {{"a", at::ones({2, 2})}}, {});
    folders[1].write("model.safetensors.index.json", "{}");
    folders[0].write("pytorch_model.bin", "");
    return true;
  }();
  const fuzz::ScratchFolder& folder = folders[with_weights && made ? 1 : 0];
  folder.write("config.json", config);
  fuzz::check(checkpoint::has_hf_weights(folder.path()) == with_weights, "weights from nowhere");
  fuzz::refusal_of([&] {
    const checkpoint::HfModel model = checkpoint::open_hf_model(folder.path());
    fuzz::check(model.config.is_object() && model.contains("a"), "a model without its tensor");
    model.release("a");
    model.tensor("b");
    fuzz::finding("a tensor that is not there");
  });
}

}  // namespace

OCTAVO_FUZZ_TARGET(input) {
  using namespace octavo;
  if (input.starts_with('C') || input.starts_with('N'))
    return read_config(input.substr(1), input[0] == 'C');
  const fs::path& folder = model_folder();
  scratch().write("model.safetensors.index.json", input);
  fuzz::refusal_of([&] {
    const checkpoint::HfModel model = checkpoint::open_hf_model(folder);
    for (const auto& [name, shard] : model.shard_of)
      fuzz::check(model.tensor(name).nbytes() == 16 && shard < 3, "a tensor from nowhere");
    fuzz::check(model.shard_of.size() <= 3, "more tensors than there are");
  });
}
