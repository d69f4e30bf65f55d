// Runs the program itself: exit codes, messages, start-up time.

#include <fcntl.h>
#include <sys/file.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/fd.h"
#include "base/text.h"
#include "cli/program.h"
#include "own_variables.h"

namespace octavo {
namespace {

TEST_F(Cli, HelpIsQuickAndWithoutTorch) {
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    const Outcome outcome = run("--help");
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    for (const char* verb :
         {"train ", "generate ", "checkpoints ", "data ", "schedule ", "config ", "examples "})
      EXPECT_NE(outcome.out.find(std::string("\n  ") + verb), std::string::npos) << verb;
  }
  if (!OCTAVO_SANITIZED) EXPECT_LT(best, 0.3);
  const Outcome libraries = run(OCTAVO_PROGRAM, "ldd");
  EXPECT_NE(libraries.out.find("liboctavo_light"), std::string::npos);
  EXPECT_EQ(libraries.out.find("torch"), std::string::npos);
}

// A picture that nobody asked for is a file that somebody commits.
TEST_F(Cli, WritesNoFileUnasked) {
  for (const char* words : {"plan --model_name gpt2 --gpu h100", "schedule --max_steps 100",
                            "plan --model_name gpt2 --gpu h100 --json"}) {
    ASSERT_EQ(run(words).code, 0) << words;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder_))
      EXPECT_TRUE(entry.path().filename() == "out" || entry.path().filename() == "err")
          << words << " wrote " << entry.path();
  }
}

TEST_F(Cli, Version) {
  const Outcome outcome = run("--version");
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(outcome.out.starts_with("octavo 0.")) << outcome.out;
}

TEST_F(Cli, MistakesHaveExitCode2) {
  EXPECT_EQ(run("").code, 2);
  expect_refused("trian", 2, "unknown verb 'trian'; did you mean train?");
  expect_refused("export last", 2, "unknown verb 'export'; it is octavo checkpoints export");
  expect_refused("config", 2, "wanted one of show, check, import, schema, docs, found nothing");
  expect_refused("config shwo", 2, "did you mean show?");
  expect_refused("config check", 2, "wanted a CONFIG.yaml");
  expect_refused("train --batchsize 3", 2, "did you mean batch_size?");
  expect_refused("train --max_steps 3 --num_epochs 1", 2, "one_length");
  expect_refused("train nowhere.yaml", 2, "no file nowhere.yaml; check the path");
  expect_refused("train nowhere", 2, "found 'nowhere'; see octavo train --help");
  expect_refused("train --dry_run", 2, "only by plan; leave it out, or type octavo plan");
  expect_refused("launch --hang_timeout 5 -- train", 2, "give it to the ranks, after --");
  expect_refused("sweep run s.yaml --max_steps 3", 2, "give it to the trials, after --");
  expect_refused("train --resume --use_fp8", 2, "write --resume latest");
  expect_refused("eval --dataset a.txt --output x", 2, "by eval --eval_task hellaswag alone");
  expect_refused("checkpoints verify --json", 2, "--json is read by checkpoints list alone");
  expect_refused("schedule", 2, "--max_steps");
  expect_refused("data prepare", 2, "wanted files or folders");
  expect_refused("data prepare a.txt", 2, "--output");
  expect_refused("data inspect", 2, "wanted a prepared folder");
}

TEST_F(Cli, PlanFromABrokenFileIsAMistake) {
  const std::string from = "plan --model_name gpt2 --gpu h100 --from ";
  write_file_atomic(folder_ / "verify.json", R"({"findings": [{"id": 3, "found": []}, 7]})");
  expect_refused(from + "verify.json", 2, "none; octavo verify --output verify.json");
  write_file_atomic(folder_ / "bench.json",
                    R"({"step": {}, "model": "gpt2", "rehearsal": "no", "device": "cuda"})");
  expect_refused(from + "bench.json", 2, "octavo bench --bench_steps 20 times them");
  // A long text took all of the stack.
  write_file_atomic(folder_ / "long.json",
                    R"({"findings": [{"id": "layer of 4096, )" + std::string(400'000, 'x') +
                        R"(", "found": "BF16 612 TFLOP/s, FP8 1133 TFLOP/s"}]})");
  EXPECT_EQ(run(from + "long.json").code, 0);
}

