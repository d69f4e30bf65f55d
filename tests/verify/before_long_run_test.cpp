#include "verify/before_long_run.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "base/file.h"
#include "scratch.h"
#include "train/dataset.h"
#include "train/random_run.h"
#include "verify/report.h"

namespace octavo::verify {
namespace {

// A run that nothing is wrong with.
LongRun good_run() {
  LongRun run;
  run.settings.use_fp8 = run.wants_fp8 = true;
  run.settings.model_name = "gpt2-xl";  // large enough for FP8 to pay
  run.settings.dataset = {"data"};
  run.settings.use_tensorboard = true;
  run.settings.max_steps = run.steps = 20'000;
  run.settings.batch_size = run.batch = 8;
  run.settings.gradient_accumulation_steps = 64;
  run.settings.checkpoint_freq = 250;
  run.settings.num_gpus = 1;
  run.step_samples = 512;
  run.warmup_steps = 700;
  run.data = {.state = RunData::State::kPrepared,
              .place = "data",
              .problem = "",
              .fingerprint = "0123456789abcdef",
              .tokenizer_problem = "",
              .tokens = 10'000'000'000,
              .val_tokens = 10'000'000,
              .samples = 9'700'000,
              .val_samples = 9700,
              .vocab = 50257};
  run.on_gpu = true;
  run.forecast = plan::forecast(run.settings);
  run.memory_limit = run.forecast->memory_limit;
  run.device = "H100";
  run.fp8_share = 0.7;
  run.checkpoint_folder = "checkpoints_fp8";
  run.checkpoint_bytes = 1.5e9;
  run.disk_free = 1e12;
  run.disk_rate = 1e9;
  run.earlier = {{"trial", true, true, true, 200, true, false},
                 {"base", true, true, false, 1000, true, false}};
  run.resume = ResumeRehearsal{true, "the model", "FP8", "", 6, true, true};
  return run;
}

Finding found(const LongRun& run, const std::string& id) {
  for (const Finding& f : judge_long_run(run))
    if (f.id == id) return f;
  ADD_FAILURE() << "no line " << id;
  return {};
}

TEST(BeforeLongRun, AGoodRunHasNothingToComplainAbout) {
  const auto findings = judge_long_run(good_run());
  for (const Finding& f : findings)
    EXPECT_TRUE(f.status == Status::kOk || f.status == Status::kNote)
        << f.id << ": " << name_of(f.status) << ", " << f.found;
  EXPECT_GE(findings.size(), 20u);
  EXPECT_EQ(exit_code(findings), 0);
}

struct Spoiled {
  const char* id;
  Status status;
  void (*spoil)(LongRun&);
};

TEST(BeforeLongRun, EachLineNoticesWhatItIsFor) {
  using State = RunData::State;
  const Spoiled cases[] = {
      {"config", Status::kFail, [](LongRun& r) { r.contradictions = {"a and b"}; }},
      {"secrets", Status::kFail, [](LongRun& r) { r.secret_lines = {3}; }},
      {"learning_rate", Status::kWarn, [](LongRun& r) { r.settings.learning_rate = 3e-3; }},
      {"learning_rate", Status::kWarn, [](LongRun& r) { r.starts_from_weights = true; }},
      {"learning_rate", Status::kFail, [](LongRun& r) { r.settings.learning_rate = 0; }},
      {"schedule", Status::kFail, [](LongRun& r) { r.steps = 1760, r.warmup_steps = 2000; }},
      {"schedule", Status::kWarn, [](LongRun& r) { r.warmup_steps = 8000; }},
      {"schedule", Status::kWarn, [](LongRun& r) { r.settings.min_lr_ratio = 1; }},
      {"schedule", Status::kNotChecked, [](LongRun& r) { r.steps = 0; }},
      {"max_grad_norm", Status::kWarn, [](LongRun& r) { r.settings.max_grad_norm = 0; }},
      {"FP8 share", Status::kFail, [](LongRun& r) { r.fp8_share = 0; }},
      {"FP8 share", Status::kWarn, [](LongRun& r) { r.fp8_share = 0.3; }},
      {"fp8_guard", Status::kWarn,
       [](LongRun& r) { r.settings.fp8_guard = config::Fp8Guard::kOff; }},
      {"data", Status::kFail, [](LongRun& r) { r.data.state = State::kNotGiven; }},
      {"data", Status::kFail, [](LongRun& r) { r.data.state = State::kMissing; }},
      {"data", Status::kFail, [](LongRun& r) { r.data.state = State::kDamaged; }},
      {"data", Status::kWarn, [](LongRun& r) { r.data.state = State::kNotPrepared; }},
      {"data", Status::kWarn, [](LongRun& r) { r.data.state = State::kOnHub; }},
      {"model", Status::kFail, [](LongRun& r) { r.model_problem = "no such folder"; }},
      {"model", Status::kWarn,
       [](LongRun& r) {
         r.settings.model_name = "someone/somewhat";
         r.model_problem = "not in the cache";
         r.may_download = true;
       }},
      {"tokenizer", Status::kFail, [](LongRun& r) { r.data.tokenizer_problem = "not here"; }},
      {"tokenizer", Status::kWarn,
       [](LongRun& r) { r.data.tokenizer_problem = "not here", r.may_download = true; }},
      {"enough of it", Status::kWarn, [](LongRun& r) { r.data.samples = 100'000; }},
      {"enough of it", Status::kWarn,
       [](LongRun& r) {
         r.sources = {{.name = "web", .epochs = 0.5}, {.name = "books", .epochs = 4.5}};
       }},
      {"enough of it", Status::kOk,
       [](LongRun& r) {
         r.sources = {{.name = "web", .epochs = 0.5}, {.name = "books", .epochs = 4}};
       }},
      {"enough of it", Status::kFail, [](LongRun& r) { r.data.samples = 0; }},
      {"enough of it", Status::kFail, [](LongRun& r) { r.steps = 0; }},
      {"enough of it", Status::kFail,
       [](LongRun& r) {
         r.settings.max_steps = r.steps;
         r.data.mixture_samples = static_cast<uint64_t>(r.steps * r.step_samples - 1);
       }},
      {"enough of it", Status::kOk,  // the last step has what is left
       [](LongRun& r) {
         r.settings.max_steps = 0;
         r.data.mixture_samples = static_cast<uint64_t>(r.steps * r.step_samples - 1);
       }},
      {"vocabulary", Status::kFail, [](LongRun& r) { r.data.vocab = 200'000; }},
      // The embedding has 50,304 rows; those behind 50,257 are padding.
      {"vocabulary", Status::kFail, [](LongRun& r) { r.data.vocab = 50'300; }},
      {"validation", Status::kWarn, [](LongRun& r) { r.settings.eval_freq = 0; }},
      {"validation", Status::kWarn, [](LongRun& r) { r.data.val_samples = 0; }},
      {"validation", Status::kWarn, [](LongRun& r) { r.settings.eval_freq = 30'000; }},
      {"validation", Status::kWarn, [](LongRun& r) { r.settings.eval_freq = 1; }},
      {"validation", Status::kWarn, [](LongRun& r) { r.settings.eval_batches = 1, r.batch = 1; }},
      {"memory", Status::kFail, [](LongRun& r) { r.memory_limit = 1e9; }},
      {"memory", Status::kWarn,
       [](LongRun& r) { r.memory_limit = 1e9, r.settings.auto_batch_size = true; }},
      {"memory", Status::kWarn,
       [](LongRun& r) { r.memory_limit = 1.01 * r.forecast->memory().total; }},
      {"time", Status::kNotChecked, [](LongRun& r) { r.on_gpu = false; }},
      {"disk", Status::kFail, [](LongRun& r) { r.disk_free = 1e9; }},
      {"disk", Status::kWarn, [](LongRun& r) { r.disk_free = 8e9; }},
      {"disk", Status::kFail,
       [](LongRun& r) { r.settings.keep_checkpoints = 0, r.disk_free = 2e10; }},
      {"disk", Status::kFail, [](LongRun& r) { r.disk_problem = "read-only"; }},
      {"resume", Status::kFail, [](LongRun& r) { r.resume->equal_losses = false; }},
      {"resume", Status::kFail, [](LongRun& r) { r.resume->equal_weights = false; }},
      {"resume", Status::kFail, [](LongRun& r) { r.resume = ResumeRehearsal{}; }},
      {"resume", Status::kNotChecked, [](LongRun& r) { r.resume.reset(); }},
      {"checkpoint_freq", Status::kWarn, [](LongRun& r) { r.settings.checkpoint_freq = 0; }},
      {"checkpoint_freq", Status::kWarn,
       [](LongRun& r) { r.settings.checkpoint_freq = 19'999, r.settings.checkpoint_minutes = 0; }},
      {"checkpoint_freq", Status::kOk, [](LongRun& r) { r.settings.checkpoint_freq = 19'999; }},
      {"checkpoint_freq", Status::kWarn,
       [](LongRun& r) { r.settings.checkpoint_freq = 0, r.settings.checkpoint_minutes = 0; }},
      {"checkpoint_freq", Status::kOk,
       [](LongRun& r) { r.settings.checkpoint_freq = 0, r.settings.checkpoint_minutes = 20; }},
      {"checkpoint_freq", Status::kWarn,
       [](LongRun& r) { r.settings.checkpoint_freq = 0, r.settings.checkpoint_minutes = 200; }},
      {"checkpoint_freq", Status::kWarn,
       [](LongRun& r) { r.settings.checkpoint_freq = 1, r.disk_rate = 1e7; }},
      {"keep_checkpoints", Status::kWarn, [](LongRun& r) { r.settings.keep_checkpoints = 1; }},
      {"folders", Status::kFail, [](LongRun& r) { r.checkpoints_there = 2; }},
      {"folders", Status::kFail, [](LongRun& r) { r.run_folder_there = true; }},
      {"watching", Status::kWarn, [](LongRun& r) { r.settings.use_tensorboard = false; }},
      {"short run", Status::kWarn, [](LongRun& r) { r.earlier.erase(r.earlier.begin()); }},
      {"short run", Status::kWarn, [](LongRun& r) { r.earlier[0].finite = false; }},
      {"BF16 baseline", Status::kWarn, [](LongRun& r) { r.earlier.pop_back(); }},
      {"BF16 baseline", Status::kWarn, [](LongRun& r) { r.earlier[1].steps = 20; }},
  };
  for (const Spoiled& c : cases) {
    LongRun run = good_run();
    c.spoil(run);
    const Finding f = found(run, c.id);
    EXPECT_EQ(f.status, c.status) << c.id << ": " << f.found;
    if (f.status == Status::kFail || f.status == Status::kWarn) {
      EXPECT_FALSE(f.fix.empty()) << c.id;
      EXPECT_FALSE(f.wanted.empty()) << c.id;
    }
  }
}

// Checkpoints that are due by the clock are counted, and judged, as those by steps.
TEST(BeforeLongRun, CheckpointMinutesCount) {
  const auto text = [](const LongRun& run, const std::string& id) { return found(run, id).found; };
  LongRun run = good_run();
  run.settings.checkpoint_freq = 0;
  EXPECT_TRUE(text(run, "disk").starts_with("1 checkpoint of ")) << text(run, "disk");
  EXPECT_TRUE(text(run, "checkpoint_freq").starts_with("only at the end"));
  run.settings.checkpoint_minutes = 20;
  EXPECT_TRUE(text(run, "disk").starts_with("5 checkpoints of ")) << text(run, "disk");
  EXPECT_TRUE(text(run, "checkpoint_freq").starts_with("every 20 minutes: 20 minutes apart"))
      << text(run, "checkpoint_freq");
  // Without a step time too: what is kept at most.
  run.on_gpu = false;
  EXPECT_TRUE(text(run, "disk").starts_with("at most 5 checkpoints of ")) << text(run, "disk");
  EXPECT_EQ(found(run, "checkpoint_freq").status, Status::kOk);

  // By default an hour at most, however many steps that is.
  run = good_run();
  run.settings.checkpoint_freq = 1'000'000;
  EXPECT_TRUE(text(run, "disk").starts_with("5 checkpoints of ")) << text(run, "disk");
  EXPECT_TRUE(text(run, "checkpoint_freq")
                  .starts_with("every 1000000 steps or 60 minutes (Young and Daly): 60 minutes"))
      << text(run, "checkpoint_freq");
  EXPECT_EQ(found(run, "checkpoint_freq").status, Status::kOk);
  run.settings.checkpoint_minutes = 0;
  EXPECT_TRUE(text(run, "disk").starts_with("1 checkpoint of ")) << text(run, "disk");
  EXPECT_EQ(found(run, "checkpoint_freq").status, Status::kWarn);
  run.settings.permanent_checkpoint_freq = run.steps / 10;
  EXPECT_TRUE(text(run, "disk").starts_with("11 checkpoints of ")) << text(run, "disk");
}

TEST(BeforeLongRun, CommandsNameTheConfigAndTheFlags) {
  LongRun run = good_run();
  run.config_file = "my runs/a.yaml";
  run.flags = " --fp8_recipe mxfp8";
  run.steps = 400;
  run.warmup_steps = 300;
  run.on_gpu = false;
  run.data.state = RunData::State::kNotPrepared;
  run.settings.run_name = "a";
  run.checkpoints_there = 1;
  run.earlier = {{"trial", true, true, true, 20, true, false}, {"a-2", {}, {}, {}, 1, true, {}}};
  const auto commands = [&](const std::string& id) { return found(run, id).commands; };
  using Commands = std::vector<std::string>;
  EXPECT_EQ(commands("schedule"),
            Commands{"octavo schedule 'my runs/a.yaml' --max_steps 400 --warmup_steps -1"});
  EXPECT_EQ(commands("data"), Commands{"octavo data prepare 'my runs/a.yaml' --output a-data"});
  EXPECT_EQ(commands("time"), Commands{"octavo plan 'my runs/a.yaml' --gpu h100 --num_gpus 8"});
  EXPECT_EQ(commands("folders"),
            (Commands{"octavo train 'my runs/a.yaml' --fp8_recipe mxfp8 --resume latest",
                      "octavo train 'my runs/a.yaml' --fp8_recipe mxfp8 --run_name a-3"}));
  EXPECT_EQ(commands("short run"), Commands{"octavo train 'my runs/a.yaml' --fp8_recipe mxfp8 "
                                            "--max_steps 100 --run_name trial-2"});
  EXPECT_EQ(commands("BF16 baseline"), Commands{"octavo compare 'my runs/a.yaml' --fp8_recipe "
                                                "mxfp8 --max_steps 400 --run_name compare-a"});
  EXPECT_EQ(commands("stops and requeueing").front(),
            "octavo launch --auto_resume -- train 'my runs/a.yaml' --fp8_recipe mxfp8");
  // Without a name launch would not know which run to continue, and no folder is the run's yet.
  run.settings.run_name = "";
  run.checkpoints_there = 0;
  EXPECT_EQ(
      commands("stops and requeueing").front(),
      "octavo launch --auto_resume -- train 'my runs/a.yaml' --fp8_recipe mxfp8 --run_name a");
  EXPECT_EQ(found(run, "folders").found, "a new one in checkpoints_fp8, named when the run starts");
  run.config_file = "";
  for (const Finding& f : judge_long_run(run))
    EXPECT_TRUE(f.commands.empty()) << f.id << ": " << f.commands.front();
}

class GatherLongRun : public testing::Test {
 protected:
  LongRun gather(const std::string& yaml) const {
    const fs::path file = scratch.path() / "run.yaml";
    std::ofstream(file) << yaml;
    const std::vector<std::string> args = {file.string()};
    return gather_long_run(config::parse(args, config::kVerifyArguments), facts());
  }
  Facts facts() const {
    Facts f;
    f.host.memory_available = uint64_t{8} << 30;
    f.disk.free_bytes = uint64_t{100} << 30;
    return f;
  }
  std::string small() const {
    std::ofstream(scratch.path() / "text.txt") << std::string(3000, 'a');
    return "model_name: custom\nn_layer: 2\nn_head: 2\nn_embd: 32\nmax_seq_length: 16\n"
           "tokenizer: bytes\ndataset: " +
           (scratch.path() / "text.txt").string() +
           "\ndata_cache: " + (scratch.path() / "cache").string() +
           "\nruns_dir: " + (scratch.path() / "runs").string() +
           "\ncheckpoint_dir: " + (scratch.path() / "checkpoints").string() +
           "\nbatch_size: 2\nmax_steps: 50\nuse_fp8: true\nfp8_recipe: current\n";
  }
  Scratch scratch;
};

TEST_F(GatherLongRun, FindsDataThatIsMissingAndDataThatIsNotPrepared) {
  EXPECT_EQ(gather("model_name: gpt2\n").data.state, RunData::State::kNotGiven);
  EXPECT_EQ(gather("model_name: gpt2\ndataset: nowhere.txt\n").data.state,
            RunData::State::kMissing);
  unsetenv("HF_HUB_OFFLINE");
  const std::string on_hub = "model_name: gpt2\ndataset: nobody/nothing-of-this-name\n";
  EXPECT_EQ(gather(on_hub).data.state, RunData::State::kOnHub);
  EXPECT_EQ(gather(on_hub + "offline: true\n").data.state, RunData::State::kMissing);
  const LongRun run = gather(small());
  EXPECT_EQ(run.data.state, RunData::State::kNotPrepared) << run.data.problem;
  EXPECT_EQ(run.steps, 50);
  EXPECT_EQ(run.step_samples, 2);
}

// Data that is here is looked at without the tokenizer that is not.
TEST_F(GatherLongRun, ATokenizerOnTheHubIsNotTheData) {
  unsetenv("HF_HUB_OFFLINE");
  const config::Settings of_bytes = gather(small()).settings;
  train::open_data_set(of_bytes);
  const std::string folder = train::data_positions(of_bytes).front().folder.string();
  std::string text = small();
  text.replace(text.find("bytes"), 5, "nobody/nothing-of-this-name");
  std::string prepared = text;
  const std::string file = (scratch.path() / "text.txt").string();
  prepared.replace(prepared.find(file), file.size(), folder);

  const LongRun run = gather(prepared);
  EXPECT_EQ(run.data.state, RunData::State::kPrepared) << run.data.problem;
  EXPECT_GT(run.data.samples, 0u);
  EXPECT_EQ(run.data.vocab, 257);
  EXPECT_EQ(found(run, "data").status, Status::kOk);
  const Finding line = found(run, "tokenizer");
  EXPECT_EQ(line.status, Status::kWarn);
  EXPECT_EQ(line.found, "nobody/nothing-of-this-name is not in the Hugging Face cache");
  EXPECT_EQ(found(gather(prepared + "offline: true\n"), "tokenizer").status, Status::kFail);

  const RunData unprepared = gather(text).data;
  EXPECT_EQ(unprepared.state, RunData::State::kNotPrepared) << unprepared.problem;
  EXPECT_EQ(unprepared.vocab, 0);
  EXPECT_FALSE(unprepared.tokenizer_problem.empty());
  EXPECT_TRUE(gather(small()).data.tokenizer_problem.empty());
}

TEST_F(GatherLongRun, KeepsTheFlagsThatTrainReads) {
  const fs::path file = scratch.path() / "run.yaml";
  std::ofstream(file) << small();
  const std::vector<std::string> args = {file.string(), "--before_long_run", "--fp8_recipe",
                                         "rowwise",     "--use_fp8",         "--gpu",
                                         "h200",        "--num_gpus",        "8"};
  const LongRun run = gather_long_run(config::parse(args, config::kVerifyArguments), facts());
  EXPECT_EQ(run.flags, " --fp8_recipe rowwise --use_fp8 true");
  EXPECT_EQ(gather(small()).flags, "");
}

TEST_F(GatherLongRun, AGpuThatNobodyKnowsIsAMistake) {
  std::ofstream(scratch.path() / "run.yaml") << small();
  const std::vector<std::string> args = {(scratch.path() / "run.yaml").string(), "--gpu", "h300"};
  try {
    gather_long_run(config::parse(args, config::kVerifyArguments), facts());
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    EXPECT_NE(std::string(error.what()).find("h300"), std::string::npos) << error.what();
  }
}

TEST_F(GatherLongRun, SeesSecretsAndNamesTheirLinesOnly) {
  const std::string token = "hf_" + std::string(34, 'x');
  const LongRun run = gather(small() + "wandb_run_name: " + token + "\n");
  ASSERT_EQ(run.secret_lines.size(), 1u);
  EXPECT_EQ(run.secret_lines.front(), 15);
  EXPECT_EQ(found(run, "secrets").found.find(token), std::string::npos);
  EXPECT_TRUE(gather(small() + "run_name: a_plain_name_that_is_long_enough_to_be_a_key\n")
                  .secret_lines.empty());
}

TEST_F(GatherLongRun, CountsCheckpointBytesOfAdaptersAlone) {
  const double whole = gather(small()).checkpoint_bytes;
  const double adapters = gather(small() + "lora_rank: 2\n").checkpoint_bytes;
  EXPECT_GT(whole, 12 * 2 * 12 * 32 * 32);
  EXPECT_GT(adapters, 0);
  EXPECT_LT(adapters, whole / 3);
}

TEST_F(GatherLongRun, ALongRecordIsReadInPartAndOthersAreCounted) {
  const fs::path runs = scratch.path() / "runs";
  for (const char* name : {"long", "strange"}) fs::create_directories(runs / name);
  std::ofstream(runs / "long" / "config.yaml") << small();
  std::ofstream(runs / "strange" / "config.yaml") << "a_key_of_another_program: 3\n";
  std::ofstream metrics(runs / "long" / "metrics.jsonl");
  const std::string filler(size_t{1} << 20, 'x');
  for (int step = 1; step <= 70; ++step)
    metrics << R"({"step":)" << step << R"(,"train/loss":2.5,"note":")" << filler << "\"}\n";
  metrics.close();
  const LongRun run = gather(small());
  ASSERT_EQ(run.earlier.size(), 1u);
  EXPECT_TRUE(run.earlier[0].cut && run.earlier[0].finite);
  EXPECT_EQ(run.earlier[0].steps, 63);
  EXPECT_EQ(run.unread_runs, 1);
  const std::string line = found(run, "short run").found;
  EXPECT_NE(line.find("runs/long: 63 steps"), std::string::npos) << line;
  EXPECT_NE(line.find("the rest of its metrics.jsonl was not read"), std::string::npos) << line;
  EXPECT_NE(line.find("1 others there were not read"), std::string::npos) << line;
}

// The whole way: a small run is stopped, saved and resumed, and leaves nothing behind.
TEST_F(GatherLongRun, RehearsesAStopOfTheMiniatureBitForBit) {
  for (const char* more : {"", "lora_rank: 4\n", "master_dtype: bf16\nmoment_dtype: fp8\n"}) {
    const LongRun run = gather(small() + more);
    const ResumeRehearsal resume = rehearse_resume(run);
    EXPECT_TRUE(resume.ran) << resume.problem;
    EXPECT_TRUE(resume.equal_losses && resume.equal_weights) << more;
    EXPECT_EQ(resume.precision, "FP8 rehearsal");
    EXPECT_FALSE(fs::exists(run.checkpoint_folder)) << "it was not there before";
  }
}

// The miniature has one text, whatever the run has.
TEST_F(GatherLongRun, RehearsesAMixtureToo) {
  LongRun run = gather(small());
  run.settings.dataset.emplace_back("other.txt");
  run.settings.dataset_weights = {3, 1};
  run.settings.dataset_max_epochs = {0, 2};
  run.settings.mixture_schedule = {"0.5 1 1"};
  run.settings.length_schedule = {"0 4", "0.5 16"};
  const ResumeRehearsal resume = rehearse_resume(run);
  EXPECT_TRUE(resume.ran) << resume.problem;
  EXPECT_TRUE(resume.equal_losses && resume.equal_weights);
}

TEST_F(GatherLongRun, ARunThatCannotStartIsAFailure) {
  LongRun run = gather(small() + "fp8_execution: native\n");
  run.resume = rehearse_resume(run);
  EXPECT_FALSE(run.resume->ran);
  EXPECT_EQ(found(run, "resume").status, Status::kFail);
}

// Names as fp8_skip has them are those of the models.
class Fp8Share : public GatherLongRun {
 protected:
  void expect_all_skipped(const std::string& yaml) {
    LongRun run = gather(yaml);
    ASSERT_TRUE(run.forecast) << run.forecast_problem;
    EXPECT_GT(run.fp8_share, 0.3);
    train::Run real;
    config::Settings s = run.settings;
    s.device = config::DeviceChoice::kCpu;
    s.init_from = "random";
    train::start_on_random_tokens(real, s);
    for (const auto& layer : real.trained.model->linears())
      run.settings.fp8_skip.push_back(layer->name);
    run.fp8_gaps.clear();
    share_in_fp8(run);
    EXPECT_EQ(run.fp8_share, 0);
    EXPECT_TRUE(run.contradictions.empty()) << run.contradictions.front();
    EXPECT_EQ(run.fp8_gaps.size(), run.settings.fp8_skip.size());
  }
};

TEST_F(Fp8Share, KnowsTheLayersOfGpt2AndLlama) {
  expect_all_skipped(small());
  fs::create_directories(scratch / "llama");
  std::ofstream(scratch / "llama" / "config.json")
      << R"({"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64,
             "intermediate_size": 128, "num_attention_heads": 2, "num_key_value_heads": 2,
             "vocab_size": 256, "max_position_embeddings": 64, "hidden_act": "silu",
             "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": true})";
  expect_all_skipped("model_name: " + (scratch / "llama").string() +
                     "\nmax_seq_length: 16\nbatch_size: 2\nmax_steps: 50\nuse_fp8: true\n");
}

TEST_F(Fp8Share, KnowsTheLayersOfExperts) {
  fs::create_directories(scratch / "moe");
  std::ofstream(scratch / "moe" / "config.json")
      << R"({"model_type": "qwen3_moe", "num_hidden_layers": 3, "hidden_size": 64,
             "intermediate_size": 128, "num_attention_heads": 2, "num_key_value_heads": 2,
             "head_dim": 32, "vocab_size": 256, "max_position_embeddings": 64, "num_experts": 3,
             "num_experts_per_tok": 2, "moe_intermediate_size": 96, "mlp_only_layers": [1]})";
  expect_all_skipped("model_name: " + (scratch / "moe").string() +
                     "\nmax_seq_length: 16\nbatch_size: 2\nmax_steps: 50\nuse_fp8: true\n");
}

TEST_F(Fp8Share, LessForWhatIsSkippedAndTheSameForAnyNumberOfTokens) {
  const double whole = gather(small()).fp8_share;
  const LongRun first = gather(small() + "fp8_skip: [first]\n");
  EXPECT_NEAR(first.fp8_share, whole / 2, 1e-9);
  EXPECT_EQ(first.fp8_gaps, (std::vector<std::string>{"4 layers of fp8_skip first"}));
  std::string seventeen = small();
  seventeen.replace(seventeen.find("h: 16"), 5, "h: 17");
  const LongRun odd = gather(seventeen);
  EXPECT_NEAR(odd.fp8_share, whole, 0.01);  // a longer sequence has more attention
  EXPECT_TRUE(odd.fp8_gaps.empty());
  EXPECT_EQ(found(gather(small() + "fp8_skip: [h.9.*]\n"), "config").status, Status::kFail);
}

TEST_F(Fp8Share, LeavesOutTheBlocksThatNvfp4LeavesToBf16) {
  std::string yaml = small();
  yaml.replace(yaml.find("current"), 7, "nvfp4");
  LongRun run = gather(yaml);
  EXPECT_EQ(run.fp8_gaps, (std::vector<std::string>{"4 layers of fp8_skip last:1 (default)"}));
  EXPECT_NEAR(run.fp8_share, gather(small()).fp8_share / 2, 1e-9);
  EXPECT_TRUE(gather(yaml + "fp8_skip: [none]\n").fp8_gaps.empty());
  // A GPU without FP4 runs delayed, which leaves none out.
  run.settings.gpu = "h100";
  run.forecast = plan::forecast(run.settings);
  run.on_gpu = true;
  run.fp8_gaps.clear();
  share_in_fp8(run);
  EXPECT_TRUE(run.fp8_gaps.empty());
}

}  // namespace
}  // namespace octavo::verify
