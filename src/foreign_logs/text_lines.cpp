// Lines of trainers that print what they do. Formats by their source: Megatron-LM's training_log
// and evaluate_and_print_results (megatron/training/training.py), torchtitan's MetricsProcessor
// (torchtitan/components/metrics.py), nanoGPT's train.py, nanochat's scripts/base_train.py, llm.c's
// train_gpt2.cu and llmc/logger.h.

#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/text.h"
#include "foreign_logs/readers.h"
#include "foreign_logs/scan.h"

namespace octavo::foreign_logs {
namespace {

void add_if(Metrics& metrics, std::string_view name, int64_t step, std::optional<double> value) {
  if (value) metrics.add(name, step, *value);
}

// " validation loss at iteration 1000 | lm loss value: 2.7E+00 | lm loss PPL: 1.5E+01 | "
bool read_megatron_evaluation(std::string_view line, Metrics& metrics) {
  const std::optional<int64_t> step = step_after(line, "validation loss at iteration ");
  if (!step) return false;
  if (has(line, "on test set")) return true;  // the last evaluation, of other text
  constexpr std::string_view kValue = " value:";
  for (const std::string& field : split(line, '|'))
    if (const size_t at = field.find(kValue); at != field.npos)
      add_if(metrics, str(trim(field.substr(0, at)), " validation"), *step,
             leading_number(std::string_view(field).substr(at + kValue.size())));
  return true;
}

}  // namespace

// " [2025-08-01 07:19:50] iteration  2/ 5000 | … | lm loss: 1.044022E+01 | … |"
bool read_megatron_line(std::string_view line, TextState& state, Metrics& metrics) {
  constexpr std::string_view kIteration = "iteration ";
  if (has(line, "validation loss at")) return read_megatron_evaluation(line, metrics);
  const size_t at = line.find(kIteration), slash = line.find('/', at), bar = line.find('|', slash);
  if (at == line.npos || slash == line.npos || bar == line.npos) return false;
  const std::optional<int64_t> step = step_after(line.substr(at), kIteration);
  const size_t between = line.find_first_not_of(" 0123456789", at + kIteration.size());
  if (!step || between != slash) return false;
  state.last_step = *step;
  bool has_loss = false;
  for (const std::string& field : split(line.substr(bar + 1), '|')) {
    const size_t colon = field.find(": ");
    if (colon == field.npos) continue;
    const std::string_view name = trim(std::string_view(field).substr(0, colon));
    add_if(metrics, name, *step, leading_number(std::string_view(field).substr(colon + 1)));
    has_loss |= metrics.is_loss(name);
  }
  // A mean that is not finite is left out of the line, which counts such iterations instead.
  if (!has_loss && number_after(line, "number of nan iterations:").value_or(0) > 0) {
    const std::string& asked = metrics.options().loss_name;
    metrics.add(asked.empty() ? "lm loss" : asked, *step, NAN);
  }
  metrics.count_skipped_steps(step_after(line, "number of skipped iterations:").value_or(0));
  return true;
}

// "… - root - INFO - step: 10  loss:  7.3012  grad_norm: …  memory: 41.2GiB(52%)  tps: 5,970  …"
bool read_torchtitan_line(std::string_view line, TextState& state, Metrics& metrics) {
  const size_t at = line.find("step:");
  if (at == line.npos || !(has(line, "tps:") || has(line, "wps:"))) return false;
  const std::optional<int64_t> step = step_after(line, "step:");
  const std::optional<double> loss = number_after(line.substr(at), "loss:");
  if (!step || !loss) return false;
  if (line.substr(0, at).ends_with("validate ")) {
    metrics.add("validate loss", *step, *loss);
    return true;
  }
  state.last_step = *step;
  metrics.add("loss", *step, *loss);
  add_if(metrics, "memory (GiB)", *step, number_after(line, "memory:"));
  add_if(metrics, "tps", *step, number_after(line, has(line, "tps:") ? "tps:" : "wps:"));
  return true;
}

// "iter 100: loss 3.2, time 250.12ms, mfu 30.10%" and "step 250: train loss 3.1, val loss 3.2"
bool read_nanogpt_line(std::string_view line, TextState& state, Metrics& metrics) {
  if (line.starts_with("iter ") && has(line, ": loss ")) {
    const std::optional<int64_t> step = step_after(line, "iter ");
    if (!step) return false;
    state.last_step = *step;
    add_if(metrics, "loss", *step, number_after(line, ": loss "));
    add_if(metrics, "time (ms)", *step, number_after(line, ", time "));
    return true;
  }
  const std::optional<int64_t> step = step_after(line, "step ");
  if (!line.starts_with("step ") || !step || !has(line, ", val loss ")) return false;
  add_if(metrics, "train loss", *step, number_after(line, ": train loss "));
  add_if(metrics, "val loss", *step, number_after(line, ", val loss "));
  return true;
}

// "step 00005/21400 (0.02%) | loss: 8.53 | lrm: 1.00 | dt: 482.58ms | tok/sec: 1,086,417 | …" and
// "Step 00250 | Validation bpb: 0.98"
bool read_nanochat_line(std::string_view line, TextState& state, Metrics& metrics) {
  if (const size_t at = line.find("Step "); has(line, "| Validation bpb: ") && at != line.npos) {
    const std::optional<int64_t> step = step_after(line.substr(at), "Step ");
    if (!step) return false;
    add_if(metrics, "Validation bpb", *step, number_after(line, "Validation bpb: "));
    return true;
  }
  const size_t at = line.find("step ");
  if (at == line.npos || !has(line, "%) | loss: ")) return false;
  const std::optional<int64_t> step = step_after(line.substr(at), "step ");
  if (!step) return false;
  state.last_step = *step;
  add_if(metrics, "loss", *step, number_after(line, "| loss: "));
  add_if(metrics, "time (ms)", *step, number_after(line, "| dt: "));
  add_if(metrics, "tok/sec", *step, number_after(line, "| tok/sec: "));
  return true;
}

// main.log: "s:20 trl:6.1 lr:0.0006 norm:1.20", "s:20 tel:6.2"; the terminal: "step 21/100 | loss
// 6.1 (+0.10z)| norm … | 120.51 ms | 45.1% bf16 MFU | 4350 tok/s", "val loss 6.2".
bool read_llmc_line(std::string_view line, TextState& state, Metrics& metrics) {
  if (line.starts_with("s:")) {
    const std::optional<int64_t> step = step_after(line, "s:");
    if (!step || !(has(line, " trl:") || has(line, " tel:") || has(line, " eval:"))) return false;
    add_if(metrics, "trl", *step, number_after(line, " trl:"));
    add_if(metrics, "tel", *step, number_after(line, " tel:"));
    return true;
  }
  if (line.starts_with("val loss ")) {  // does not say its step, the one before the next line's
    state.open_evaluation = number_after(line, "val loss ");
    return state.open_evaluation.has_value();
  }
  const bool table = has(line, "| loss "),
             words = has(line, ": train loss ") && has(line, "(took ");
  const std::optional<int64_t> step = step_after(line, "step ");
  if (!line.starts_with("step ") || !step || !(table || words)) return false;
  state.last_step = *step;
  add_if(metrics, "val loss", *step - 1, std::exchange(state.open_evaluation, std::nullopt));
  add_if(metrics, table ? "loss" : "train loss", *step,
         number_after(line, table ? "| loss " : ": train loss "));
  add_if(metrics, "time (ms)", *step, number_before(line, " ms"));
  add_if(metrics, "tok/s", *step, number_before(line, " tok/s"));
  return true;
}

}  // namespace octavo::foreign_logs
