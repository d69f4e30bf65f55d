#include "train/random_run.h"

#include "model_config/presets.h"
#include "plan/shape.h"
#include "train/device.h"
#include "train/model_factory.h"
#include "train/random_tokens.h"

namespace octavo::train {

void start_on_random_tokens(Run& run, const config::Settings& settings, Weights weights) {
  run.settings = settings;
  run.engine = std::make_unique<engine::Engine>(target_of(run.settings));
  const int64_t vocab = model_config::is_built_in(settings.model_name)
                            ? plan::vocabulary_of(settings)
                            : settings.vocab_size;
  build_model(run, with_resolved_names(settings), vocab, weights);
  run.train_data = std::make_shared<RandomTokens>(run.model->vocab_size());
  run.loader = std::make_unique<data::Loader>(
      run.train_data,
      data::Loader::Options{.rows = settings.batch_size, .length = settings.max_seq_length},
      data::Position{});
  run.schedule = {.max_lr = 1e-4, .min_lr_ratio = 1, .warmup_steps = 0, .max_steps = 1000};
}

}  // namespace octavo::train
