// What an evaluation counts, and which data it takes.

#include "train/evaluate.h"

#include <chrono>
#include <optional>
#include <thread>

#include "base/signals.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/folders.h"
#include "data/prepare.h"
#include "eval/hellaswag.h"
#include "expect_failure.h"
#include "tokenizer/fixtures.h"
#include "train/loop.h"
#include "train/tiny_run.h"

namespace octavo::train {
namespace {

class Evaluate : public TrainTest {};

// The last samples are part of a batch for most batch sizes.
TEST_F(Evaluate, EveryTokenCountsWhateverTheBatch) {
  auto [s, run] = saved_run();
  const auto count = static_cast<int64_t>(data::sample_count(*run->data.val, s.max_seq_length));
  ASSERT_NE(count % 8, 0);
  ASSERT_NE(count % 5, 0);
  s.checkpoint = "latest";
  const Loaded loaded = load_model(s);
  double loss = 0;
  for (const int64_t rows : {int64_t{1}, int64_t{5}, int64_t{8}, count, count + 7}) {
    s.batch_size = rows;
    const auto whole = evaluate_model(loaded, s);
    EXPECT_EQ(whole.tokens, count * s.max_seq_length) << rows;
    if (rows == 1) loss = whole.val_loss;
    EXPECT_NEAR(whole.val_loss, loss, 1e-5) << rows;
    run->settings.batch_size = rows;
    run->settings.eval_batches = int64_t{1} << 40;
    run->batching.eval_samples = 0;
    EXPECT_EQ(evaluate(*run).tokens, count * s.max_seq_length) << rows;
  }
  s.batch_size = 5;
  s.eval_limit = 2;
  EXPECT_EQ(evaluate_model(loaded, s).tokens, 2 * 5 * s.max_seq_length);
  // There are no positions beyond.
  config::Settings longer = s;
  longer.max_seq_length = loaded.model->context() + 1;
  expect_failure(ExitCode::kUsage, "longest sequence", [&] { evaluate_model(loaded, longer); });
}

// What generate, eval and export load.
TEST_F(Evaluate, LatestAndBestAreOfTheRunThatTheSettingsName) {
  const auto first = saved_run();
  config::Settings s = first.first;
  const double loss = 1;
  save(*first.second, "saved", true, &loss);
  const auto later = start(s);
  train_step(*later);
  train_step(*later);
  save(*later, "later", true, &loss);
  for (const char* what : {"latest", "best"}) {
    s.checkpoint = what;
    s.run_name = "";
    EXPECT_EQ(fs::path(load_model(s).source).parent_path().filename(), "later") << what;
    s.run_name = "saved";
    EXPECT_EQ(fs::path(load_model(s).source).parent_path().filename(), "saved") << what;
  }
  s.run_name = "none";
  expect_failure(ExitCode::kUsage, "wanted a checkpoint of run", [&] { load_model(s); });
}

TEST_F(Evaluate, DataOfAnotherTokenizerIsRefused) {
  config::Settings s = saved_run().first;
  Json file = tokenizer::small_file();
  file["added_tokens"] = Json::array({tokenizer::added_token(256, "<|endoftext|>")});
  write_file_atomic(folder / "tokenizer.json", file.dump());
  data::PrepareOptions options;
  options.inputs = {folder / "text.txt"};
  options.output = folder / "other";
  options.tokenizer = (folder / "tokenizer.json").string();
  options.quiet = true;
  data::prepare(options);
  s.checkpoint = "latest";
  s.dataset = {(folder / "other").string()};
  s.tokenizer = "";
  const Loaded loaded = load_model(s);
  expect_failure(ExitCode::kUsage, "made with", [&] { evaluate_model(loaded, s); });
  s.tokenizer = options.tokenizer;
  expect_failure(ExitCode::kUsage, "another tokenizer", [&] { evaluate_model(loaded, s); });
  s.dataset = {(folder / "text.txt").string()};
  s.tokenizer = "";
  EXPECT_GT(evaluate_model(loaded, s).tokens, 0);
}

// One row of HellaSwag that fits a context of 16 bytes.
std::string hellaswag_row(int label, const std::string& last_ending) {
  return str(R"({"activity_label":"A","ctx_a":"line","ctx_b":"","endings":["1","of","zq",")",
             last_ending, R"("],"label":)", label, "}\n");
}

