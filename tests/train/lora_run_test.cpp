// Runs that train adapters beside a frozen model.

#include "train/lora_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/json.h"
#include "base/log.h"
#include "expect_failure.h"
#include "fp8/recipe_traits.h"
#include "train/reporting/receipt.h"
#include "train/state/persist.h"
#include "train/step.h"
#include "train/tiny_run.h"

namespace octavo::train {
namespace {

using config::Precision;

class LoraRun : public TrainTest {
 protected:
  config::Settings lora(Precision precision = Precision::kFp32) const {
    config::Settings s = settings();
    s.n_embd = 64;  // FP8 wants multiples of 16
    s.mixed_precision = precision;
    s.lora_rank = 4;
    s.lora_alpha = 12;
    s.gradient_accumulation_steps = 2;
    s.checkpoint_dir = (folder / "checkpoints").string();
    return s;
  }
  static std::vector<double> losses(train::Run& run, int steps) {
    std::vector<double> all;
    for (int i = 0; i < steps; ++i) all.push_back(train_step(run).loss);
    return all;
  }
  // What the layers multiply with, whatever it is kept as.
  static std::vector<at::Tensor> frozen(const train::Run& run) {
    std::vector<at::Tensor> all;
    for (const auto& p : run.trained.model->params()) all.push_back(p->weights().detach().clone());
    return all;
  }
  static std::vector<at::Tensor> trained(const train::Run& run) {
    std::vector<at::Tensor> all;
    for (const auto& p : run.trained.lora->params()) all.push_back(p->master.detach().clone());
    for (const auto& named : run.trained.optimizer->state()) all.push_back(named.second.clone());
    return all;
  }
  void expect_same_with_checkpointing(config::Settings s) const {
    const auto plain = start(s);
    s.gradient_checkpointing = true;
    const auto again = start(s);
    EXPECT_EQ(losses(*again, 6), losses(*plain, 6));
    EXPECT_EQ(different(trained(*again), trained(*plain)), std::vector<size_t>());
  }
  void expect_bitwise_resume(config::Settings s) const {
    fs::remove_all(folder / "checkpoints");
    s.lora_dropout = 0.3;
    const auto run = start(s);
    losses(*run, 3);
    save(*run, "run", false, nullptr);
    s.resume = "latest";
    const auto warnings = warning_count();
    const auto resumed = start(s);
    EXPECT_EQ(warning_count(), warnings);
    EXPECT_EQ(different(trained(*resumed), trained(*run)), std::vector<size_t>());
    EXPECT_EQ(losses(*resumed, 3), losses(*run, 3));
    EXPECT_EQ(different(trained(*resumed), trained(*run)), std::vector<size_t>());
  }
  // The indices of what differs in any bit.
  static std::vector<size_t> different(const std::vector<at::Tensor>& a,
                                       const std::vector<at::Tensor>& b) {
    std::vector<size_t> found;
    for (size_t i = 0; i < std::max(a.size(), b.size()); ++i)
      if (i >= a.size() || i >= b.size() || !at::equal(a[i], b[i])) found.push_back(i);
    return found;
  }
};

TEST_F(LoraRun, OnlyAdaptersChange) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp8})
    for (const auto base : {config::LoraBase::kBf16, config::LoraBase::kFp8}) {
      if (precision == Precision::kFp32 && base == config::LoraBase::kFp8) continue;
      SCOPED_TRACE(str(name_of(precision), " over ", name_of(base)));
      config::Settings s = lora(precision);
      s.lora_base = base;
      const auto run = start(s);
      const auto weights = frozen(*run), adapters = trained(*run);
      const auto seen = losses(*run, 30);
      EXPECT_LT(seen.back(), seen.front() - 0.2);  // the head is frozen and random
      EXPECT_EQ(different(frozen(*run), weights), std::vector<size_t>());
      EXPECT_EQ(different(trained(*run), adapters).size(), adapters.size());  // every one
      for (const auto& p : run->trained.model->params()) EXPECT_FALSE(p->grad.defined()) << p->name;
    }
}

// The base in FP8 is packed as it comes; the codes are those of a whole one, wherever it comes
// from.
TEST_F(LoraRun, AnFp8BaseIsThePackedBase) {
  config::Settings whole = settings();
  whole.n_embd = 64;
  whole.checkpoint_dir = (folder / "checkpoints").string();
  const auto run = start(whole);
  losses(*run, 2);
  const std::string saved = save(*run, "run", false, nullptr).string();
  for (const std::string& from : {std::string(), saved}) {
    SCOPED_TRACE(from);
    config::Settings s = lora(Precision::kBf16);
    s.init_from = from;
    const auto plain = start(s);
    s.lora_base = config::LoraBase::kFp8;
    const auto packed = start(s);
    for (const auto& layer : plain->trained.model->linears()) layer->weight->pack();
    EXPECT_EQ(different(frozen(*packed), frozen(*plain)), std::vector<size_t>());
    for (const auto& layer : packed->trained.model->linears())
      EXPECT_FALSE(layer->weight->master.defined()) << layer->name;
    EXPECT_TRUE(packed->trained.model->head()->master.defined());
  }
}

// b is zero at first, so a model with new adapters is the model.
TEST_F(LoraRun, BeginsWhereTheModelIs) {
  config::Settings s = lora();
  const auto adapted = start(s);
  s.lora_rank = 0;
  EXPECT_EQ(train_step(*adapted).loss, train_step(*start(s)).loss);
}

