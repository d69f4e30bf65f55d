#include "verify/report.h"

#include <fstream>

#include "scratch.h"
#include "verify/elf.h"
#include "verify/gather.h"
#include "verify/machine.h"
#include "verify/speed.h"
#include "verify/training.h"

namespace octavo::verify {
namespace {

const std::vector<Finding> kFindings = {
    {Section::kGpu, "driver", Status::kFail, "580", "550", "update it"},
    {Section::kGpu, "gpu 0", Status::kOk, "", "an H100", ""},
    {Section::kLibraries, "cuDNN", Status::kNotChecked, "", "no GPU", ""}};

TEST(Report, TextHasTheFixUnderItsFailure) {
  const std::string text = section_text(Section::kGpu, kFindings, false, true);
  EXPECT_TRUE(text.starts_with("GPU\n")) << text;
  EXPECT_NE(text.find("FAIL        driver  wanted 580; found 550\n"), std::string::npos) << text;
  EXPECT_NE(text.find("fix: update it\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("cuDNN"), std::string::npos);
  EXPECT_EQ(section_text(Section::kSpeed, kFindings, false, true), "");
  EXPECT_EQ(summary_line(kFindings, false, true),
            "verify: FAILED | 1 ok, 0 notes, 0 warnings, 1 failures, 1 not checked\n");
}

TEST(Report, CommandsAreLinesOfTheirOwnAndNeverCut) {
  const std::string command = "octavo train " + std::string(200, 'x') + " --resume latest";
  Finding f{Section::kGpu, "driver", Status::kWarn, "580", "550", "update it", {command}};
  EXPECT_NE(section_text(Section::kGpu, {f}, false, true).find(" run: " + command + "\n"),
            std::string::npos);
  EXPECT_EQ(to_json({f}, false)["findings"][0]["commands"], Json::array({command}));
  f.status = Status::kOk;
  EXPECT_EQ(section_text(Section::kGpu, {f}, false, true).find("run:"), std::string::npos);
}

TEST(Report, EveryLineOfAFakeDeviceSaysSo) {
  std::string text =
      section_text(Section::kGpu, kFindings, true, true) + summary_line(kFindings, true, true);
  size_t lines = 0;
  for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1, ++lines)
    EXPECT_EQ(text.substr(at, 19), "fake CUDA device | ");
  EXPECT_GE(lines, 5u);
  for (const Json& row : to_json(kFindings, true)["findings"]) EXPECT_TRUE(row["absent_device"]);
}

TEST(Report, WhatIsOkIsCountedUnlessAsked) {
  const std::string text = section_text(Section::kGpu, kFindings, false, false);
  EXPECT_TRUE(text.starts_with("GPU: 1 ok\n")) << text;
  EXPECT_EQ(text.find("an H100"), std::string::npos) << text;
  EXPECT_NE(text.find("FAIL        driver"), std::string::npos) << text;
  EXPECT_NE(summary_line(kFindings, false, false).find("1 ok, "), std::string::npos);
  EXPECT_NE(summary_line(kFindings, false, false).find("--verbose"), std::string::npos);
  const std::vector<Finding> fine = {{Section::kKernels, "matmul", Status::kOk, "", "same", ""},
                                     {Section::kRunData, "data", Status::kOk, "", "3M tokens", ""}};
  EXPECT_EQ(section_text(Section::kKernels, fine, true, false),
            str("fake CUDA device | ", name_of(Section::kKernels), ": 1 ok\n"));
  EXPECT_NE(section_text(Section::kRunData, fine, false, false).find("3M tokens"),
            std::string::npos);
  EXPECT_EQ(section_text(Section::kSpeed, fine, false, false), "");
}

TEST(Report, JsonAndExitCode) {
  const Json json = to_json(kFindings, false);
  EXPECT_EQ(json["findings"].size(), 3u);
  EXPECT_EQ(json["findings"][0]["fix"], "update it");
  EXPECT_EQ(json["findings"][2]["status"], "not checked");
  EXPECT_EQ(json["exit_code"], 3);
  EXPECT_EQ(exit_code({kFindings.begin() + 1, kFindings.end()}), 0);
}

TEST(Speed, SaysWhetherFp8Pays) {
  LayerSpeed speed{
      .size = 4096, .native = true, .bf16 = 3e-3, .fp8 = 1.6e-3, .fp8_with_casts = 2e-3};
  Finding f = judge_speed(speed);
  EXPECT_EQ(f.status, Status::kOk);
  EXPECT_NE(f.found.find("1.88x), with casts 1.5x; FP8 can pay here"), std::string::npos)
      << f.found;
  speed.fp8_with_casts = 2.9e-3;
  EXPECT_EQ(judge_speed(speed).status, Status::kWarn);
  speed.fp8_with_casts = 4e-3;
  f = judge_speed(speed);
  EXPECT_NE(f.found.find("costs more than it saves"), std::string::npos) << f.found;
  EXPECT_NE(f.fix.find("BF16"), std::string::npos);
  speed.native = false;
  EXPECT_EQ(judge_speed(speed).status, Status::kNote);
  speed.problem = "cuBLAS says no";
  EXPECT_EQ(judge_speed(speed).status, Status::kFail);
}

TEST(Training, JudgesLossAndGap) {
  const TinyRun bf16{"bf16", "BF16", 5.5, 2.0, 60, 1, ""};
  const auto status = [&](const TinyRun& run, bool native) {
    return judge_training({bf16, run}, native)[1].status;
  };
  EXPECT_EQ(status({"fp8 current", "FP8", 5.5, 2.03, 60, 1, ""}, true), Status::kOk);
  EXPECT_EQ(status({"fp8 current", "FP8", 5.5, 2.05, 60, 1, ""}, true), Status::kFail);
  EXPECT_EQ(status({"fp8 current", "FP8", 5.5, 2.5, 60, 1, ""}, true), Status::kFail);
  EXPECT_EQ(status({"fp8 current", "FP8", 5.5, NAN, 60, 1, ""}, true), Status::kFail);
  EXPECT_EQ(status({"fp8 current", "BF16", 5.5, 2.0, 60, 1, ""}, true), Status::kFail);
  EXPECT_EQ(status({"fp8 current", "FP8 rehearsal", 5.5, 2.0, 60, 1, ""}, false), Status::kOk);
  EXPECT_EQ(status({"fp8 current", "FP8", 5.5, 5.4, 60, 1, ""}, true), Status::kFail);
  EXPECT_EQ(status({"fp8 current", "FP8", 5.5, 0, 3, 1, "CUDA error"}, true), Status::kFail);
}

TEST(Elf, NeedsWhatItsFileSays) {
  const auto needed = needed_libraries("/proc/self/exe");
  EXPECT_NE(std::ranges::find(needed, "liboctavo_core.so"), needed.end());
  EXPECT_NE(std::ranges::find(needed, "libc.so.6"), needed.end());
}

TEST(Elf, HostileFilesHaveNone) {
  const Scratch scratch;
  std::string bytes = read_file("/proc/self/exe", size_t{1} << 30);
  const auto needs = [&](const std::string& content) {
    const fs::path file = scratch.path() / "lib.so";
    std::ofstream(file, std::ios::binary) << content;
    return needed_libraries(file);
  };
  EXPECT_TRUE(needs("not a library").empty());
  EXPECT_TRUE(needs(bytes.substr(0, 80)).empty());
  // Every byte of the header and the first segments spoiled in turn: no crash, no endless text.
  for (size_t i = 0; i < 400; ++i) {
    std::string spoiled = bytes.substr(0, 4096);
    spoiled[i] = static_cast<char>(spoiled[i] ^ 0xFF);
    EXPECT_LT(needs(spoiled).size(), 1000u);
  }
}

TEST(Gather, ThisMachine) {
  ::setenv("NVTE_FP8_ALLREDUCE", "1\x1b[31m", 1);
  ::setenv("HF_TOKEN", "hf_verysecret", 1);
  const auto environment = gather_environment();
  EXPECT_EQ(environment.at("NVTE_FP8_ALLREDUCE"), "1?[31m");
  EXPECT_EQ(environment.at("HF_TOKEN"), "set");
  ::unsetenv("NVTE_FP8_ALLREDUCE");
  ::unsetenv("HF_TOKEN");
  const auto interfaces = gather_interfaces();
  EXPECT_TRUE(std::ranges::any_of(interfaces, [](const Interface& i) { return i.loopback; }));
  const Host host = gather_host();
  EXPECT_GT(host.cores, 0);
  EXPECT_GT(host.memory_total, host.memory_available);
  const Scratch scratch;
  const Disk disk = gather_disk(scratch.path() / "not" / "yet");
  EXPECT_EQ(disk.problem, "");
  EXPECT_EQ(fs::path(disk.tested), fs::canonical(scratch.path()));
  EXPECT_GT(disk.write_rate, 0);
  EXPECT_TRUE(fs::is_empty(scratch.path())) << "the measured file stayed";
}

// What the wheels of this build say of themselves.
TEST(Gather, Libraries) {
  const Libraries l = gather_libraries();
  EXPECT_EQ(l.torch_built, l.torch_found);
  EXPECT_GE(l.cuda_major, 12);
  for (const Library* library : {&l.cudart, &l.cublaslt, &l.cudnn, &l.nccl, &l.nvrtc}) {
    EXPECT_EQ(library->problem, "") << library->file;
    EXPECT_TRUE(library->version.known()) << library->file;
  }
  EXPECT_EQ(l.cudart.version.major, l.cuda_major);
  EXPECT_EQ(l.cublaslt.version.major, l.cuda_major);
}

}  // namespace
}  // namespace octavo::verify