// The steps after it are those of a run that was never asked.
TEST_F(Evaluate, HellaSwagDuringTrainingLeavesTheRunAlone) {
  auto s = settings();
  const fs::path rows = folder / "rows.jsonl";
  s.eval_hellaswag_rows = 3;
  write_file_atomic(rows, hellaswag_row(0, "x") + hellaswag_row(1, "y") + hellaswag_row(2, "z") +
                              hellaswag_row(3, "w"));
  eval::check_hellaswag_file(rows);
  const auto asked = start(s), left_alone = start(settings());
  asked->data.hellaswag = rows;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(train_step(*asked).loss, train_step(*left_alone).loss) << i;
    const auto record = evaluate_hellaswag(*asked);
    ASSERT_TRUE(record.has_value());
    EXPECT_EQ(record->rows, 3);
    EXPECT_EQ(record->step, i + 1);
    EXPECT_GE(record->acc_norm, 0);
    EXPECT_LE(record->acc_norm, 1);
  }
}

TEST_F(Evaluate, HellaSwagThatCannotBeAskedEndsNoRun) {
  auto s = settings();
  const auto run = start(s);
  run->data.hellaswag = folder / "rows.jsonl";
  write_file_atomic(run->data.hellaswag,
                    hellaswag_row(0, "an ending that is longer than the model"));
  train_step(*run);
  EXPECT_FALSE(evaluate_hellaswag(*run).has_value());
  s.eval_hellaswag = (folder / "none.jsonl").string();
  s.run_name = "none";
  s.runs_dir = (folder / "runs").string();
  s.checkpoint_dir = (folder / "checkpoints").string();
  expect_failure(ExitCode::kUsage, "eval_hellaswag: wanted a file of rows",
                 [&] { assemble(s, /*writes=*/true); });
  write_file_atomic(folder / "no.jsonl", "{\"text\": \"x\"}\n");
  expect_failure(ExitCode::kDamaged, "no.jsonl:1",
                 [&] { eval::check_hellaswag_file(folder / "no.jsonl"); });
}

// No number is greater than another: the first ending would win every time, a quarter of the rows.
TEST_F(Evaluate, ScoresThatAreNoNumbersAreNoAccuracy) {
  const auto run = start(settings());
  run->data.hellaswag = folder / "rows.jsonl";
  write_file_atomic(run->data.hellaswag, hellaswag_row(0, "x"));
  EXPECT_TRUE(evaluate_hellaswag(*run).has_value());
  run->trained.model->params().back()->master[3] = NAN;
  EXPECT_FALSE(evaluate_hellaswag(*run).has_value());
  expect_failure(ExitCode::kGuard, "no numbers", [&] {
    eval::hellaswag(
        *run->trained.engine, *run->trained.model, *run->data.tokenizer, run->data.hellaswag, 0,
        [](const eval::HellaSwagRow&) {}, false);
  });
}

// And not a save that failed.
TEST_F(Evaluate, TheBestLossIsThatOfBestModel) {
  auto s = settings();
  s.checkpoint_dir = (folder / "checkpoints").string();
  s.run_name = "run";
  const auto run = start(s);
  const double good = 2, better = 1;
  train_step(*run);
  EXPECT_EQ(best_model_loss(*run), std::nullopt);
  start_save(*run, s.run_name, true, &good);
  EXPECT_EQ(best_model_loss(*run), good);  // whether it has ended or not
  finish_saves(*run);
  EXPECT_EQ(best_model_loss(*run), good);
  train_step(*run);
  const auto& weight = run->trained.model->params().back()->master;
  const at::Tensor sound = weight.clone();
  weight.fill_(NAN);
  start_save(*run, s.run_name, true, &better);  // is refused
  EXPECT_EQ(best_model_loss(*run), good);
  weight.copy_(sound);
  save(*run, s.run_name, false, nullptr);
  s.resume = "latest";
  EXPECT_EQ(start(s)->progress.best_model_loss, good);

  const auto blocked = start(settings());
  blocked->settings.checkpoint_dir = s.checkpoint_dir;
  write_file_atomic(folder / "checkpoints/blocked", "no folder");
  start_save(*blocked, "blocked", true, &good);
  finish_saves(*blocked);
  EXPECT_EQ(best_model_loss(*blocked), std::nullopt);
}

