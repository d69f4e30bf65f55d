// A checkpoint of adapters knows the weights that they were trained beside.

#include "train/state/base_model.h"

#include <string>

#include "base/json.h"
#include "base/log.h"
#include "expect_failure.h"
#include "export/export.h"
#include "train/evaluate.h"
#include "train/state/persist.h"
#include "train/step.h"
#include "train/tiny_run.h"

namespace octavo::train {
namespace {

class Base : public TrainTest {
 protected:
  config::Settings adapters(const std::string& checkpoints = "adapters") const {
    config::Settings s = settings();
    s.lora_rank = 4;
    s.checkpoint_dir = (folder / checkpoints).string();
    s.eval_limit = s.eval_batches;
    s.offline = true;
    return s;
  }
  // A whole model, trained a little; its checkpoint.
  std::string whole(const std::string& name, int64_t seed = 1) const {
    config::Settings s = settings();
    s.checkpoint_dir = (folder / name).string();
    s.seed = seed;
    const auto run = start(s);
    for (int i = 0; i < 5; ++i) train_step(*run);
    return save(*run, name, false, nullptr).string();
  }
  // Its weights as a Hugging Face folder.
  void export_to(const std::string& checkpoint, const fs::path& output) const {
    config::Settings s = settings();
    s.checkpoint = checkpoint;
    s.output = output.string();
    exporter::export_model(s);
  }
  // Trains adapters and saves them; the run.
  static std::unique_ptr<train::Run> trained(const config::Settings& s) {
    auto run = start(s);
    for (int i = 0; i < 5; ++i) train_step(*run);
    save(*run, "run", false, nullptr);
    return run;
  }
  // What is loaded from the checkpoint is the model that was trained; so is its export.
  void expect_loads(config::Settings s, train::Run& run) const {
    s.checkpoint = "latest";
    s.resume.clear();
    const double wanted = evaluate(run).val_loss;
    EXPECT_NEAR(evaluate_model(load_model(s), s).val_loss, wanted, 1e-5);
    s.output = (folder / "export").string();
    fs::remove_all(s.output);
    EXPECT_LE(exporter::export_model(s).difference, 0.005);
  }
  static Json kept(const config::Settings& s) {
    return checkpoint::load_resolved(s.checkpoint_dir, "latest").state.extra.at("lora");
  }
};

TEST_F(Base, OfACheckpointIsFoundAgain) {
  config::Settings s = adapters();
  s.init_from = whole("base");
  const auto run = trained(s);
  expect_loads(s, *run);
  EXPECT_EQ(kept(s)["base_weights"], "checkpoint");
  s.export_format = config::ExportFormat::kPeft;
  s.output = (folder / "peft").string();
  s.checkpoint = "latest";
  expect_failure(ExitCode::kUsage, "export_format bf16", [&] { exporter::export_model(s); });
  fs::rename(folder / "base", folder / "gone");
  expect_failure(ExitCode::kUsage, "put it back", [&] { load_model(s); });
}

// A link to the newest checkpoint means another one after the next save.
TEST_F(Base, OfACheckpointBehindALinkStaysTheSame) {
  config::Settings s = adapters();
  const fs::path base = whole("base");
  const fs::path link = folder / "newest";
  fs::create_directory_symlink(base, link);
  s.init_from = link.string();
  const auto run = trained(s);
  fs::remove(link);
  fs::create_directory_symlink(whole("other", 2), link);
  expect_loads(s, *run);
  s.resume = "latest";
  expect_failure(ExitCode::kUsage, "wanted the weights that its adapters", [&] { start(s); });
}

TEST_F(Base, AnotherOneIsRefusedAtAResume) {
  config::Settings s = adapters();
  s.init_from = whole("base");
  trained(s);
  s.resume = "latest";
  EXPECT_NO_THROW(start(s));
  s.init_from = whole("other", 2);
  expect_failure(ExitCode::kUsage, "wanted the weights that its adapters", [&] { start(s); });
  s.init_from.clear();
  expect_failure(ExitCode::kUsage, "random weights of seed", [&] { start(s); });
}

TEST_F(Base, ThatWasChangedInItsPlaceIsRefused) {
  config::Settings s = adapters();
  export_to(whole("base"), folder / "model");
  s.model_name = (folder / "model").string();
  s.n_layer = s.n_head = s.n_embd = 0;
  const auto run = trained(s);
  expect_loads(s, *run);
  fs::remove_all(folder / "model");
  export_to(whole("other", 2), folder / "model");
  s.checkpoint = "latest";
  expect_failure(ExitCode::kUsage, "wanted the weights", [&] { load_model(s); });
  s.resume = "latest";
  expect_failure(ExitCode::kUsage, "wanted the weights", [&] { start(s); });
}

// gpt2 is a shape here, whatever is published under that name.
TEST_F(Base, OfRandomWeightsIsDrawnAgain) {
  config::Settings s = adapters();
  s.model_name = "gpt2";
  const auto warnings = warning_count();
  const auto run = trained(s);
  EXPECT_EQ(warning_count(), warnings + 1);  // for fine-tuning a user wants the published ones
  expect_loads(s, *run);
  s.export_format = config::ExportFormat::kPeft;
  s.output = (folder / "peft").string();
  s.checkpoint = "latest";
  expect_failure(ExitCode::kUsage, "random weights", [&] { exporter::export_model(s); });
  s.resume = "latest";
  EXPECT_NO_THROW(start(s));
  s.seed += 1;  // would draw others
  expect_failure(ExitCode::kUsage, "wanted the weights that its adapters", [&] { start(s); });
}

TEST_F(Base, OnTheHubIsThatOfItsCommit) {
  const fs::path repo = folder / "hub" / "models--org--tiny";
  const std::string old_commit(40, 'a'), new_commit(40, 'b');
  fs::create_directories(repo / "snapshots");
  fs::create_directories(repo / "refs");
  export_to(whole("base"), repo / "snapshots" / old_commit);
  export_to(whole("other", 2), repo / "snapshots" / new_commit);
  for (const auto& commit : {old_commit, new_commit}) {
    fs::create_directories(repo / ".no_exist" / commit);
    write_file_atomic(repo / ".no_exist" / commit / "tokenizer.json", "");
  }
  write_file_atomic(repo / "refs" / "v1", old_commit);
  write_file_atomic(repo / "refs" / "main", new_commit);
  ::setenv("HF_HUB_CACHE", (folder / "hub").c_str(), 1);
  config::Settings s = adapters();
  s.model_name = "org/tiny";
  s.n_layer = s.n_head = s.n_embd = 0;
  s.revision = "v1";
  const auto run = trained(s);
  EXPECT_EQ(kept(s)["base"], "org/tiny");
  EXPECT_EQ(kept(s)["base_revision"], old_commit);
  s.revision = "main";  // nobody repeats it
  expect_loads(s, *run);
  s.output = (folder / "peft").string();
  s.export_format = config::ExportFormat::kPeft;
  s.checkpoint = "latest";
  EXPECT_LE(exporter::export_model(s).difference,
            0.005);  // reads the base by what adapter_config.json says
  EXPECT_EQ(read_json(folder / "peft" / "adapter_config.json")["revision"], old_commit);
  s.resume = "latest";
  expect_failure(ExitCode::kUsage, "at revision " + old_commit, [&] { start(s); });
  s.revision = "v1";
  EXPECT_NO_THROW(start(s));
  ::unsetenv("HF_HUB_CACHE");
}

TEST_F(Base, AdaptersAreNoBase) {
  config::Settings s = adapters();
  trained(s);
  s.init_from = checkpoint::resolve(s.checkpoint_dir, "latest").string();
  expect_failure(ExitCode::kUsage, "found one of adapters", [&] { start(s); });
}

}  // namespace
}  // namespace octavo::train
