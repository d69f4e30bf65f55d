// Checkpoints as Hugging Face folders.

#include "train/export.h"

#include "base/error.h"
#include "checkpoint/hf.h"
#include "checkpoint/safetensors.h"
#include "train/folder_check.h"
#include "train/model_factory.h"
#include "train/persist.h"
#include "train/step.h"
#include "train/tiny_run.h"

namespace octavo::train {
namespace {

class Export : public TrainTest {
 protected:
  // What to export: the first step of a run.
  config::Settings saved() {
    auto [s, run] = saved_run();
    run_ = std::move(run);
    s.checkpoint = "latest";
    s.output = (folder / "export").string();
    return s;
  }
  bool nothing_left() const {
    if (fs::exists(folder / "export")) return false;
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().filename().string().starts_with(".tmp-")) return false;
    return true;
  }
  std::unique_ptr<train::Run> run_;
};

template <class F>
ExitCode code_of(const F& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  return ExitCode::kOk;
}

TEST_F(Export, OfACheckpointHasItsMastersRoundedAndReadsBack) {
  const auto s = saved();
  const ExportReport report = export_model(s, 20000);
  EXPECT_LE(report.difference, 0.005);
  EXPECT_GT(report.source_loss, 1);
  const auto files = checkpoint::open_hf_model(s.output);
  EXPECT_GT(files.shards.size(), 1);
  for (const auto& [name, master] : run_->model->to_hugging_face())
    EXPECT_TRUE(at::equal(files.tensor(name), master.to(at::kBFloat16))) << name;
  EXPECT_EQ(files.config.at("dtype"), "bfloat16");
  EXPECT_TRUE(check_folder(s.output).problems.empty());
}

TEST_F(Export, AnOutputWithSomethingInItIsRefused) {
  const auto s = saved();
  fs::create_directory(s.output);
  write_file_atomic(fs::path(s.output) / "mine.txt", "precious");
  EXPECT_EQ(code_of([&] { export_model(s); }), ExitCode::kUsage);
  EXPECT_EQ(read_file(fs::path(s.output) / "mine.txt", 100), "precious");
  fs::remove(fs::path(s.output) / "mine.txt");
  EXPECT_EQ(code_of([&] { export_model(s); }), ExitCode::kOk);  // an empty one is filled
}

TEST_F(Export, GptTwoHasNoFp8Format) {
  auto s = saved();
  for (const auto format : {config::ExportFormat::kFp8Block, config::ExportFormat::kFp8Channel}) {
    s.export_format = format;
    EXPECT_EQ(code_of([&] { export_model(s); }), ExitCode::kUsage);
    EXPECT_TRUE(nothing_left());
  }
}

TEST_F(Export, ABrokenModelIsNotHandedOn) {
  auto s = saved();
  {
    const at::NoGradGuard no_grad;
    run_->model->params().front()->master[3][3] = std::numeric_limits<float>::quiet_NaN();
  }
  run_->progress.step = 2;
  save(*run_, "broken", false, nullptr);
  EXPECT_NE(code_of([&] { export_model(s); }), ExitCode::kOk);
  EXPECT_TRUE(nothing_left());
}

TEST_F(Export, AFolderIsCheckedWithoutReadingItsWeights) {
  const auto s = saved();
  export_model(s);
  auto tensors = run_->model->to_hugging_face();
  const fs::path weights = fs::path(s.output) / "model.safetensors";
  tensors.pop_back();
  tensors.front().second = at::zeros({3, 3});
  tensors.emplace_back("transformer.h.9.ln_1.weight", at::ones({32}));
  checkpoint::write_safetensors(weights, tensors, {});
  const auto problems = check_folder(s.output).problems;
  ASSERT_EQ(problems.size(), 2);  // unknown tensors are not looked for while others are missing
  EXPECT_NE(problems[0].find("ln_f.bias"), std::string::npos) << problems[0];
  EXPECT_NE(problems[1].find("wte.weight"), std::string::npos) << problems[1];
  tensors = run_->model->to_hugging_face();
  tensors.emplace_back("transformer.h.9.ln_1.weight", at::ones({32}));
  checkpoint::write_safetensors(weights, tensors, {});
  ASSERT_EQ(check_folder(s.output).problems.size(), 1);
  EXPECT_NE(check_folder(s.output).problems[0].find("h.9.ln_1"), std::string::npos);
}

}  // namespace
}  // namespace octavo::train
