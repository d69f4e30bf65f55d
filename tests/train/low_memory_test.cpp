// Runs with masters, moments and gradients in fewer than 32 bits.

#include <gtest/gtest.h>

#include "base/json.h"
#include "base/log.h"
#include "train/reporting/receipt.h"
#include "train/state/persist.h"
#include "train/step.h"
#include "train/tiny_run.h"

namespace octavo::train {
namespace {

using config::StateType;

class LowMemoryRun : public TrainTest {
 protected:
  config::Settings low(StateType master, StateType moments, StateType gradients) const {
    config::Settings s = settings();
    s.mixed_precision = config::Precision::kBf16;
    s.master_dtype = master;
    s.moment_dtype = moments;
    s.gradient_dtype = gradients;
    s.gradient_accumulation_steps = 2;
    s.checkpoint_dir = (folder / "checkpoints").string();
    return s;
  }
  config::Settings lowest() const {
    return low(StateType::kBf16, StateType::kFp8, StateType::kBf16);
  }
  static std::vector<at::Tensor> weights(const train::Run& run) {
    std::vector<at::Tensor> all;
    for (const auto& p : run.trained.model->params()) all.push_back(p->master.detach().clone());
    for (const auto& named : run.trained.optimizer->state()) all.push_back(named.second.clone());
    return all;
  }
};

TEST_F(LowMemoryRun, ResumesBitForBitInEveryCombination) {
  for (const auto master : {StateType::kFp32, StateType::kBf16})
    for (const auto moments : {StateType::kFp32, StateType::kBf16, StateType::kFp8})
      for (const auto gradients : {StateType::kFp32, StateType::kBf16}) {
        config::Settings s = low(master, moments, gradients);
        SCOPED_TRACE(str(name_of(master), " ", name_of(moments), " ", name_of(gradients)));
        fs::remove_all(folder / "checkpoints");
        const auto run = start(s);
        for (int i = 0; i < 2; ++i) train_step(*run);
        save(*run, "run", false, nullptr);
        s.resume = "latest";
        const auto warnings = warning_count();
        const auto resumed = start(s);
        EXPECT_EQ(warning_count(), warnings);
        for (int i = 0; i < 2; ++i)
          EXPECT_EQ(train_step(*resumed).loss, train_step(*run).loss) << i;
        const auto wanted = weights(*run), found = weights(*resumed);
        ASSERT_EQ(found.size(), wanted.size());
        for (size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(at::equal(found[i], wanted[i])) << i;
      }
}

TEST_F(LowMemoryRun, LearnsAsWell) {
  const auto final_loss = [](train::Run& run) {
    double loss = 0;
    for (int i = 0; i < 40; ++i) loss = train_step(run).loss;
    return loss;
  };
  const double full = final_loss(*start(low(StateType::kFp32, StateType::kFp32, StateType::kFp32)));
  EXPECT_LT(full, 3);  // from 5.5
  EXPECT_NEAR(final_loss(*start(lowest())), full, 0.1 * full);
}

TEST_F(LowMemoryRun, OtherTypesAreConvertedAndSaid) {
  config::Settings s = low(StateType::kFp32, StateType::kFp32, StateType::kFp32);
  const auto run = start(s);
  double loss = 0;
  for (int i = 0; i < 10; ++i) loss = train_step(*run).loss;
  save(*run, "run", false, nullptr);
  s = lowest();
  s.resume = "latest";
  const auto warnings = warning_count();
  const auto resumed = start(s);
  EXPECT_EQ(warning_count() - warnings, 2);  // masters, moments
  EXPECT_LT(train_step(*resumed).loss, loss);
}

TEST_F(LowMemoryRun, TheReceiptHasBytesPerParameter) {
  const auto run = start(lowest());
  train_step(*run);
  write_receipt(*run, folder, "done", 1);
  const Json receipt = read_json(folder / "receipt.json");
  EXPECT_EQ(receipt["optimizer"]["master_dtype"], "bf16");
  EXPECT_EQ(receipt["optimizer"]["moment_dtype"], "fp8");
  EXPECT_EQ(receipt["optimizer"]["gradient_dtype"], "bf16");
  // Width 32: vectors, in FP32, are 3% of so small a model.
  EXPECT_NEAR(receipt["optimizer"]["bytes_per_parameter"].get<double>(), 6.06, 0.4);
}

// The gradients' memory is free during the forward pass.
TEST_F(LowMemoryRun, GradientsAreFreeBetweenSteps) {
  const auto run = start(lowest());
  for (int i = 0; i < 2; ++i) {
    train_step(*run);
    for (const auto& p : run->trained.model->params())
      EXPECT_EQ(p->grad.defined(), p->master.dim() < 2) << p->name;
  }
}

}  // namespace
}  // namespace octavo::train