TEST_F(Cli, SweepSaysACommandThatCanBeTyped) {
  fs::create_directories(folder_ / "my sweeps");
  write_file_atomic(folder_ / "my sweeps/lr.yaml",
                    "method: grid\nmetric: {name: train/loss}\n"
                    "parameters:\n  learning_rate: {values: [0.1, 0.2]}\n");
  const Outcome made = run("sweep create 'my sweeps/lr.yaml' -- --dataset x --max_steps 1");
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_NE(made.out.find("octavo sweep agent 'my sweeps/lr.db'\n"), std::string::npos) << made.out;
}

TEST_F(Cli, PlansCommandStartsAsManyRanksAsGpus) {
  for (const auto& [gpus, launch] : {std::pair("4", "launch --nproc 4 -- train"),
                                     {"12", "launch --nproc 6 --nnodes 2 -- train"},
                                     {"16", "launch --nproc 8 --nnodes 2 -- train"}}) {
    const Outcome outcome = run(str("plan --model_name gpt2 --gpu h100 --num_gpus ", gpus));
    EXPECT_NE(outcome.out.find(launch), std::string::npos) << outcome.out << outcome.err;
  }
}

// The page would be written over by its own numbers.
TEST_F(Cli, ComparesPageIsNoJson) {
  expect_refused("compare a b --output r.json", 2, "where its numbers go; write --output r.html");
}

TEST_F(Cli, RunsAreFoundByTheirNames) {
  fs::create_directories(folder_ / "runs/mine");
  write_file_atomic(folder_ / "runs/mine/metrics.jsonl", "");
  expect_refused("report", 2, "wanted one run, found none; name its folder: runs/mine");
  expect_refused("compare", 2, "found nothing; runs: runs/mine");
  expect_refused("report other", 2, "found none in other; runs are in runs/<run_name>");
  expect_refused("compare other mine", 2, "found none in other");
  expect_refused("compare mine mine", 5, "runs/mine/metrics.jsonl: wanted steps of a run");
}

TEST_F(Cli, NamesTheConfigurationThatWasMeant) {
  fs::create_directories(folder_ / "configs");
  write_file_atomic(folder_ / "configs/small.yaml", "max_steps: 1\n");
  write_file_atomic(folder_ / "mine.yaml", "max_steps: 1\n");
  expect_refused("train small.yaml", 2, "did you mean configs/small.yaml?");
  expect_refused("train small", 2, "did you mean configs/small.yaml?");
  expect_refused("train mine", 2, "did you mean mine.yaml?");
}

TEST_F(Cli, NamesAreListed) {
  const Outcome all = run("names");
  ASSERT_EQ(all.code, 0) << all.err;
  for (const char* part :
       {"meta-llama/Llama-3.1-8B", "openai-community/gpt2-xl", "8.0B", "HuggingFaceFW/fineweb-edu",
        "sample-10BT", "train_1M", "h100_pcie", "1978.9", "12.0"})
    EXPECT_NE(all.out.find(part), std::string::npos) << part;
  const Outcome gpus = run("names gpus");
  EXPECT_EQ(gpus.out.find("fineweb"), std::string::npos);
  EXPECT_NE(all.out.find(gpus.out), std::string::npos);
  for (const std::string& line : split(all.out, '\n')) EXPECT_LE(line.size(), 100u) << line;
  expect_refused("names models data", 2, "found 'data'");
  expect_refused("names cars", 2, "wanted models, data or gpus, found 'cars'");
}