// Whether the save in progress succeeds is not known when the next evaluation ends.
TEST_F(Evaluate, BestModelIsChosenOnceTheSaveBeforeHasEnded) {
  auto s = settings();
  s.checkpoint_dir = (folder / "checkpoints").string();
  const fs::path own = folder / "checkpoints/run", aside = folder / "aside";
  const auto run = start(s);
  const auto start_after_a_step = [&](double loss) {
    train_step(*run);
    start_save(*run, "run", true, &loss);
  };
  start_after_a_step(2);
  start_after_a_step(2.5);
  EXPECT_TRUE(finish_saves(*run));
  EXPECT_EQ(best_model_loss(*run), 2.0);
  fs::rename(own, aside);
  write_file_atomic(own, "no folder");
  start_after_a_step(1);
  EXPECT_FALSE(finish_saves(*run));
  fs::remove(own);
  fs::rename(aside, own);
  train_step(*run);
  const double loss = 1.5;
  save(*run, "run", true, &loss);
  EXPECT_EQ(checkpoint::best_val_loss(own), loss);
}

TEST_F(Evaluate, GoingBackNamesWhatWillBeReplaced) {
  auto s = settings();
  s.checkpoint_dir = (folder / "checkpoints").string();
  s.run_name = "run";
  const auto run = start(s);
  for (const double loss : {3.0, 2.0}) {
    train_step(*run);
    save(*run, "run", true, &loss);
  }
  const auto said_from = [&](const char* from) {
    s.resume = from;
    testing::internal::CaptureStderr();
    start(s);
    return testing::internal::GetCapturedStderr();
  };
  const std::string said = said_from("step-00000001");
  EXPECT_NE(said.find("goes back to step 1, and has step-00000002 (best_model) behind it"),
            said.npos)
      << said;
  EXPECT_EQ(said_from("latest").find("goes back"), std::string::npos);

  // The step that best_model names is saved again, with a worse loss: the next one has that to
  // beat.
  s.resume = "step-00000001";
  const auto back = start(s);
  EXPECT_EQ(back->progress.best_model_loss, 2.0);
  train_step(*back);
  const double worse = 2.5, better = 2.2;
  start_save(*back, "run", true, &worse);
  EXPECT_TRUE(finish_saves(*back));
  train_step(*back);
  save(*back, "run", true, &better);
  EXPECT_EQ(checkpoint::best_val_loss(folder / "checkpoints/run"), better);
}

// A disk that does not answer is no disk without a best_model.
TEST_F(Evaluate, ABestModelThatCannotBeLookedForKeepsItsLoss) {
  const fs::path loop = folder / "loop";
  fs::create_symlink(loop, loop);
  expect_failure(ExitCode::kEnvironment, "cannot examine",
                 [&] { checkpoint::best_val_loss(loop); });
  const auto run = start(settings());
  EXPECT_EQ(best_loss_on_disk(run->world, loop, 2.0), 2.0);
  EXPECT_EQ(best_loss_on_disk(run->world, folder / "empty", 2.0), std::nullopt);
}