TEST_F(LoraRun, OnlyTargetsGetAdapters) {
  config::Settings s = lora();
  s.lora_target_modules = {"c_attn"};
  const auto run = start(s);
  EXPECT_EQ(run->trained.lora->modules().size(), 2);  // of two blocks
  EXPECT_EQ(run->trained.lora->params().size(), 4);
  s.lora_target_modules = {"c_atn"};
  expect_failure(ExitCode::kUsage, "did you mean 'c_attn'", [&] { start(s); });
}

// Losses and trained state of a run with checkpointing and one without.
TEST_F(LoraRun, CheckpointingChangesNothing) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16, Precision::kFp8}) {
    SCOPED_TRACE(name_of(precision));
    expect_same_with_checkpointing(lora(precision));
  }
}

// A block that runs again must drop what it dropped at first.
TEST_F(LoraRun, CheckpointingDropsTheSameInputs) {
  config::Settings s = lora();
  s.lora_dropout = 0.3;
  expect_same_with_checkpointing(s);
}

TEST_F(LoraRun, ResumesBitForBitWithDropout) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    SCOPED_TRACE(name_of(precision));
    expect_bitwise_resume(lora(precision));
  }
}

// Frozen weights are quantized by the factors that the checkpoint has.
TEST_F(LoraRun, ResumesBitForBitInFp8) {
  for (const fp8::Recipe recipe : fp8::kRecipes) {
    SCOPED_TRACE(name_of(recipe));
    config::Settings s = lora(Precision::kFp8);
    if (s.n_embd % fp8::traits_of(recipe).side_multiple != 0) continue;
    s.fp8_recipe = recipe;
    expect_bitwise_resume(s);
  }
}

// Without this the tests of dropout could pass with one that does nothing.
TEST_F(LoraRun, DropoutDrops) {
  config::Settings s = lora();
  const auto plain = losses(*start(s), 6);
  s.lora_dropout = 0.3;
  const auto dropped = losses(*start(s), 6);
  EXPECT_EQ(plain[0], dropped[0]);  // b is zero
  for (size_t i = 2; i < plain.size(); ++i) EXPECT_NE(plain[i], dropped[i]) << i;
}

TEST_F(LoraRun, ResumingWithOtherAdaptersIsRefused) {
  config::Settings s = lora();
  const auto run = start(s);
  train_step(*run);
  save(*run, "run", false, nullptr);
  s.resume = "latest";
  EXPECT_NO_THROW(start(s));
  config::Settings other = s;
  other.lora_rank = 8;
  expect_failure(ExitCode::kUsage, "lora_rank", [&] { start(other); });
  other = s;
  other.lora_target_modules = {"c_attn"};
  expect_failure(ExitCode::kUsage, "lora_target_modules", [&] { start(other); });
}

TEST_F(LoraRun, TheReceiptsSharesAddUpToOne) {
  for (const int64_t rank : {int64_t{2}, int64_t{16}}) {
    config::Settings s = lora(Precision::kFp8);
    s.lora_rank = rank;
    const auto run = start(s);
    train_step(*run);
    write_receipt(*run, folder, "done", 1);
    const Json receipt = read_json(folder / "receipt.json");
    double sum = 0, in_fp8 = 0, adapters = 0;
    for (const Json& gemm : receipt["fp8"]["gemms"]) {
      const double share = gemm["flops_share"];
      EXPECT_GE(share, 0) << gemm.dump();
      EXPECT_NE(gemm["gemm"], "weight gradient");  // frozen layers have none
      sum += share;
      if (gemm["recipe"] != "") in_fp8 += share;
      if (gemm["layer"] == "adapters") adapters += share;
      // Two passes. Nothing before the first layer is trained: nobody asks for its input gradient.
      const bool is_needed = gemm["layer"] != "h.0.attn.c_attn" || gemm["gemm"] == "forward";
      if (gemm["recipe"] != "") EXPECT_EQ(gemm["ran_fp8"], is_needed ? 2 : 0) << gemm.dump();
    }
    EXPECT_NEAR(sum, 1, 1e-9);
    const Json& part = receipt["lora"];
    EXPECT_GT(in_fp8, 0.2);
    EXPECT_NEAR(part["fp8_flops_share"].get<double>(), in_fp8, 1e-9);
    EXPECT_NEAR(part["flops_share"].get<double>(), adapters, 1e-9);
    EXPECT_NEAR(part["largest_fp8_gain"].get<double>(), 1 / (1 - in_fp8 / 2), 1e-9);
    // 2 blocks of 4 layers of width 64: rank (64 + 192) + rank (64 + 64) + 2 rank (64 + 256).
    EXPECT_EQ(part["parameters"], 2 * rank * (256 + 128 + 640));
    EXPECT_EQ(part["rank"], rank);
    EXPECT_EQ(part["modules"], 8);
    // The multiply-adds themselves: four GEMMs of frozen matrices, six of adapters' ones.
    const double matrices = 2 * 12 * 64 * 64, head = 320 * 64;
    const double attention = sum * receipt["flops_per_token"].get<double>() -
                             4 * (matrices + head) - 6 * part["parameters"].get<double>();
    EXPECT_GT(attention, 0);
    EXPECT_LT(attention, 2 * 12 * 16 * 64 + 1);  // 2 blocks, 12 x length x width
  }
}

}  // namespace
}  // namespace octavo::train