// A shape, a GPU and a data set that are known need neither network nor files.
TEST_F(Cli, NamesAreTakenInAnySpelling) {
  ::setenv("HF_HOME", folder_.c_str(), 1);
  ::setenv("HF_HUB_OFFLINE", "1", 1);
  const Outcome plan = run("plan --model_name 'Meta Llama 3.1 8B' --gpu 'NVIDIA H100 80GB HBM3'");
  EXPECT_EQ(plan.code, 0) << plan.err;
  EXPECT_NE(plan.out.find("llama-3.1-8b"), std::string::npos) << plan.out;
  write_file_atomic(folder_ / "n.yaml", "model_name: llama-3.2-1b\ndataset: gsm8k\n");
  const std::string checked = run("config check --config n.yaml").out;
  for (const char* part : {"meta-llama/Llama-3.2-1B", "openai/gsm8k", "dataset_config main"})
    EXPECT_NE(checked.find(part), std::string::npos) << checked;
  write_file_atomic(folder_ / "long.yaml", "model_name: llama-3-8b\nmax_seq_length: 9000\n");
  expect_refused("config check long.yaml", 2, "wanted at most 8192");
  const Outcome prepared = run("data prepare gsm8k --output out");
  EXPECT_EQ(prepared.code, 2);
  EXPECT_NE(prepared.err.find("openai/gsm8k: wanted it in the Hugging"), std::string::npos)
      << prepared.err;
  expect_refused("plan --model_name openai/gpt-oss-20b", 2, "which is gpt-oss and not implemented");
  ::unsetenv("HF_HOME");
  ::unsetenv("HF_HUB_OFFLINE");
}

TEST_F(Cli, FullDiskIsAnError) {
  const std::string command = "'" OCTAVO_PROGRAM "' --help >/dev/full 2>/dev/null";
  EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 3);
}

TEST_F(Cli, ConfigShowAndCheck) {
  write_file_atomic(folder_ / "c.yaml", "batch_size: 4\nmax_steps: 7\n");
  const Outcome shown = run("config show c.yaml --max_steps 9");
  EXPECT_EQ(shown.code, 0) << shown.err;
  for (const char* part : {"# c.yaml:1", "# flag", "# default"})
    EXPECT_NE(shown.out.find(part), std::string::npos) << part;
  const std::string rate =
      "  learning_rate 6e-04: default for pretraining; --learning_rate sets it\n";
  EXPECT_EQ(run("config check c.yaml").out, "c.yaml: 2 keys given, no contradictions\n" + rate);
  expect_refused("config check c.yaml --num_epochs 2 --max_steps 3", 2, "one_length");
  EXPECT_EQ(run("config check c.yaml --num_epochs 2").out,
            "c.yaml: 3 keys given, no contradictions\n"
            "  run length: --num_epochs 2 overrides max_steps 7 in c.yaml:2\n" +
                rate);
  write_file_atomic(folder_ / "bad.yaml", "batch_sz: 4\nmax_steps: 7\nnum_epochs: x\n");
  for (const char* part :
       {"bad.yaml:1: unknown key 'batch_sz'", "bad.yaml:3: num_epochs", "--seed"})
    expect_refused("config check bad.yaml --seed x", 2, part);
  EXPECT_TRUE(nlohmann::json::parse(run("config schema").out).contains("properties"));
}

// What train would find out when it builds its model, found before it.
TEST_F(Cli, ConfigCheckLooksAtLayersAndTokenizer) {
  write_file_atomic(folder_ / "skip.yaml", "use_fp8: true\nfp8_skip: [h.0]\n");
  const std::string wrong = "fp8_skip: no layer is named 'h.0'; wanted first, last";
  expect_refused("config check skip.yaml", 2, wrong);
  expect_refused("plan skip.yaml", 2, wrong);
  expect_refused("plan --use_fp8 --fp8_skip h.0", 2, "did you mean 'h.0.*'?");
  EXPECT_EQ(run("config check skip.yaml --fp8_skip h.0.*").code, 0);
  const Outcome bf16 = run("config check skip.yaml --no_use_fp8 --fp8_skip h.0.*");
  EXPECT_EQ(bf16.code, 0) << bf16.err;
  EXPECT_NE(bf16.out.find("--fp8_skip h.0.* is not used"), std::string::npos) << bf16.out;

  // A path of another machine is no mistake of the file; a file here that is no tokenizer is one.
  write_file_atomic(folder_ / "tokens.yaml", "tokenizer: /cluster/models/tokenizer.json\n");
  const Outcome elsewhere = run("config check tokens.yaml");
  EXPECT_EQ(elsewhere.code, 0) << elsewhere.err;
  EXPECT_NE(elsewhere.out.find("tokenizer /cluster/models/tokenizer.json: no file or folder here; "
                               "it must be where the run is"),
            std::string::npos)
      << elsewhere.out;
  expect_refused("config check tokens.yaml --tokenizer .", 2, "tokenizer.json");
  write_file_atomic(folder_ / "broken.json", "{}");
  EXPECT_NE(run("config check tokens.yaml --tokenizer broken.json").code, 0);
  EXPECT_EQ(run("config check tokens.yaml --tokenizer bytes").code, 0);
  const Outcome hub = run("config check tokens.yaml --tokenizer org/name");
  EXPECT_EQ(hub.code, 0) << hub.err;
  EXPECT_NE(hub.out.find("tokenizer org/name: no file or folder here; it would be looked for"),
            std::string::npos)
      << hub.out;
}

