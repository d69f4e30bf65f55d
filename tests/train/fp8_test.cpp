// FP8 training as a whole: it learns, says what ran, and refuses what cannot run.

#include <cmath>
#include <fstream>
#include <map>

#include "engine/padded_fp8_linear.h"
#include "eval/generate.h"
#include "fp8/legality.h"
#include "monitor/sinks.h"
#include "train/batching/auto_batch.h"
#include "train/evaluate.h"
#include "train/fp8_run.h"
#include "train/reporting/fp8_report.h"
#include "train/reporting/receipt.h"
#include "train/reporting/start_lines.h"
#include "train/state/persist.h"

namespace octavo::train {
namespace {

using config::Fp8Recipe;
using Fp8 = Fp8Test;

constexpr int kLayers = 8;  // two blocks of four

TEST_F(Fp8, LearnsInEveryRecipe) {
  constexpr int kSteps = 40;
  std::map<int64_t, std::pair<double, double>> plain;  // by width: first loss, validation loss
  for (const Fp8Recipe recipe : fp8::kRecipes) {
    SCOPED_TRACE(name_of(recipe));
    auto s = settings(recipe);
    s.fp8_stats_freq = kSteps;
    if (!plain.contains(s.n_embd)) {
      auto bf16 = s;
      bf16.mixed_precision = config::Precision::kBf16;
      const auto run = start(bf16);
      const double first = train_step(*run).loss;
      steps(*run, kSteps - 1);
      plain[s.n_embd] = {first, evaluate(*run).val_loss};
      ASSERT_LT(plain[s.n_embd].second, 3);  // random bytes cost 5.5
    }
    const auto [first, val_loss] = plain[s.n_embd];
    const auto run = start(s);
    EXPECT_NEAR(train_step(*run).loss, first, 0.01);
    const auto last = steps(*run, kSteps - 1);
    EXPECT_NEAR(evaluate(*run).val_loss / val_loss, 1, 0.03);
    EXPECT_NE(evaluate(*run).val_loss, val_loss);
    EXPECT_EQ(last.precision, "FP8 rehearsal");
    EXPECT_EQ(last.step, kSteps);
    EXPECT_FALSE(last.skipped);
    EXPECT_EQ(last.fp8_layers, kLayers);
    EXPECT_EQ(last.fp8_fallbacks, 0);
    EXPECT_FALSE(last.fp8_tensors.empty());
    EXPECT_EQ(troubled_layers(last), "");
  }
}

TEST_F(Fp8, StatisticsComeWhenTheyAreDue) {
  auto s = settings();
  s.fp8_stats_freq = 3;
  const auto run = start(s);
  for (int step = 1; step <= 7; ++step)
    EXPECT_EQ(train_step(*run).fp8_tensors.empty(), step % 3 != 0) << step;
  s.fp8_stats_freq = 0;
  EXPECT_TRUE(steps(*start(s), 2).fp8_tensors.empty());
}

// The largest weights and the factors are known from the weights themselves.
TEST_F(Fp8, StatisticsAreOfTheRightTensors) {
  for (const Fp8Recipe recipe : {Fp8Recipe::kCurrent, Fp8Recipe::kMxfp8}) {
    SCOPED_TRACE(name_of(recipe));
    auto s = settings(recipe);
    s.gradient_accumulation_steps = 2;
    const auto run = start(s);
    std::map<std::string, at::Tensor> weights;
    for (const auto& layer : run->trained.model->linears())
      weights[layer->name] = layer->weight->compute.detach().to(at::kFloat);
    const auto record = train_step(*run);
    // Two directions of three tensors, one of them where both copies are the same.
    const bool symmetric = recipe == Fp8Recipe::kCurrent;
    ASSERT_EQ(record.fp8_tensors.size(), (symmetric ? 3u : 6u) * kLayers);
    for (const auto& t : record.fp8_tensors) {
      EXPECT_EQ(t.backward, t.tensor.starts_with("gradient")) << t.tensor;
      EXPECT_EQ(t.health.incidents.nan, 0);
      const at::Tensor& w = weights.at(t.layer);
      const int64_t twice = 2 * 64;  // tokens of two micro-batches
      if (t.tensor.starts_with("input")) EXPECT_EQ(t.health.elements, twice * w.size(1));
      if (t.tensor.starts_with("gradient")) EXPECT_EQ(t.health.elements, twice * w.size(0));
      if (!t.tensor.starts_with("weight")) continue;
      EXPECT_EQ(t.health.elements, w.numel());  // quantized once for both
      EXPECT_EQ(t.health.amax, w.abs().max().item<float>());
      if (symmetric) EXPECT_EQ(t.health.factor, 448 / t.health.amax);
      EXPECT_GT(t.health.sqnr_db(), 28);
    }
  }
}

TEST_F(Fp8, AStatisticOfTheWeightsComesAfterAnEvaluationToo) {
  const auto run = start(settings());
  steps(*run, 3);
  const size_t wanted = train_step(*run).fp8_tensors.size();
  evaluate(*run);
  EXPECT_EQ(train_step(*run).fp8_tensors.size(), wanted);
}

TEST_F(Fp8, EvaluationAndSamplesLeaveTrainingAlone) {
  for (const Fp8Recipe recipe : fp8::kRecipes) {
    SCOPED_TRACE(name_of(recipe));
    const auto a = start(settings(recipe)), b = start(settings(recipe));
    const auto look = [&] {
      evaluate(*a);
      eval::generate(*a->trained.engine, *a->trained.model, *a->data.tokenizer, "lin",
                     {.max_new_tokens = 3}, [](auto) {});
    };
    look();
    steps(*a, 2);
    look();
    steps(*a, 2);
    steps(*b, 4);
    EXPECT_EQ(differences(*a, state_of(*b)), "");
  }
}

// --- the receipt

TEST_F(Fp8, TheReceiptNamesEveryGemm) {
  auto s = settings(Fp8Recipe::kCurrent);
  s.gradient_accumulation_steps = 2;
  s.fp8_skip = {"h.0.mlp.*", "last"};
  const auto run = start(s);
  steps(*run, 3);
  const Json receipt = fp8_receipt(run->trained, run->settings.max_seq_length);
  double shares = 0, in_fp8 = 0;
  int gemms = 0;
  for (const auto& line : receipt["gemms"]) {
    shares += line["flops_share"].get<double>();
    const std::string layer = line["layer"], gemm = line["gemm"];
    if (layer == "head" || layer == "attention") {
      EXPECT_EQ(line["precision"], "BF16");
      EXPECT_NE(line["reason"], "");
      continue;
    }
    ++gemms;
    const std::string reason = layer.starts_with("h.1.")       ? "fp8_skip last"
                               : layer.starts_with("h.0.mlp.") ? "fp8_skip h.0.mlp.*"
                                                               : "";
    EXPECT_EQ(line["reason"], reason) << layer;
    EXPECT_EQ(line["recipe"], reason.empty() ? "current" : "") << layer;
    const std::string formats = gemm == "forward" ? "FP8 e4m3 x e4m3" : "FP8 e5m2 x e4m3";
    EXPECT_EQ(line["precision"], reason.empty() ? formats : "BF16") << layer << " " << gemm;
    EXPECT_EQ(line["ran_fp8"], reason.empty() ? 6 : 0) << layer << " " << gemm;
    EXPECT_EQ(line["ran_other"], reason.empty() ? 0 : 6) << layer << " " << gemm;
    if (reason.empty()) in_fp8 += line["flops_share"].get<double>();
  }
  EXPECT_EQ(gemms, 3 * kLayers);
  EXPECT_NEAR(shares, 1, 1e-12);
  // c_attn and c_proj of one block: 4 of the 24 parts of the blocks' matrices.
  const double c = 64, vocabulary = 320, length = 16;
  const double all = 24 * c * c + vocabulary * c + 2 * length * c;
  EXPECT_NEAR(in_fp8, 4 * c * c / all, 1e-12);
  EXPECT_NEAR(receipt["flops_share"].get<double>(), in_fp8, 1e-12);
  EXPECT_EQ(receipt["recipe"], "current");
  EXPECT_EQ(receipt["format"], "hybrid");
  EXPECT_EQ(receipt["execution"], "rehearsal");
  EXPECT_EQ(receipt["layers"], 2);
  EXPECT_EQ(receipt["layers_total"], kLayers);
}

TEST_F(Fp8, TheTablePutsBlocksTogether) {
  const auto run = start(settings(Fp8Recipe::kMxfp8));
  const std::string table = gemm_table(gemm_lines(run->trained, run->settings.max_seq_length));
  EXPECT_NE(table.find("h.*.attn.c_attn (2)"), std::string::npos) << table;
  EXPECT_EQ(std::ranges::count(table, '\n'), 1 + 4 * 3 + 2) << table;
}

TEST_F(Fp8, TheFoldedTableHasALineForEachGroupOfLayers) {
  auto s = settings(Fp8Recipe::kMxfp8);
  s.fp8_skip = {"last"};
  const auto run = start(s);
  const auto lines = gemm_lines(run->trained, run->settings.max_seq_length);
  const std::string table = folded_gemm_table(lines);
  // Four groups in FP8, the same four of the last block in BF16, head, attention.
  EXPECT_EQ(std::ranges::count(table, '\n'), 4 + 4 + 2) << table;
  for (const char* part : {"FP8 mxfp8", "fp8_skip last", "attention stays in BF16",
                           "of the FLOPs of GEMMs run in FP8"})
    EXPECT_NE(table.find(part), std::string::npos) << part << " in:\n" << table;
  double shares = 0;
  for (const std::string& row : split(table, '\n'))
    if (const size_t percent = row.find("%  "); percent != row.npos || row.ends_with('%'))
      shares += std::stod(row.substr(row.rfind(' ', percent) + 1));
  EXPECT_NEAR(shares, 100, 0.6) << "ten numbers, each rounded to a tenth:\n" << table;
}

TEST_F(Fp8, TheStartIsTwoLinesAndTheGemms) {
  auto s = settings(Fp8Recipe::kMxfp8);
  const auto run = start(s);
  run->schedule = {.max_lr = 1e-3, .min_lr_ratio = 0.1, .warmup_steps = 1, .max_steps = 10};
  const auto lines = start_lines(*run);
  ASSERT_EQ(lines.size(), 3u);
  for (const char* part :
       {"model: custom, ", " parameters, vocabulary ", "; data: ", "; 10 steps of ", "warm-up 1"})
    EXPECT_NE(lines[0].find(part), std::string::npos) << part << " in: " << lines[0];
  for (const char* part : {"precision: FP8 rehearsal, recipe mxfp8, FP8 backend: rehearsal; ",
                           "kernels: fp8_linear ", "matmul ", "; cpu", " threads"})
    EXPECT_NE(lines[1].find(part), std::string::npos) << part << " in: " << lines[1];
  EXPECT_TRUE(lines[2].starts_with("GEMMs by group of layers ")) << lines[2];
  run->settings.verbose = true;
  EXPECT_TRUE(start_lines(*run)[2].ends_with(
      gemm_table(gemm_lines(run->trained, run->settings.max_seq_length))));
  s.mixed_precision = config::Precision::kBf16;
  const auto plain = start_lines(*start(s));
  ASSERT_EQ(plain.size(), 2u);
  EXPECT_NE(plain[1].find("precision: BF16, FP8: off; kernels: matmul "), std::string::npos);
}

TEST_F(Fp8, ABf16RunHasAReceiptWithoutReasons) {
  auto s = settings();
  s.mixed_precision = config::Precision::kBf16;
  const auto run = start(s);
  train_step(*run);
  const Json receipt = fp8_receipt(run->trained, run->settings.max_seq_length);
  EXPECT_EQ(receipt["flops_share"], 0);
  EXPECT_FALSE(receipt.contains("recipe"));
  for (const auto& line : receipt["gemms"]) {
    EXPECT_EQ(line["reason"], "");
    EXPECT_EQ(line["precision"], "BF16");
    EXPECT_EQ(line["ran_fp8"], 0);
  }
}

// --- what cannot run

TEST_F(Fp8, NoLayerInFp8IsRefused) {
  auto s = settings(Fp8Recipe::kBlockwise);
  s.n_embd = 40;
  auto [code, message] = refusal([&] { start(s); });
  EXPECT_EQ(code, ExitCode::kUsage);
  EXPECT_NE(message.find("outputs 120 is not a multiple of 128"), std::string::npos) << message;
  s = settings();
  s.fp8_skip = {"*"};
  std::tie(code, message) = refusal([&] { start(s); });
  EXPECT_EQ(code, ExitCode::kUsage);
  EXPECT_NE(message.find("fp8_skip *"), std::string::npos) << message;
}

TEST_F(Fp8, TokensOfAMicroBatchMayBeAnyNumber) {
  for (const Fp8Recipe recipe : fp8::kRecipes) {
    SCOPED_TRACE(config::name_of(recipe));
    auto s = settings(recipe);
    s.batch_size = 3;
    s.max_seq_length = 15;
    const auto run = start(s);
    EXPECT_EQ(steps(*run, 2).fp8_layers, kLayers);
    const engine::Padding padding = engine::padding_of(*run->trained.engine->fp8_linear);
    EXPECT_GT(padding.operands, 0);
    EXPECT_EQ(padding.tokens, 45 * padding.operands);
    const int64_t missing = fp8::padding(recipe, 45);
    EXPECT_EQ(missing, fp8::traits_of(recipe).token_multiple == 32 ? 19 : 3);
    EXPECT_EQ(padding.zero_rows, missing * padding.operands);
    EXPECT_EQ(fp8_receipt(run->trained, s.max_seq_length)["padding"]["operands"], padding.operands);
    s.max_seq_length = 16;
    s.batch_size = 4;  // 64 tokens
    const auto even = start(s);
    steps(*even, 1);
    EXPECT_EQ(engine::padding_of(*even->trained.engine->fp8_linear).operands, 0);
  }
}

TEST_F(Fp8, APatternThatNamesNoLayerIsRefused) {
  auto s = settings();
  s.fp8_skip = {"h.0.attn.c_atn"};
  const auto [code, message] = refusal([&] { start(s); });
  EXPECT_EQ(code, ExitCode::kUsage);
  EXPECT_NE(message.find("did you mean 'h.0.attn.c_attn'"), std::string::npos) << message;
}

TEST_F(Fp8, NativeIsRefusedOnACpuAndABackendIsAWarning) {
  auto s = settings();
  s.fp8_execution = config::Fp8Execution::kNative;
  EXPECT_EQ(refusal([&] { start(s); }).first, ExitCode::kEnvironment);
  s = settings();
  s.use_te = true;
  const int64_t before = warning_count();
  const auto run = start(s);
  EXPECT_EQ(warning_count(), before + 1);
  EXPECT_EQ(run->trained.precision(), "FP8 rehearsal");
  const Json warnings = fp8_receipt(run->trained, run->settings.max_seq_length)["warnings"];
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_NE(warnings[0].get<std::string>().find("fp8_backend te"), std::string::npos);
}

TEST_F(Fp8, OtherNamesForTheSame) {
  auto s = settings(Fp8Recipe::kMxfp8);
  const auto wanted = start(s);
  s.mixed_precision = config::Precision::kBf16;
  s.use_fp8 = true;
  s.fp8_recipe = Fp8Recipe::kDelayed;
  s.fp8_scenario = config::Fp8Scenario::kMxfp8;
  const auto run = start(s);
  EXPECT_EQ(run->trained.fp8->options(), wanted->trained.fp8->options());
  EXPECT_EQ(train_step(*run).loss, train_step(*wanted).loss);
  s.checkpoint_dir.clear();
  EXPECT_EQ(checkpoint_dir(s), "checkpoints_fp8");
  s.use_fp8 = false;
  EXPECT_EQ(checkpoint_dir(s), "checkpoints");
}

// --- checkpoints across recipes; across processes in tests/integration/fp8_resume.py

TEST_F(Fp8, AFormatThatChangesOnResumeGetsFactorsOfItsOwn) {
  auto s = settings();
  const auto run = start(s);
  steps(*run, 6);
  save(*run, "run", false, nullptr);
  s.resume = "latest";
  s.fp8_format = config::Fp8Format::kE4m3;
  const auto other = start(s);
  // 57344 / amax is far too much for a format that ends at 448.
  const auto record = train_step(*other);
  for (const auto& t : record.fp8_tensors)
    EXPECT_LT(t.health.saturated_percent(), 1) << t.layer << " " << t.tensor;
}

// A start that makes no step knows nothing of what ran.
TEST_F(Fp8, TheReceiptOfStepsBeforeStaysUntilThereAreNewOnes) {
  auto s = settings();
  const auto run = start(s);
  steps(*run, 2);
  save(*run, "run", false, nullptr);
  write_receipt(*run, folder, "running", 2);
  const Json before = read_json(folder / "receipt.json");
  ASSERT_GT(before["fp8"]["gemms"][0]["ran_fp8"], 0);
  s.resume = "latest";
  const auto resumed = start(s);
  write_receipt(*resumed, folder, "done", 0);
  const Json kept = read_json(folder / "receipt.json");
  for (const char* name : {"fp8", "operations", "checkpoints", "memory_peak_bytes"})
    EXPECT_EQ(kept[name], before[name]) << name;
  EXPECT_EQ(kept["status"], "done");
  EXPECT_EQ(kept["resumed"]["step"], 2);
  train_step(*resumed);
  write_receipt(*resumed, folder, "done", 1);
  EXPECT_LT(read_json(folder / "receipt.json")["fp8"]["gemms"][0]["ran_fp8"],
            before["fp8"]["gemms"][0]["ran_fp8"]);
}

// What a rollback does where the run has not saved since it resumed in another precision.
TEST_F(Fp8, GoingBackToACheckpointOfAnotherPrecisionStartsTheScalesAnew) {
  auto s = settings();
  s.mixed_precision = config::Precision::kBf16;
  const auto plain = start(s);
  steps(*plain, 2);
  save(*plain, "run", false, nullptr);
  s.mixed_precision = config::Precision::kFp8;
  s.resume = "latest";
  const auto run = start(s), other = start(s);
  const double first = train_step(*run).loss;
  steps(*run, 3);
  restore(*run, run->resumed.from);
  for (const auto& [name, values] : run->trained.fp8->state())
    EXPECT_TRUE(values.eq(name.starts_with("factor.") ? 1 : 0).all().item<bool>()) << name;
  run->progress = other->progress;
  open_loader(run->settings, run->world, run->progress, run->data);
  EXPECT_EQ(train_step(*run).loss, first);
}

TEST_F(Fp8, DelayedScalingThatStartsLateIsNotJudgedAtOnce) {
  auto s = settings();
  s.mixed_precision = config::Precision::kBf16;
  const auto plain = start(s);
  steps(*plain, 5);
  save(*plain, "run", false, nullptr);
  s.mixed_precision = config::Precision::kFp8;
  s.fp8_margin = 1;
  s.resume = "latest";
  const auto run = start(s);
  steps(*run, 2);
  EXPECT_EQ(run->trained.fp8->warnings(), 0);
}

// --- metrics

TEST_F(Fp8, MetricsHaveTheStatsThatAreWatched) {
  auto s = settings();
  s.fp8_stats_freq = 2;
  const auto run = start_faulty(s);
  const fs::path path = folder / "metrics.jsonl";
  const auto sink = monitor::make_jsonl_sink(path, 0);
  for (int step = 1; step <= 4; ++step) {
    if (step == 4) faults.gradient = [](at::Tensor& dy) { dy[0][0] = NAN; };
    sink->on_step(train_step(*run));
  }
  EXPECT_EQ(sink->failures(), 0);
  std::vector<Json> records;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) records.push_back(Json::parse(line));
  ASSERT_EQ(records.size(), 4u);

