// The C++ side of gpt2_parity.py.
//   check MODEL IN OUT     MODEL: a Hugging Face folder; IN: safetensors with inputs and targets
//                          [rows, length] int32. Writes OUT/logits.safetensors,
//                          OUT/gradients.safetensors (our names and layout), and OUT/model, the
//                          same model as a Hugging Face folder again. FP32.
//   train BATCHES [CONFIG.yaml] [--key value]…
//                          trains as `octavo train` does, one JSON line a step; BATCHES receives
//                          the batches [steps * accumulation, rows, length].

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdio>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "config/parse.h"
#include "nn/loss.h"
#include "tool_main.h"
#include "train/model_factory.h"
#include "train/run.h"
#include "train/step.h"

namespace octavo::train {
namespace {

using at::Tensor;
using checkpoint::NamedTensors;
using checkpoint::write_safetensors;

void write_model(const models::Model& model, const fs::path& folder) {
  fs::create_directories(folder);
  write_safetensors(folder / "model.safetensors", model.to_hugging_face(), {{"format", "pt"}});
  write_file_atomic(folder / "config.json", model.hugging_face_config().dump(2) + "\n");
}

void check(const fs::path& folder, const fs::path& in, const fs::path& out) {
  const engine::Engine engine({.device = at::kCPU, .compute = at::kFloat});
  const fs::path config = folder / "config.json";
  const auto model = make_model(read_json(config), config.string(), engine);
  load_weights(*model, folder);
  write_model(*model, out / "model");

  const checkpoint::SafetensorsReader batch(in);
  const Tensor inputs = batch.tensor("inputs"), targets = batch.tensor("targets").flatten();
  const Tensor hidden = model->hidden(inputs.flatten(), inputs.size(1), nullptr);
  const Tensor logits = nn::head_logits(engine, hidden, model->head(), model->vocab_size());
  write_safetensors(out / "logits.safetensors", {{"logits", logits}}, {});

  const nn::Loss loss =
      nn::head_loss(engine, hidden, model->head(), targets,
                    {.classes = model->vocab_size(),
                     .gradient_scale = 1.0 / static_cast<double>(targets.numel())});
  torch::autograd::backward({loss.root}, {});
  NamedTensors gradients{{"loss", loss.sums[0] / static_cast<double>(targets.numel())}};
  for (const auto& p : model->params()) gradients.emplace_back(p->name, p->grad);
  write_safetensors(out / "gradients.safetensors", gradients, {});
}

// A second loader over the same data: batch k depends on data, seed and position only.
void write_batches(const Run& run, const fs::path& path) {
  const auto& s = run.settings;
  data::Loader loader(run.train_data,
                      {.rows = s.batch_size,
                       .length = s.max_seq_length,
                       .seed = static_cast<uint64_t>(s.seed),
                       .shuffle = s.shuffle},
                      {});
  std::vector<Tensor> inputs, targets;
  const auto to_tensor = [](std::vector<int32_t>& ids, int64_t rows) {
    return at::from_blob(ids.data(), {rows, static_cast<int64_t>(ids.size()) / rows}, at::kInt)
        .clone();
  };
  for (int64_t i = 0; i < run.schedule.max_steps * s.gradient_accumulation_steps; ++i) {
    data::Batch batch = loader.next();
    inputs.push_back(to_tensor(batch.inputs, batch.rows));
    targets.push_back(to_tensor(batch.targets, batch.rows));
  }
  write_safetensors(path, {{"inputs", at::stack(inputs)}, {"targets", at::stack(targets)}}, {});
}

void train_and_tell(const fs::path& batches, std::span<const std::string> args) {
  const config::Parsed parsed = config::parse(args, config::kTrainArguments);
  prepare_process(parsed.settings);
  std::string resumed_from;
  const auto run = assemble(parsed.settings, &resumed_from);
  write_batches(*run, batches);
  while (run->progress.step < run->schedule.max_steps) {
    const monitor::StepRecord r = train_step(*run);
    const Json line = {
        {"loss", r.loss}, {"lr", r.learning_rate}, {"norm", r.grad_norm}, {"penalty", r.penalty}};
    std::puts(line.dump().c_str());
  }
}

void run_tool(const std::vector<std::string>& args) {
  const std::string verb = args.empty() ? "" : args[0];
  if (verb == "check" && args.size() == 4)
    check(args[1], args[2], args[3]);
  else if (verb == "train" && args.size() >= 2)
    train_and_tell(args[1], std::span(args).subspan(2));
  else
    fail(ExitCode::kUsage, "gpt2_parity_tool",
         "wanted check MODEL IN OUT | train BATCHES [CONFIG.yaml] [--key value]…");
}

}  // namespace
}  // namespace octavo::train

int main(int argc, char** argv) {
  return octavo::tool_main([&] { octavo::train::run_tool({argv + 1, argv + argc}); });
}
