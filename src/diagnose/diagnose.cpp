#include "diagnose/diagnose.h"

#include <ATen/ATen.h>

#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "checkpoint/safetensors.h"
#include "config/parse.h"
#include "diagnose/observer.h"
#include "launch/rank_info.h"
#include "train/device.h"
#include "train/lora_run.h"
#include "train/model_factory.h"
#include "train/pass.h"
#include "train/random_run.h"
#include "train/state/fp8_persist.h"
#include "train/state/persist.h"

namespace octavo::diagnose {
namespace {

// The first has factors of 1, the second those of one batch (nn/fp8_model.cpp).
constexpr int64_t kPassesBefore = 2;

// The same run for one look: no batch search, no graph, statistics of every pass, and a guard that
// leaves layers where they are.
config::Settings for_a_look(config::Settings s) {
  if (s.auto_batch_size) {
    log_warn(str("auto_batch_size is for training: the look takes batch_size ", s.batch_size));
    s.auto_batch_size = false;
  }
  if (!fp8::wants_fp8(s)) {
    log_warn("the run is not in FP8; what follows is what FP8 would do to it (use_fp8)");
    s.mixed_precision = config::Precision::kFp8;
  }
  const auto decision = train::decide_fp8(s);
  if (decision->runs == fp8::Runs::kBf16) {
    log_warn(str(decision->warnings.front(), "; looked at in rehearsal (fp8_execution rehearse)"));
    s.fp8_execution = config::Fp8Execution::kRehearse;
  }
  s.resume.clear();
  s.cuda_graph = false;
  s.fp8_stats_freq = 1;
  s.fp8_guard = config::Fp8Guard::kOff;
  s.target_effective_batch_size = 0;
  s.gradient_accumulation_steps = 1;
  s.num_epochs = 0;
  s.max_steps = 1;
  s.warmup_steps = -1;
  return s;
}

// Weights and scaling state; the optimizer's and the data's place in time are not wanted.
std::string load_checkpoint(train::Run& run, const std::string& what) {
  const auto loaded =
      checkpoint::load_resolved(train::checkpoint_dir(run.settings), what, run.settings.run_name);
  const std::string source = loaded.path.string();
  if (run.trained.lora != nullptr)
    train::resume_lora(run.trained, loaded.state, source);
  else
    train::load_weights(*run.trained.model, loaded.state);
  train::resume_fp8(run.trained, loaded.state, source);
  run.progress.step = loaded.state.step;
  log_info(str(run.trained.lora != nullptr ? "adapters: " : "weights: ", source, ", step ",
               loaded.state.step));
  return source;
}

std::unique_ptr<train::Run> put_together(const config::Settings& settings, train::Weights weights,
                                         Diagnosis& found) {
  if (!settings.dataset.empty()) {
    found.data = join(settings.dataset, ", ");
    return train::assemble(settings, /*writes=*/false, weights);
  }
  log_warn("no dataset is given: tokens are random, and gradients not those of real text");
  found.data = "random tokens";
  auto run = std::make_unique<train::Run>();
  train::start_on_random_tokens(*run, settings, weights);
  return run;
}

std::vector<nn::Fp8TensorReport> run_pass(train::Run& run, int64_t step) {
  run.trained.fp8->begin_step(step);
  train::try_pass(run.settings, run.world.size(), run.trained, run.data.loader->next());
  run.trained.optimizer->drop_gradients();
  return run.trained.fp8->finish_step();
}

void look(train::Run& run, const config::Settings& settings, Diagnosis& found) {
  engine::Target rehearsal = run.trained.engine->target;
  rehearsal.fp8 = engine::Fp8Kernels::kRehearsal;
  rehearsal.compute = at::kBFloat16;
  rehearsal.hopper_sums = false;  // other recipes are looked at too, which Hopper may not have
  const engine::Engine engine(rehearsal);
  // Of runs on a GPU the accumulators are the GPU's own.
  std::optional<engine::Engine> hopper;
  if (settings.fp8_accumulate == config::Fp8Accumulate::kHopper && rehearsal.device.is_cpu()) {
    rehearsal.hopper_sums = true;
    hopper.emplace(rehearsal);
  }
  const auto& layers = run.trained.model->linears();
  // A look takes about as long as this many passes.
  constexpr double kLook = 8;
  octavo::Progress bar("diagnose", 2 * static_cast<double>(layers.size()) * (kPassesBefore + kLook),
                       "");
  double done = 0, each = 1;
  Observer observer(engine, layers,
                    {.in_use = run.trained.fp8->options(),
                     .keep_tensors = !settings.capture.empty(),
                     .hopper = hopper ? &*hopper : nullptr,
                     .on_layer = [&](const std::string& layer) { bar.set(done += each, layer); }});
  int64_t step = run.progress.step;
  for (int64_t i = 0; i < kPassesBefore; ++i) run_pass(run, ++step);
  observer.start_observing(run.trained.fp8->state());
  each = kLook;
  found.health = run_pass(run, ++step);
  bar.finish();
  found.layers = observer.take_stats();
  if (!settings.capture.empty())
    checkpoint::write_safetensors(settings.capture, observer.take_tensors(),
                                  {{"about", "octavo diagnose: operands of linear layers"}});
}

}  // namespace

config::Parsed settings_of(const config::Settings& where, const std::string& checkpoint) {
  const auto path =
      checkpoint::choose(train::checkpoint_dir(where), checkpoint, {}, nullptr, where.run_name);
  const std::string source = path.string();
  const std::string yaml = json_string(checkpoint::open(path).extra, "config", source);
  return config::parse_text(yaml, source);
}

Diagnosis diagnose(config::Settings given, const std::string& checkpoint) {
  if (launch::rank_info_from_environment().ranks > 1)
    fail(ExitCode::kUsage, "diagnose", "wanted one process, found ",
         launch::rank_info_from_environment().ranks,
         " ranks; one batch on one rank says the same of every layer: start it alone");
  Diagnosis found;
  found.was_asked_for = fp8::wants_fp8(given);
  // Where the run keeps its checkpoints follows from the precision that it was given.
  given.checkpoint_dir = train::checkpoint_dir(given);
  const config::Settings settings = for_a_look(std::move(given));
  train::prepare_process(settings);
  const auto weights = checkpoint.empty() ? train::Weights::kOfSettings : train::Weights::kLater;
  const auto run = put_together(settings, weights, found);
  found.weights = checkpoint.empty() ? "as the settings start" : load_checkpoint(*run, checkpoint);
  found.model = settings.model_name;
  found.parameters = static_cast<double>(models::parameter_count(*run->trained.model));
  found.tokens = settings.batch_size * settings.max_seq_length;
  found.passes_before = kPassesBefore;
  found.precision = run->trained.precision();
  found.in_use = run->trained.fp8->options();
  look(*run, settings, found);
  sort_worst_first(found.health);
  found.coverage = train::gemm_lines(run->trained, settings.max_seq_length);
  found.advice = advise(found);
  return found;
}

}  // namespace octavo::diagnose
