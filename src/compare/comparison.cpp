#include "compare/comparison.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "base/progress.h"
#include "compare/equal_loss.h"
#include "compare/seeds.h"

namespace octavo::compare {
namespace {

std::string number_text(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string factor_text(const Interval& factor) {
  return str(number_text("%.3fx", factor.mean), number_text(" [%.3f, ", factor.low),
             number_text("%.3f]", factor.high));
}

// Of all pairs: the mean of what each found, and how it varies from seed to seed.
template <typename Value>
std::optional<Interval> over_seeds(const std::vector<Pair>& pairs, Value&& value) {
  std::vector<double> values;
  for (const Pair& pair : pairs)
    if (const std::optional<double> one = value(pair)) values.push_back(*one);
  if (values.size() != pairs.size() || values.size() < 2) return std::nullopt;
  return independent_mean(values);
}

double mean_over(const std::vector<Pair>& pairs, double Gap::*member,
                 std::optional<Gap> Pair::*gap) {
  std::vector<double> values;
  for (const Pair& pair : pairs)
    if (pair.*gap) values.push_back((*(pair.*gap)).*member);
  return mean_of(values);
}

// B against A in percent of A's mean over all pairs: what the means that stand beside it give.
std::optional<Interval> percent_over_seeds(const std::vector<Pair>& pairs,
                                           std::optional<Gap> Pair::*gap) {
  const double a = mean_over(pairs, &Gap::a, gap);
  const auto differences =
      over_seeds(pairs, [&](const Pair& p) { return std::optional((p.*gap)->b - (p.*gap)->a); });
  return differences ? std::optional(differences->times(a > 0 ? 100 / a : 0)) : std::nullopt;
}

std::string first_reason(const std::vector<Pair>& pairs, std::string Pair::*reason) {
  for (const Pair& pair : pairs)
    if (!(pair.*reason).empty()) return pair.*reason;
  return "";
}

bool has_foreign(const std::vector<Pair>& pairs) {
  return std::ranges::any_of(pairs,
                             [](const Pair& p) { return p.a->is_foreign() || p.b->is_foreign(); });
}

std::string seeds_text(size_t seeds) {
  return str("95% interval over ", seeds, " seeds");
}

enum class LossOf : uint8_t { kTraining, kValidation };

// A run that broke down needs no statistics. "": none did. The last step may spoil the weights and
// leave no training loss that shows it.
std::string breakdown(const RunFolder& run, LossOf kind) {
  if (run.status.starts_with("ended by a guard"))
    return str(run.name(), " was ended by a guard at step ", run.steps.rbegin()->first);
  if (run.lost_losses > 0)
    return str(run.name(), " has ", run.lost_losses, " training losses that are not finite");
  // Other trainers write nan for an evaluation into the row of each step that made none.
  const auto is_lost = [&](const auto& one) {
    const auto step = run.steps.find(one.first);
    return !one.second && !(run.is_foreign() && step != run.steps.end() && step->second.loss);
  };
  const auto lost = std::ranges::count_if(run.evaluations, is_lost);
  return kind == LossOf::kValidation && lost > 0
             ? str(run.name(), " has ", lost, " validation losses that are not finite")
             : "";
}

// True when the verdict on the losses follows from that.
bool judge_breakdowns(Judgement& line, const std::vector<Pair>& pairs, LossOf kind) {
  for (const Pair& pair : pairs) {
    const std::string first = breakdown(*pair.a, kind), second = breakdown(*pair.b, kind);
    if (first.empty() && second.empty()) continue;
    line.verdict = first.empty() ? Verdict::kFail : Verdict::kNotEnoughData;
    line.why = first.empty() ? second : first + "; there is nothing to compare with";
    return true;
  }
  return false;
}

// How to ask for so many pairs.
std::string seeds_flag(const std::vector<Pair>& pairs, int64_t seeds) {
  return has_foreign(pairs) ? str(seeds, " pairs: A1 A2 … --against B1 B2 …")
                            : str(seeds, " seeds: --seeds ", seeds);
}

// What both one-sided tests say of an interval that is not above its bound.
std::string equivalence_text(const Interval& found, double bound) {
  if (found.low >= -bound) return str("; equivalent within ±", bound, "% (two one-sided tests)");
  return found.high < -bound
             ? str("; lower by more than ", bound, "%")
             : str("; not higher by more than ", bound, "%; it may be lower by more");
}

// The verdict on a loss whose gaps and their interval are known. Within one pair neighbouring steps
// say how sure the gap of these two runs is, and nothing about other seeds: that is no verdict.
void judge_gap(Judgement& line, const std::vector<Pair>& pairs, std::optional<Gap> Pair::*gap,
               double bound) {
  std::vector<double> gaps;
  for (const Pair& pair : pairs) gaps.push_back((pair.*gap)->interval.mean);
  line.verdict =
      pairs.size() < kLeastSeeds ? Verdict::kNotEnoughData : judge_at_most(*line.interval, bound);
  if (line.verdict == Verdict::kPass) line.why += equivalence_text(*line.interval, bound);
  if (line.verdict != Verdict::kNotEnoughData) return;
  line.seeds_wanted = seeds_for_verdict(gaps, bound);
  if (pairs.size() < 2)
    line.why += str("; another seed may give another gap, and a verdict needs at least ",
                    seeds_flag(pairs, line.seeds_wanted));
  else if (line.seeds_wanted == 0)
    line.why += str("; by the spread of these gaps no ", kMostSeeds,
                    " seeds would decide: longer runs, or a wider bound");
  else
    line.why += str(pairs.size() < kLeastSeeds ? "; a verdict needs, by the spread of these gaps, "
                                               : "; the bound is within it; by their spread a "
                                                 "verdict needs ",
                    "about ", seeds_flag(pairs, line.seeds_wanted));
}

Judgement judge_train(const std::vector<Pair>& pairs, const Bounds& bounds) {
  Judgement line{.name = "training loss", .bound = str("at most +", bounds.train_gap, "%")};
  const bool all = std::ranges::all_of(pairs, [](const Pair& p) { return p.train.has_value(); });
  if (all) {
    line.a = number_text("%.4f", mean_over(pairs, &Gap::a, &Pair::train));
    line.b = number_text("%.4f", mean_over(pairs, &Gap::b, &Pair::train));
    line.interval =
        pairs.size() == 1 ? pairs[0].train->interval : percent_over_seeds(pairs, &Pair::train);
    line.gap = percent_text(*line.interval);
  }
  if (judge_breakdowns(line, pairs, LossOf::kTraining)) return line;
  line.verdict = Verdict::kNotEnoughData;
  if (!all) return line.why = first_reason(pairs, &Pair::no_train), line;
  size_t least = pairs[0].tail_steps;
  for (const Pair& pair : pairs) least = std::min(least, pair.tail_steps);
  if (least < kLeastTailSteps) {
    line.why =
        str("the last part of the runs is ", least, " steps, and a verdict needs ", kLeastTailSteps,
            ": runs of about ", steps_for_verdict(bounds), " steps (max_steps) would do");
    return line;
  }
  line.why = pairs.size() > 1 ? seeds_text(pairs.size())
                              : str("95% interval over the last ", least, " steps of one pair",
                                    pairs[0].pairing.same_batches ? ", batch by batch" : "");
  judge_gap(line, pairs, &Pair::train, bounds.train_gap);
  return line;
}

// The eval_freq with which runs of this length would have enough of them.
std::string more_evaluations(const Pair& pair, const Bounds& bounds) {
  const auto steps = static_cast<double>(pair.pairing.steps.size());
  const auto freq =
      static_cast<int64_t>(bounds.tail_share * steps / static_cast<double>(kLeastEvaluations));
  if (freq < 1) return "longer runs (max_steps)";
  return str("evaluate every ", freq, " steps (eval_freq)");
}

Judgement judge_validation(const std::vector<Pair>& pairs, const Bounds& bounds) {
  Judgement line{.name = "validation loss", .bound = str("at most +", bounds.validation_gap, "%")};
  if (judge_breakdowns(line, pairs, LossOf::kValidation)) return line;
  line.verdict = Verdict::kNotEnoughData;
  if (!std::ranges::all_of(pairs, [](const Pair& p) { return p.validation.has_value(); }))
    return line.why = first_reason(pairs, &Pair::no_validation), line;
  line.a = number_text("%.4f", mean_over(pairs, &Gap::a, &Pair::validation));
  line.b = number_text("%.4f", mean_over(pairs, &Gap::b, &Pair::validation));
  if (pairs.size() > 1) {
    line.interval = percent_over_seeds(pairs, &Pair::validation);
    line.why = seeds_text(pairs.size()) + ", each the mean of its last evaluations";
  } else {
    line.interval = pairs[0].validation->interval;
    line.why = str("95% interval over the last ", pairs[0].evaluations, " evaluations of one pair");
    if (pairs[0].validation->open) {
      line.gap = percent_text(*line.interval, true);
      line.why =
          str(pairs[0].evaluations, pairs[0].evaluations == 1 ? " evaluation" : " evaluations",
              " in the last part of one pair, and an interval needs ", kLeastEvaluations, ": ",
              more_evaluations(pairs[0], bounds), ", or more seeds (--seeds)");
      return line;
    }
  }
  line.gap = percent_text(*line.interval);
  judge_gap(line, pairs, &Pair::validation, bounds.validation_gap);
  return line;
}

// Rows are a sample of questions, and seeds a sample of runs: the wider of the two intervals.
Judgement judge_task(const std::vector<Pair>& pairs, const Bounds& bounds) {
  Judgement line{.name = "HellaSwag acc_norm",
                 .bound = str("at most ", bounds.hellaswag_drop,
                              bounds.hellaswag_drop == 1 ? " point lost" : " points lost")};
  const auto measured =
      std::ranges::count_if(pairs, [](const Pair& p) { return p.task.has_value(); });
  if (measured < static_cast<std::ptrdiff_t>(pairs.size())) {
    line.why = first_reason(pairs, &Pair::no_task);
    if (line.why.empty()) {
      line.why = has_foreign(pairs) ? "not measured: a log has no model that could be asked"
                                    : "not measured: --eval_data names its file";
      return line;
    }
    line.verdict = Verdict::kNotEnoughData;
    return line;
  }
  std::vector<double> rows(pairs[0].task->differences.size());
  double a = 0, b = 0;
  for (const Pair& pair : pairs) {
    a += pair.task->a / static_cast<double>(pairs.size());
    b += pair.task->b / static_cast<double>(pairs.size());
    for (size_t i = 0; i < std::min(rows.size(), pair.task->differences.size()); ++i)
      rows[i] += pair.task->differences[i] / static_cast<double>(pairs.size());
  }
  line.a = number_text("%.2f%%", a);
  line.b = number_text("%.2f%%", b);
  line.verdict = Verdict::kNotEnoughData;
  if (rows.size() < 2) return line.why = str("found ", rows.size(), " row(s)"), line;
  line.interval = bounded_mean(rows).times(100);
  line.why = str("95% interval over ", rows.size(), " rows; ",
                 std::ranges::count_if(rows, [](double row) { return row != 0; }),
                 " of them got more right answers from one side than from the other");
  const auto seeds =
      over_seeds(pairs, [](const Pair& p) { return std::optional(p.task->b - p.task->a); });
  if (seeds && seeds->half() > line.interval->half()) {
    line.interval = seeds;
    line.why = seeds_text(pairs.size());
  }
  line.gap =
      str(number_text("%+.2f", line.interval->mean), " points ",
          number_text("[%+.2f, ", line.interval->low), number_text("%+.2f]", line.interval->high));
  line.verdict = judge_at_least(*line.interval, -bounds.hellaswag_drop);
  return line;
}

Judgement judge_speed(const std::vector<Pair>& pairs, const Bounds& bounds, bool cpu) {
  // Logs of other trainers do not name their device, on which the usual bound depends.
  const bool no_bound = cpu || has_foreign(pairs);
  const double wanted = bounds.speedup > 0 ? bounds.speedup : no_bound ? 0 : 1;
  Judgement line{.name = cpu ? "speed (CPU rehearsal)" : "speed"};
  if (wanted > 0) line.bound = str("at least ", wanted, "x");
  const bool all = std::ranges::all_of(pairs, [](const Pair& p) { return p.speed.has_value(); });
  if (wanted > 0) line.verdict = Verdict::kNotEnoughData;
  if (!all) return line.why = first_reason(pairs, &Pair::no_speed), line;
  const auto speed_of = [&](double Gap::*side) {  // the geometric mean: B over A is the factor
    double sum = 0;
    for (const Pair& pair : pairs) sum += std::log((*pair.speed).*side);
    const double mean = std::exp(sum / static_cast<double>(pairs.size()));
    return number_text(mean < 1e3 ? "%.4g tokens/s" : "%.0f tokens/s", mean);
  };
  line.a = speed_of(&Gap::a);
  line.b = speed_of(&Gap::b);
  if (pairs.size() == 1) {
    line.interval = pairs[0].speed->interval;
    line.why = "95% interval over eight blocks of steps";
  } else {
    line.interval = over_seeds(pairs, [](const Pair& p) {
                      return std::optional(std::log(p.speed->interval.mean));
                    })->exponential();
    line.why = seeds_text(pairs.size());
  }
  line.gap = factor_text(*line.interval);
  if (pairs[0].speed_of_one_gpu) line.why += "; of one GPU";
  if (const Pair& pair = pairs[0]; pair.step_tokens_a != pair.step_tokens_b)
    line.why += str("; a step is of ", std::llround(pair.step_tokens_a), " and ",
                    std::llround(pair.step_tokens_b), " tokens, so step times are not compared");
  if (cpu) line.why += "; FP8 is rehearsed here: this says nothing about a GPU";
  if (wanted > 0) line.verdict = judge_at_least(*line.interval, wanted);
  return line;
}

// A peak is one number without chance in it: any length of run decides.
Judgement judge_memory(const std::vector<Pair>& pairs, const Bounds& bounds, bool cpu) {
  constexpr double kUsualGap = 5;  // percent: what the allocator's rounding may make
  const bool no_bound = cpu || has_foreign(pairs);
  const double most = bounds.memory_gap > 0 ? bounds.memory_gap : no_bound ? 0 : kUsualGap;
  Judgement line{.name = "memory peak", .counts = bounds.memory_gap > 0};
  if (most > 0) line.bound = str("at most +", most, "%");
  double a = 0, b = 0;
  for (const Pair& pair : pairs) {
    a = std::max(a, pair.a->peak_bytes);
    b = std::max(b, pair.b->peak_bytes);
  }
  if (a <= 0 || b <= 0) {
    if (most > 0) line.verdict = Verdict::kNotEnoughData;
    return line.why = has_foreign(pairs) ? "not said in both logs" : "not said in metrics.jsonl",
           line;
  }
  line.a = format_bytes(a);
  line.b = format_bytes(b);
  line.gap = number_text("%+.1f%%", 100 * (b / a - 1));
  if (most > 0) line.verdict = 100 * (b / a - 1) <= most ? Verdict::kPass : Verdict::kFail;
  if (!line.counts && most > 0) line.why = "no part of the verdict unless max_memory_gap is given";
  return line;
}

// What the gap costs in time. Nothing is wanted of it: it is for the reader.
Judgement judge_equal_loss(const std::vector<Pair>& pairs, const Judgement& train,
                           const Judgement& speed, bool cpu) {
  Judgement line{.name = "time to equal loss", .counts = false};
  if (!train.interval) return line.why = "the training losses have no gap to make up", line;
  const auto found =
      equal_loss(pairs, *train.interval, cpu ? std::nullopt : speed.interval, line.why);
  if (!found) return line;
  line.gap = factor_text(found->steps);
  line.why = str("B's steps for A's training loss over A's steps, by how the losses fall: ",
                 number_text("%.3g", found->fall), " while the steps double");
  if (found->net)
    line.why += str("; B's speed-up after paying for it: ", factor_text(*found->net));
  else if (cpu)
    line.why += "; on a GPU, FP8 must be faster by this factor to gain any time";
  return line;
}

// What is said about each log; in one line where it is the same of all.
std::vector<std::string> remarks_on_runs(const std::vector<Pair>& pairs) {
  std::vector<std::pair<std::string, const RunFolder*>> runs;
  for (const Pair& pair : pairs) {
    runs.emplace_back(str("run A (", pair.a->name(), "): "), &*pair.a);
    runs.emplace_back(str("run B (", pair.b->name(), "): "), &*pair.b);
  }
  std::vector<std::string> out;
  for (const auto& [label, run] : runs)
    for (const std::string& remark : run->remarks) {
      const bool of_all = std::ranges::all_of(runs, [&](const auto& other) {
        return std::ranges::find(other.second->remarks, remark) != other.second->remarks.end();
      });
      out.push_back(!of_all            ? label + remark
                    : runs.size() == 2 ? "both runs: " + remark
                                       : str("all ", runs.size(), " runs: ", remark));
    }
  return out;
}

void collect_remarks(Comparison& c) {
  std::vector<std::string>& out = c.remarks;
  const auto add = [&](const std::string& remark) {
    if (std::ranges::find(out, remark) == out.end()) out.push_back(remark);
  };
  for (const Pair& pair : c.pairs) {
    for (const std::string& remark : pair.pairing.remarks) add(remark);
    for (const auto& [run, side] : {std::pair(&pair.a, "A"), std::pair(&pair.b, "B")})
      if ((*run)->settings && !(*run)->precision.starts_with("FP8") &&
          ((*run)->settings->use_fp8 ||
           (*run)->settings->mixed_precision == config::Precision::kFp8))
        add(str("run ", side, " asked for FP8 and ran in ", (*run)->precision));
    if ((*pair.b).fp8_fallbacks > 0)
      add(str("in run B ", pair.b->fp8_fallbacks,
              " layers went back to BF16 (receipt.json says which)"));
    if (pair.pairing.differences.empty() && pair.a->settings && pair.b->settings)
      add("the two runs have the same settings: the gap is of chance alone");
  }
  for (const std::string& remark : remarks_on_runs(c.pairs)) add(remark);
  if (c.pairs.size() == 1)
    add(
        str("one pair of runs: the intervals are about these two runs; what another seed would "
            "give, and a verdict on the losses, take ",
            has_foreign(c.pairs) ? "three pairs or more: A1 A2 A3 --against B1 B2 B3"
                                 : "--seeds 3 or more"));
}

}  // namespace

std::string percent_text(const Interval& interval, bool open) {
  const std::string mean = number_text("%+.2f%%", interval.mean);
  if (open) return mean;
  return str(mean, number_text(" [%+.2f, ", interval.low), number_text("%+.2f]", interval.high));
}

int64_t steps_for_verdict(const Bounds& bounds) {
  const double wanted = static_cast<double>(kLeastTailSteps) / bounds.tail_share;
  // Two digits: it is an estimate.
  const double unit = std::pow(10.0, std::max(0.0, std::floor(std::log10(wanted)) - 1));
  return static_cast<int64_t>(std::ceil(wanted / unit) * unit);
}

Comparison judge(std::vector<Pair> pairs, const Bounds& bounds) {
  OCTAVO_ASSERT(!pairs.empty());
  Comparison c;
  c.pairs = std::move(pairs);
  c.label_a = c.pairs[0].a->label();
  c.label_b = c.pairs[0].b->label();
  if (c.label_a == c.label_b) {
    c.label_a = c.pairs[0].a->name();
    c.label_b = c.pairs[0].b->name();
  }
  c.on_cpu = c.pairs[0].b->on_cpu();
  c.judgements = {judge_train(c.pairs, bounds), judge_validation(c.pairs, bounds),
                  judge_task(c.pairs, bounds), judge_speed(c.pairs, bounds, c.on_cpu),
                  judge_memory(c.pairs, bounds, c.on_cpu)};
  c.judgements.push_back(judge_equal_loss(c.pairs, c.judgements[0], c.judgements[3], c.on_cpu));
  std::vector<Verdict> verdicts;
  for (const Judgement& line : c.judgements)
    if (line.counts) verdicts.push_back(line.verdict);
  c.verdict = overall(verdicts);
  collect_remarks(c);
  return c;
}

}  // namespace octavo::compare
