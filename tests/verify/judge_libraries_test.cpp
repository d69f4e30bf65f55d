#include "base/error.h"
#include "verify/machine.h"

namespace octavo::verify {
namespace {

TEST(JudgeLibraries, MissingOnesFailWhereAGpuNeedsThem) {
  struct Case {
    const char* id;
    Library Libraries::*member;
  };
  constexpr Case kCases[] = {{"CUDA runtime", &Libraries::cudart},
                             {"cuBLASLt", &Libraries::cublaslt},
                             {"cuDNN", &Libraries::cudnn},
                             {"NCCL", &Libraries::nccl},
                             {"NVRTC", &Libraries::nvrtc}};
  for (const Case& c : kCases) {
    Facts f = healthy();
    f.libraries.*c.member = {};
    expect_finding(f, c.id, Status::kFail, "not found", "./bootstrap");
    Facts idle = without_gpu();
    idle.libraries.*c.member = {};
    expect_finding(idle, c.id, Status::kNote, "not found", "./bootstrap");
  }
}

TEST(JudgeLibraries, OneThatDoesNotLoadSaysWhy) {
  Facts f = healthy();
  f.libraries.cudnn.problem = "libz.so.1: cannot open shared object file";
  expect_finding(f, "cuDNN", Status::kFail, "libz.so.1: cannot open", "./bootstrap");
}

TEST(JudgeLibraries, VersionsOfAnotherCuda) {
  Facts f = healthy();
  f.libraries.cublaslt.version = {12, 9, 1};
  expect_finding(f, "cuBLASLt", Status::kFail, "12.9.1", "for CUDA 13");
  f = healthy();
  f.libraries.cudnn.built_for = {12, 8, 0};
  expect_finding(f, "cuDNN", Status::kFail, "built with CUDA 12.8", "for CUDA 13");
  f = healthy();
  f.libraries.cudart.version = {12, 8, 0};
  expect_finding(f, "CUDA runtime", Status::kFail, "12.8", "./bootstrap");
  f = healthy();
  f.libraries.nvrtc.version = {12, 8, 0};
  expect_finding(f, "NVRTC", Status::kFail, "12.8", "for CUDA 13");
  f = healthy();
  f.libraries.torch_found = {2, 14, 0};
  expect_finding(f, "torch", Status::kFail, "2.14", "build again");
}

TEST(JudgeLibraries, OldCublasLt) {
  Facts f = healthy();
  f.libraries.cuda_major = 12;
  f.libraries.cudart.version = f.libraries.cublaslt.version = {12, 4, 0};
  expect_finding(f, "cuBLASLt", Status::kWarn, "too old for fp8_recipe blockwise (12.9) and mxfp8",
                 "fp8_recipe delayed");
  for (const fp8::RecipeTraits& row : fp8::kRecipeTraits)
    expect_finding(f, "cuBLASLt", row.cublaslt.any() ? Status::kWarn : Status::kFail, "too old",
                   "fp8_recipe delayed", {.recipe = row.recipe});
  f.libraries.cublaslt.version = {12, 8, 0};
  for (const fp8::RecipeTraits& row : fp8::kRecipeTraits)
    expect_finding(f, "cuBLASLt", row.cublaslt.minor == 9 ? Status::kFail : Status::kWarn,
                   "blockwise (12.9)", "", {.recipe = row.recipe});
}

TEST(JudgeLibraries, TwoOfOneName) {
  Facts f = healthy();
  f.libraries.nccl.other_file = "/usr/lib/x86_64-linux-gnu/libnccl.so.2";
  f.libraries.nccl.other_version = {2, 18, 3};
  expect_finding(f, "NCCL, twice", Status::kNote, "which is not used", "");
  f.environment["LD_LIBRARY_PATH"] = "/opt:/usr/lib/x86_64-linux-gnu";
  expect_finding(f, "NCCL, twice", Status::kWarn, "2.30.7 of torch, and 2.18.3",
                 "off LD_LIBRARY_PATH");
  f.libraries.nccl.other_version = f.libraries.nccl.version;
  EXPECT_FALSE(has_finding(judge(f, {}), "NCCL, twice"));
}

TEST(JudgeLibraries, TransformerEngine) {
  Facts f = healthy();
  f.libraries.te = {};
  expect_finding(f, "Transformer Engine", Status::kNote, "not found",
                 "pip install transformer_engine_cu13");
  expect_finding(f, "Transformer Engine", Status::kFail, "not found", "fp8_backend aten",
                 {.te = true});
  f = healthy();
  f.libraries.te.needed = {"libcudart.so.12"};
  expect_finding(f, "Transformer Engine", Status::kFail, "built for CUDA 12",
                 "transformer_engine_cu13");
  f = healthy();
  for (const Version& old : {Version{1, 13, 0}, Version{2, 4, 0}, Version{3, 0, 0}}) {
    f.libraries.te.version = old;
    expect_finding(f, "Transformer Engine", Status::kFail, old.text(), "transformer_engine_cu13");
  }
  f = healthy();
  f.libraries.te.problem = "no such file (OCTAVO_TE_LIBRARY)";
  expect_finding(f, "Transformer Engine", Status::kWarn, "no such file", "OCTAVO_TE_LIBRARY");
  f = healthy();
  f.libraries.nvrtc = {};
  expect_finding(f, "Transformer Engine", Status::kFail, "NVRTC, which is not found",
                 "./bootstrap");
}

}  // namespace
}  // namespace octavo::verify
