#include "train/random_run.h"

#include "base/file.h"
#include "fake_cuda/fake_cuda.h"
#include "model_config/presets.h"
#include "plan/shape.h"

namespace octavo::train {
namespace {

// The fake CUDA device reads no weights: where the shape is known, no file and no network is
// needed.
bool is_shape_enough(const config::Settings& settings) {
  std::error_code none;
  return fake_cuda::is_active() && !fs::exists(settings.model_name, none) &&
         model_config::published(settings.model_name).has_value();
}

}  // namespace

void start_on_random_tokens(Run& run, const config::Settings& settings, Weights weights) {
  run.settings = settings;
  const int64_t vocab = model_config::is_built_in(settings.model_name)
                            ? plan::vocabulary_of(settings)
                            : settings.vocab_size;
  const config::Settings resolved =
      is_shape_enough(settings) ? settings : with_resolved_names(settings);
  run.trained = build_model(run.settings, resolved, run.world, vocab, weights);
  run.data.train = std::make_shared<RandomTokens>(run.trained.model->vocab_size());
  if (settings.cuda_graph)
    run.trained.graph =
        std::make_unique<StepGraph>(run.trained, settings, run.world.size(), *run.data.train);
  run.data.loader = std::make_unique<data::Loader>(
      run.data.train,
      data::Loader::Options{.rows = settings.batch_size, .length = settings.max_seq_length},
      data::Position{});
  run.schedule = {.max_lr = 1e-4, .min_lr_ratio = 1, .warmup_steps = 0, .max_steps = 1000};
}

}  // namespace octavo::train
