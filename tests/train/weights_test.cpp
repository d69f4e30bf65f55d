// Weights that do not fit the model are refused, whatever the direction in which they do not fit.

#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "train/model_factory.h"
#include "train/state/persist.h"
#include "train/step.h"
#include "train/tiny_run.h"

namespace octavo::train {
namespace {

class Weights : public TrainTest {
 protected:
  // The settings of a run whose first step is in a checkpoint.
  config::Settings saved() { return saved_run().first; }
  // A Hugging Face folder with the run's weights and one tensor more.
  fs::path export_with(const train::Run& run, const std::string& name, const at::Tensor& tensor) {
    const fs::path model = folder / "model";
    fs::create_directories(model);
    write_file_atomic(model / "config.json", run.trained.model->hugging_face_config().dump());
    auto tensors = run.trained.model->to_hugging_face();
    tensors.emplace_back(name, tensor);
    checkpoint::write_safetensors(model / "model.safetensors", tensors, {});
    return model;
  }
};

template <class F>
std::string refusal_text(const F& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    return error.what();
  }
  return "";
}

TEST_F(Weights, ACheckpointOfADeeperModelIsRefused) {
  auto s = saved();
  s.resume = "latest";
  EXPECT_EQ(start(s)->progress.step, 1);
  for (const int64_t layers : {1, 3}) {
    s.n_layer = layers;
    const std::string text = refusal_text([&] { start(s); });
    EXPECT_NE(
        text.find(str("wanted the model of that run (n_layer 2), found another one (", layers)),
        std::string::npos)
        << text;
  }
}

TEST_F(Weights, ACheckpointOnOtherDataIsRefused) {
  auto s = saved();
  s.resume = "latest";
  write_file_atomic(folder / "other.txt", std::string(20000, 'x'));
  s.dataset = {(folder / "other.txt").string()};
  EXPECT_NE(refusal_text([&] { start(s); }).find("other data"), std::string::npos);
}

TEST_F(Weights, AnUntiedHeadIsRefusedAndATiedOneIsNot) {
  const auto run = start(settings());
  const at::Tensor embedding =
      run->trained.model->head()->master.detach().narrow(0, 0, 257).clone();
  const fs::path tied = export_with(*run, "lm_head.weight", embedding);
  EXPECT_NO_THROW(load_weights(*run->trained.model, tied));
  const fs::path untied = export_with(*run, "lm_head.weight", embedding + 1);
  EXPECT_NE(refusal_text([&] { load_weights(*run->trained.model, untied); }).find("lm_head.weight"),
            std::string::npos);
}

TEST_F(Weights, ALayerThatTheConfigDoesNotNameIsRefused) {
  const auto run = start(settings());
  const fs::path model = export_with(*run, "transformer.h.2.ln_1.weight", at::ones({32}));
  EXPECT_NE(refusal_text([&] { load_weights(*run->trained.model, model); }).find("h.2.ln_1"),
            std::string::npos);
}

}  // namespace
}  // namespace octavo::train
