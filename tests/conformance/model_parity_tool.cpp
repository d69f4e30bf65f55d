// The C++ side of the scripts that hold our models against transformers. MODEL is a Hugging Face
// folder; everything runs in FP32. A batch is a safetensors file with inputs and targets [rows,
// length] int32 (a negative target is not in the loss) and, when rows hold several documents,
// starts: where each begins in the rows laid end to end.
//   open MODEL               only reads it: are its settings and weights taken or refused?
//   check MODEL BATCH OUT [checkpointing]
//                            writes OUT/logits.safetensors; OUT/gradients.safetensors of the mean
//                            loss, in the names and layout of Hugging Face, of a model with experts
//                            with its balance loss and the rows of each; and OUT/model, the same
//                            model as a Hugging Face folder again
//   loss MODEL BATCH         {"loss": the mean}
//   greedy MODEL cached|whole COUNT ID…
//                            {"new": the most likely ids that follow}, with a key-value cache or
//                            with the whole text again for each
//   batches OUT COUNT [CONFIG.yaml] [--key value]…
//                            the first batches of such a training run; starts_K for batch K
//   train OUT [CONFIG.yaml] [--key value]…
//                            trains as `octavo train` does, one JSON line a step; OUT receives the
//                            batches [steps * accumulation, rows, length]
//   peft OUT [CONFIG.yaml] [--key value]…
//                            trains adapters as `octavo train` does; OUT becomes their PEFT folder
//   logits FOLDER BATCH OUT beside|merged
//                            OUT receives the logits; FOLDER is a model or a PEFT folder, whose
//                            adapters run beside the model's layers or are added to its weights

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "base/error.h"
#include "base/json.h"
#include "checkpoint/safetensors.h"
#include "config/parse.h"
#include "monitor/metrics.h"
#include "nn/kv_cache.h"
#include "nn/loss.h"
#include "nn/sequences.h"
#include "tool_main.h"
#include "train/device.h"
#include "train/lora_run.h"
#include "train/model_factory.h"
#include "train/run.h"
#include "train/step.h"