TEST_F(Cli, ADryRunRefusesWhatItWouldIgnore) {
  expect_refused("plan --dry_run --from verify.json --gpu_price 2 --details", 2,
                 "found --details, --from, --gpu_price, which a dry run does not read");
  expect_refused("plan --dry_run --device cpu", 2, "found --device cpu");
  expect_refused("plan --dry_run --sharding_mode zero1", 2, "leave it out");
}

TEST_F(Cli, ScheduleWritesPictureAndNumbers) {
  const Outcome outcome =
      run("schedule --max_steps 100 --warmup_steps 10 --max_lr 1e-3 --json --output s.svg");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json numbers = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(numbers["points"][0]["step"], 0);
  EXPECT_DOUBLE_EQ(numbers["points"][0]["learning_rate"].get<double>(), 1e-4);
  EXPECT_EQ(numbers["points"].back()["step"], 99);
  const std::string picture = read_file(folder_ / "s.svg", 1 << 20);
  EXPECT_TRUE(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
  EXPECT_NE(picture.find("warm-up ends, peak"), std::string::npos);
  EXPECT_NE(picture.find("minimum, the last step"), std::string::npos);
  EXPECT_NE(run("schedule --max_steps 100 --output s.svg").out.find("warm-up 5 of 100 steps"),
            std::string::npos);
}

TEST_F(Cli, DataPrepareAndInspect) {
  write_file_atomic(folder_ / "a.txt", std::string(5000, 'a') + std::string(5000, 'b'));
  const Outcome prepared = run("data prepare a.txt --output d");
  ASSERT_EQ(prepared.code, 0) << prepared.err;
  EXPECT_NE(prepared.out.find("validation tokens (bytes) of 1 document,"), std::string::npos)
      << prepared.out;
  const Outcome inspected = run("data inspect d --verify_hashes");
  EXPECT_EQ(inspected.code, 0) << inspected.err;
  EXPECT_NE(inspected.out.find("bytes"), std::string::npos);
  write_file_atomic(folder_ / "c.yaml", "dataset: a.txt\n");
  expect_refused("data prepare c.yaml a.txt --output e", 2, "dataset (c.yaml:1)");
}

// Another process has the folder, so that it is still at work when the signal comes.
TEST_F(Cli, DataPrepareThatIsStoppedCanBeTakenUp) {
  write_file_atomic(folder_ / "a.txt", std::string(5000, 'a'));
  fs::create_directory(folder_ / "d");
  const auto take_folder = [&] {
    return Fd(::open((folder_ / "d").c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  };
  {
    const Fd folder = take_folder();
    ASSERT_EQ(::flock(folder.get(), LOCK_EX), 0);
    const Outcome stopped =
        run("-c '\"" OCTAVO_PROGRAM
            "\" data prepare a.txt --output d & "
            "for i in $(seq 600); do grep -q waiting err && break; sleep 0.05; done; "
            "kill -TERM $!; wait $!'",
            "/bin/sh");
    EXPECT_EQ(stopped.code, 75) << stopped.err;
    EXPECT_NE(stopped.err.find("stopped by SIGTERM"), std::string::npos) << stopped.err;
  }
  EXPECT_EQ(run("data prepare a.txt --output d").code, 0);
}

TEST_F(Cli, ImportWritesWhatCheckTakes) {
  const fs::path broken = fs::path(OCTAVO_SOURCE_DIR) / "tests/migrate/broken_configs";
  fs::copy(broken / "lf_backend_auto.yaml", folder_ / "train.yaml");
  fs::copy(broken / "ds_fp32_communication.json", folder_ / "ds_config.json");
  fs::copy(broken / "lf_missing_variables.sh", folder_ / "train.sh");
  // The commands of docs/how-to/import-config.md, as they stand there.
  const std::string docs =
      read_file(fs::path(OCTAVO_SOURCE_DIR) / "docs/how-to/import-config.md", 1 << 20);
  int commands = 0;
  for (size_t at = 0; (at = docs.find("\noctavo ", at)) != docs.npos; ++commands) {
    at += std::string("\noctavo ").size();
    const std::string line = docs.substr(at, docs.find("  # not-run", at) - at);
    const Outcome outcome = run(line);
    EXPECT_EQ(outcome.code, 0) << line << ": " << outcome.err;
    at -= 2;
  }
  EXPECT_EQ(commands, 5);
  EXPECT_NE(read_file(folder_ / "octavo.yaml", 1 << 20).find("fp8_backend: te"), std::string::npos);
  const Outcome json = run("config import train.yaml --json");
  EXPECT_EQ(nlohmann::json::parse(json.out)["refused"], false);

  // What is refused is reported, and nothing is written.
  const std::string refused = (broken / "ds_batch_does_not_multiply_out.json").string();
  const Outcome outcome = run("config import '" + refused + "' --output no.yaml");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.out.find("REFUSED batch_does_not_multiply_out"), std::string::npos);
  EXPECT_NE(outcome.err.find("nothing was written"), std::string::npos) << outcome.err;
  EXPECT_FALSE(fs::exists(folder_ / "no.yaml"));
  expect_refused("config import --json", 2, "wanted a FILE");
  expect_refused("config import train.yaml --batch_size 3", 2, "not read by config import");
}

// srun and torchrun show the lines of all ranks without saying whose they are.
TEST_F(Cli, ARankThatCannotStartIsNamed) {
  const OwnVariables variables{"RANK", "WORLD_SIZE", "LOCAL_RANK", "OCTAVO_RANK"};
  ::setenv("RANK", "1", 1);
  ::setenv("WORLD_SIZE", "2", 1);
  ::setenv("LOCAL_RANK", "1", 1);
  const Outcome outcome = run("train --batchsize 1");
  EXPECT_EQ(outcome.code, 2);
  EXPECT_TRUE(outcome.err.starts_with("octavo: rank 1 of 2 on ")) << outcome.err;
  EXPECT_NE(outcome.err.find(": [config] "), std::string::npos) << outcome.err;
  expect_refused("launch --nproc 2 -- train --batchsize 1", 2, "batchsize");  // no rank's message
}

// Without the core library the light verbs work, and the others say what is missing (exit 3).
TEST_F(Cli, MissingOrBrokenCoreIsSaid) {
  fs::create_directories(folder_ / "bin");
  fs::create_directories(folder_ / "lib");
  fs::copy_file(OCTAVO_PROGRAM, folder_ / "bin/octavo");
  fs::create_symlink(OCTAVO_LIGHT, folder_ / "lib/liboctavo_light.so");
  const std::string program = (folder_ / "bin/octavo").string();
  EXPECT_EQ(run("--version", program).code, 0);
  Outcome outcome = run("train", program);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("lib/liboctavo_core.so, found no such file"), std::string::npos)
      << outcome.err;
  outcome = run("train --log_format json", program);
  EXPECT_EQ(outcome.code, 3);
  const nlohmann::json line = nlohmann::json::parse(outcome.err);
  EXPECT_EQ(line["level"], "error");
  EXPECT_EQ(line["rank"], 0);
  EXPECT_NE(line["message"].get<std::string>().find("found no such file"), std::string::npos);
  write_file_atomic(folder_ / "lib/liboctavo_core.so", "not a library");
  outcome = run("train", program);
  EXPECT_EQ(outcome.code, 3);
  EXPECT_NE(outcome.err.find("found one that does not load; install octavo again"),
            std::string::npos)
      << outcome.err;
  // Mistakes are found before the library is wanted.
  EXPECT_EQ(run("train --batchsize 1", program).code, 2);
}

}  // namespace
}  // namespace octavo
