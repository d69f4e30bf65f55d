#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "cli/core/core_verbs.h"
#include "config/parse.h"
#include "data/splits.h"
#include "eval/hellaswag.h"
#include "hub/hub.h"
#include "train/device.h"
#include "train/evaluate.h"
#include "train/state/model_tokenizer.h"
#include "train/state/persist.h"
#include "train/state/switched_precision.h"

namespace octavo::cli {
namespace {

int eval_hellaswag(const config::Settings& s) {
  const fs::path file = data::benchmark_file(s, "eval_data", s.eval_data);
  const train::Loaded loaded = train::load_model(s);
  log_info("eval: the weights of " + loaded.source);
  const auto tokenizer = train::tokenizer_of(loaded, s.tokenizer);
  std::string rows;
  const auto result = eval::hellaswag(*loaded.engine, *loaded.model, *tokenizer, file, s.eval_limit,
                                      [&](const eval::HellaSwagRow& r) {
                                        if (!s.output.empty())
                                          rows += Json({{"row", r.row},
                                                        {"pred", r.pred},
                                                        {"pred_norm", r.pred_norm},
                                                        {"label", r.label}})
                                                      .dump() +
                                                  "\n";
                                      });
  if (!s.output.empty()) write_file_atomic(s.output, rows);
  if (s.json)
    std::puts(Json({{"task", "hellaswag"},
                    {"rows", result.rows},
                    {"acc", result.acc()},
                    {"acc_norm", result.acc_norm()}})
                  .dump()
                  .c_str());
  else
    std::printf("hellaswag: %lld rows | acc %.4f | acc_norm %.4f\n",
                static_cast<long long>(result.rows), result.acc(), result.acc_norm());
  return static_cast<int>(ExitCode::kOk);
}

int eval_loss(config::Settings s, bool length_is_given) {
  const train::Loaded loaded = train::load_model(s);
  log_info("eval: the weights of " + loaded.source);
  if (const int64_t longest = loaded.model->context();
      !length_is_given && s.max_seq_length > longest) {
    s.max_seq_length = longest;
    log_info(str("eval: max_seq_length ", longest, ", the model's longest sequence"));
  }
  const auto record = train::evaluate_model(loaded, s);
  if (s.json)
    std::puts(Json({{"task", "loss"}, {"val_loss", record.val_loss}, {"tokens", record.tokens}})
                  .dump()
                  .c_str());
  else
    std::printf("validation loss %.6f over %lld tokens\n", record.val_loss,
                static_cast<long long>(record.tokens));
  if (!std::isfinite(record.val_loss))
    fail(ExitCode::kGuard, "cli", "eval: the loss of ", record.tokens, " tokens is no number; ",
         "take another checkpoint: octavo checkpoints list");
  return static_cast<int>(ExitCode::kOk);
}

}  // namespace

int eval(CoreArgs args) {
  const config::Parsed parsed = config::parse(args, config::kEvalArguments);
  config::Settings s = parsed.settings;
  if (s.eval_task != "hellaswag" && s.eval_task != "loss")
    fail(ExitCode::kUsage, "cli", "eval_task: wanted loss or hellaswag, found '", s.eval_task, "'");
  if (s.eval_task == "loss" && s.dataset.empty())
    fail(ExitCode::kUsage, "cli",
         "eval: wanted data, found none; give --dataset FILE, or the file of a run, which names "
         "its data: octavo eval runs/RUN/config.yaml --checkpoint RUN");
  s.checkpoint_dir = train::root_of_checkpoint(s);
  s.tokenizer = hub::resolve_tokenizer(s.tokenizer, s);
  train::prepare_process(s);
  return s.eval_task == "hellaswag" ? eval_hellaswag(s)
                                    : eval_loss(s, parsed.origins.contains("max_seq_length"));
}

}  // namespace octavo::cli