  EXPECT_EQ(records[0]["fp8/layers"], kLayers);
  EXPECT_EQ(records[0]["fp8/fallbacks"], 0);
  EXPECT_FALSE(records[0].contains("fp8/tensors") || records[0].contains("fp8/fwd_scale"));

  const Json& record = records[1];
  ASSERT_EQ(record["fp8/tensors"].size(), 3u * kLayers);
  double log_scale[2] = {}, amax = 0, underflow = 0, sqnr = 200;
  for (const Json& t : record["fp8/tensors"]) {
    log_scale[t["tensor"] == "gradient"] += std::log(t["scale"].get<double>());
    amax = std::max(amax, t["amax"].get<double>());
    underflow = std::max(underflow, t["underflow_percent"].get<double>());
    sqnr = std::min(sqnr, t["sqnr_db"].get<double>());
    EXPECT_EQ(t["nan"], 0);
  }
  EXPECT_NEAR(std::log(record["fp8/fwd_scale"].get<double>()), log_scale[0] / 16, 1e-9);
  EXPECT_NEAR(std::log(record["fp8/bwd_scale"].get<double>()), log_scale[1] / 8, 1e-9);
  EXPECT_EQ(record["fp8/amax"], amax);
  EXPECT_EQ(record["fp8/underflow"], underflow);
  EXPECT_EQ(record["fp8/sqnr_db"], sqnr);
  EXPECT_TRUE(record.contains("fp8/saturation"));
  EXPECT_FALSE(record.contains("train/skipped"));

  EXPECT_EQ(records[3]["train/skipped"], true);
  EXPECT_TRUE(records[3]["train/grad_norm"].is_null());  // JSON has no NaN
  bool named = false;
  for (const Json& t : records[3]["fp8/tensors"])
    named |= t["layer"] == "h.1.mlp.c_fc" && t["nan"] == 1 && t["trouble"] == "1 NaN";
  EXPECT_TRUE(named);
}

}  // namespace
}  // namespace octavo::train