// As of a run that comes from a bucket, on another machine: there is no best_model here.
TEST_F(Evaluate, OlderCheckpointsKnowTheBestLossAsTheLowestOne) {
  auto [s, run] = saved_run();
  s.run_name = "saved";
  s.resume = "latest";
  run->progress.has_best = true;
  run->progress.best_val_loss = 2;
  save(*run, "saved", false, nullptr);
  EXPECT_EQ(start(s)->progress.best_model_loss, std::nullopt);  // null is no damage
  const fs::path checkpoints = folder / "checkpoints/saved";
  checkpoint::State state = checkpoint::load(checkpoints / "step-00000001");
  EXPECT_TRUE(state.extra.at("best_model_loss").is_null());
  state.extra.erase("best_model_loss");
  ++state.step;
  checkpoint::save(checkpoints, state, {});
  EXPECT_EQ(start(s)->progress.best_model_loss, 2.0);
}

// The save that is to move best_model is in progress when the next one begins, and fails.
TEST_F(Evaluate, ASaveSaysNoBestLossThatIsOnlyHopedFor) {
  auto s = settings();
  s.checkpoint_dir = (folder / "checkpoints").string();
  const fs::path own = folder / "checkpoints/run";
  fs::create_directories(own / "best_model");  // no link, so that it cannot be moved
  const auto run = start(s);
  train_step(*run);
  std::optional<checkpoint::DirectoryLock> lock(std::in_place, own);
  const double loss = 2;
  start_save(*run, "run", true, &loss);
  std::thread opens([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    lock.reset();
  });
  start_save(*run, "run", false, nullptr);
  opens.join();
  EXPECT_TRUE(finish_saves(*run));
  const checkpoint::State saved = checkpoint::open(own / "step-00000001");
  EXPECT_TRUE(saved.extra.value("best_model_loss", Json()).is_null());
}

// A run whose last step is saved, and whose evaluation of it was left out by a stop.
struct LeftOut : Evaluate {
  config::Settings left_out() const {
    auto s = settings();
    s.run_name = "left_out";
    s.runs_dir = (folder / "runs").string();
    s.checkpoint_dir = (folder / "checkpoints").string();
    s.num_threads = 1;
    s.max_steps = 1;
    s.eval_freq = 1;
    const auto run = start(s);
    train_step(*run);
    run->progress.evaluation_left_out = true;
    save(*run, s.run_name, false, nullptr);
    s.resume = "latest";
    return s;
  }
  void TearDown() override { request_stop(nullptr); }
  bool is_left_out(int64_t step) const {
    const fs::path saved = folder / "checkpoints/left_out" / str("step-0000000", step);
    return checkpoint::open(saved).extra.contains("evaluation_left_out");
  }
};

TEST_F(LeftOut, AStopInTheLastEvaluationIsNoEnd) {
  const config::Settings s = left_out();
  request_stop("a test");
  EXPECT_EQ(train(s), static_cast<int>(ExitCode::kStopped));
  EXPECT_TRUE(is_left_out(1));
  request_stop(nullptr);
  EXPECT_EQ(train(s), 0);
  EXPECT_FALSE(is_left_out(1));
}

// The lowest loss of the run was of a save that failed: best_model names nothing.
TEST_F(LeftOut, AWorseEvaluationMovesBestModelWhereItNamesNone) {
  auto s = left_out();
  s.max_steps = 20;
  s.resume.clear();
  s.run_name = "worse";
  const auto run = start(s);
  for (int i = 0; i < 20; ++i) train_step(*run);
  run->progress.has_best = true;
  run->progress.best_val_loss = 0.01;
  save(*run, s.run_name, false, nullptr);
  s.resume = "latest";
  s.max_steps = 21;
  EXPECT_EQ(train(s), 0);
  EXPECT_EQ(fs::read_symlink(folder / "checkpoints/worse/best_model"), "step-00000021");
}

// Or samples and HellaSwag would wait for it, and it would never come.
TEST_F(LeftOut, AnEvaluationThatIsNoLongerAskedForIsForgotten) {
  auto s = left_out();
  s.max_steps = 2;
  s.eval_freq = 0;
  EXPECT_EQ(train(s), 0);
  EXPECT_FALSE(is_left_out(2));
}

}  // namespace
}  // namespace octavo::train