namespace octavo::train {
namespace {

using at::Tensor;
using checkpoint::NamedTensors;
using checkpoint::write_safetensors;
using Arguments = std::span<const std::string>;

const engine::Engine& fp32_engine() {
  static const engine::Engine engine({.device = at::kCPU, .compute = at::kFloat});
  return engine;
}

std::unique_ptr<models::Model> open_model(const fs::path& folder) {
  const fs::path config = folder / "config.json";
  auto model = make_model(read_json(config), config.string(), fp32_engine());
  load_weights(*model, folder);
  return model;
}

struct ParityBatch {
  nn::Tokens tokens;
  Tensor targets;
  int64_t loss_tokens = 0;
};

ParityBatch read_batch(const fs::path& path) {
  const checkpoint::SafetensorsReader file(path);
  const Tensor inputs = file.tensor("inputs").clone(), ids = inputs.flatten();
  ParityBatch batch;
  batch.targets = file.tensor("targets").flatten().clone();
  batch.loss_tokens = batch.targets.ge(0).sum().item<int64_t>();
  if (!file.tensors().contains("starts")) {
    batch.tokens = nn::rows_of(ids, inputs.size(1));
    return batch;
  }
  const Tensor starts = file.tensor("starts").contiguous();
  const auto* begin = starts.const_data_ptr<int32_t>();
  batch.tokens = {
      ids, nn::Sequences::from_starts({begin, begin + starts.numel()}, ids.numel(), at::kCPU)};
  return batch;
}

nn::Loss loss_of(const models::Model& model, const Tensor& hidden, const ParityBatch& batch,
                 bool want_gradient) {
  return nn::head_loss(fp32_engine(), hidden, model.head(), batch.targets,
                       {.classes = model.vocab_size(),
                        .gradient_scale = 1.0 / static_cast<double>(batch.loss_tokens),
                        .want_gradient = want_gradient});
}

void write_model(const models::Model& model, const fs::path& folder) {
  fs::create_directories(folder);
  write_safetensors(folder / "model.safetensors", model.to_hugging_face(), {{"format", "pt"}});
  write_file_atomic(folder / "config.json", model.hugging_face_config().dump(2) + "\n");
}

// The gradients go where the weights were, and out the way that weights go: in the names and layout
// of Hugging Face, whatever the model keeps side by side.
NamedTensors gradients_of(const models::Model& model) {
  const at::NoGradGuard no_grad;
  const int64_t padding = model.head()->grad.size(0) - model.vocab_size();
  if (model.head()->grad.narrow(0, model.vocab_size(), padding).any().item<bool>())
    fail(ExitCode::kDamaged, "model_parity_tool", "padding rows of the vocabulary have a gradient");
  for (const auto& p : model.params()) p->master.copy_(p->grad);
  return model.to_hugging_face();
}

void check(const fs::path& folder, const fs::path& in, const fs::path& out, bool checkpointing) {
  const auto model = open_model(folder);
  model->set_gradient_checkpointing(checkpointing);
  write_model(*model, out / "model");
  const ParityBatch batch = read_batch(in);
  nn::Routing* routing = model->routing();
  if (routing != nullptr) routing->begin_pass(routing->sizes().balance_weight, 0);
  const Tensor hidden = model->hidden(batch.tokens, nullptr);
  const Tensor logits = nn::head_logits(fp32_engine(), hidden, model->head(), model->vocab_size());
  write_safetensors(out / "logits.safetensors", {{"logits", logits}}, {});
  const nn::Loss loss = loss_of(*model, hidden, batch, true);
  torch::autograd::backward({loss.root}, {});
  NamedTensors tensors = gradients_of(*model);
  tensors.emplace_back("loss", loss.sums[0] / static_cast<double>(batch.loss_tokens));
  if (routing != nullptr) {
    const Tensor told = routing->end_pass();
    tensors.emplace_back("balance_loss", told[0]);
    tensors.emplace_back("expert_rows", told.slice(0, 2).clone());
  }
  write_safetensors(out / "gradients.safetensors", tensors, {});
}

void tell(const Json& line) {
  std::puts(line.dump().c_str());
}

void tell_loss(const fs::path& folder, const fs::path& in) {
  const at::NoGradGuard no_grad;
  const auto model = open_model(folder);
  const ParityBatch batch = read_batch(in);
  const nn::Loss loss = loss_of(*model, model->hidden(batch.tokens, nullptr), batch, false);
  tell({{"loss", loss.sums[0].item<double>() / static_cast<double>(batch.loss_tokens)}});
}

int64_t to_number(const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    fail(ExitCode::kUsage, "model_parity_tool", "wanted a number, found '", text, "'");
  return value;
}

void greedy(const fs::path& folder, bool cached, int64_t count, Arguments prompt) {
  const at::NoGradGuard no_grad;
  const auto model = open_model(folder);
  std::vector<int32_t> ids;
  for (const auto& word : prompt) ids.push_back(static_cast<int32_t>(to_number(word)));
  nn::KvCache cache = model->make_cache(static_cast<int64_t>(ids.size()) + count);
  Json made = Json::array();
  while (static_cast<int64_t>(made.size()) < count) {
    const auto known = cached ? cache.length : 0, length = static_cast<int64_t>(ids.size()) - known;
    const Tensor fed = at::from_blob(ids.data() + known, {length}, at::kInt).clone();
    const nn::Tokens tokens = cached ? nn::continuation(fed, cache) : nn::rows_of(fed, length);
    const Tensor last = model->hidden(tokens, nullptr).narrow(0, length - 1, 1);
    const Tensor logits = nn::head_logits(fp32_engine(), last, model->head(), model->vocab_size());
    ids.push_back(logits.argmax().item<int32_t>());
    made.push_back(ids.back());
  }
  tell({{"new", made}});
}

// A second loader over the same data: batch k depends on data, seed and position only.
void write_batches(const Run& run, int64_t count, const fs::path& path) {
  const auto& s = run.settings;
  data::Loader loader(run.data.train,
                      {.rows = s.batch_size,
                       .length = s.max_seq_length,
                       .seed = static_cast<uint64_t>(s.seed),
                       .shuffle = s.shuffle},
                      {});
  std::vector<Tensor> inputs, targets;
  NamedTensors tensors;
  const auto to_tensor = [](std::vector<int32_t>& values, int64_t rows) {
    return at::from_blob(values.data(), {rows, static_cast<int64_t>(values.size()) / rows},
                         at::kInt)
        .clone();
  };
  for (int64_t i = 0; i < count; ++i) {
    data::Batch batch = loader.next();
    inputs.push_back(to_tensor(batch.inputs, batch.rows));
    targets.push_back(to_tensor(batch.targets, batch.rows));
    tensors.emplace_back("starts_" + std::to_string(i), to_tensor(batch.starts, 1).flatten());
  }
  tensors.emplace_back("inputs", at::stack(inputs));
  tensors.emplace_back("targets", at::stack(targets));
  write_safetensors(path, tensors, {});
}

std::unique_ptr<Run> run_of(Arguments args) {
  const config::Parsed parsed = config::parse(args, config::kTrainArguments);
  prepare_process(parsed.settings);
  return assemble(parsed.settings);
}

void train_and_tell(const fs::path& batches, Arguments args) {
  const auto run = run_of(args);
  write_batches(*run, run->schedule.max_steps * run->settings.gradient_accumulation_steps, batches);
  while (run->progress.step < run->schedule.max_steps) {
    const monitor::StepRecord r = train_step(*run);
    Json line = {
        {"loss", r.loss}, {"lr", r.learning_rate}, {"norm", r.grad_norm}, {"penalty", r.penalty}};
    for (const monitor::Metric& metric : monitor::metrics_of(r))
      if (metric.name.starts_with("moe/")) line[metric.name] = metric.value;
    tell(line);
  }
}

void train_to_peft(const fs::path& folder, Arguments args) {
  const auto run = run_of(args);
  if (run->trained.lora == nullptr)
    fail(ExitCode::kUsage, "model_parity_tool", "wanted --lora_rank, found none");
  while (run->progress.step < run->schedule.max_steps) train_step(*run);
  write_peft(*run->trained.lora, *run->trained.model, run->settings.model_name, folder);
}

void write_logits(const fs::path& folder, const fs::path& in, const fs::path& out, bool merged) {
  const at::NoGradGuard no_grad;
  const bool adapted = is_peft_folder(folder);
  const auto model = open_model(adapted ? fs::path(peft_base(folder)) : folder);
  const auto lora = adapted ? read_peft(fp32_engine(), *model, folder) : nullptr;
  if (merged && adapted) lora->merge();
  const Tensor hidden = model->hidden(read_batch(in).tokens, nullptr);
  const Tensor logits = nn::head_logits(fp32_engine(), hidden, model->head(), model->vocab_size());
  write_safetensors(out, {{"logits", logits}}, {});
}

void run_tool(Arguments args) {
  const std::string verb = args.empty() ? "" : args[0];
  if (verb == "open" && args.size() == 2)
    open_model(args[1]);
  else if (verb == "check" &&
           (args.size() == 4 || (args.size() == 5 && args[4] == "checkpointing")))
    check(args[1], args[2], args[3], args.size() == 5);
  else if (verb == "loss" && args.size() == 3)
    tell_loss(args[1], args[2]);
  else if (verb == "greedy" && args.size() >= 5 && (args[2] == "cached" || args[2] == "whole"))
    greedy(args[1], args[2] == "cached", to_number(args[3]), args.subspan(4));
  else if (verb == "batches" && args.size() >= 3)
    write_batches(*run_of(args.subspan(3)), to_number(args[2]), args[1]);
  else if (verb == "train" && args.size() >= 2)
    train_and_tell(args[1], args.subspan(2));
  else if (verb == "peft" && args.size() >= 2)
    train_to_peft(args[1], args.subspan(2));
  else if (verb == "logits" && args.size() == 5 && (args[4] == "beside" || args[4] == "merged"))
    write_logits(args[1], args[2], args[3], args[4] == "merged");
  else
    fail(ExitCode::kUsage, "model_parity_tool",
         "wanted open MODEL | check MODEL BATCH OUT [checkpointing] | loss MODEL BATCH | greedy "
         "MODEL cached|whole COUNT ID… | batches OUT COUNT [CONFIG.yaml] [--key value]… | train "
         "OUT [CONFIG.yaml] [--key value]… | peft OUT [CONFIG.yaml] [--key value]… | logits FOLDER "
         "BATCH OUT beside|merged");
}

}  // namespace
}  // namespace octavo::train

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  return octavo::tool_main([&] { octavo::train::run_tool(args); });
}
