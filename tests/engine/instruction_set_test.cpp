// Which implementations a CPU gets, and that OCTAVO_CPU_ISA is obeyed or refused.

#include "engine/cpu/instruction_set.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/cpu/gemm.h"
#include "engine/engine.h"
#include "expect_failure.h"

namespace octavo::engine {
namespace {

const Choice* choice_of(const Engine& engine, std::string_view op) {
  for (const Choice& choice : engine.choices)
    if (choice.op == op) return &choice;
  return nullptr;
}

std::string refusal_of(const Choice& choice, std::string_view implementation) {
  for (const auto& refused : choice.refused)
    if (refused.implementation == implementation) return refused.reason;
  return "not refused";
}

struct ExpectedChoice {
  const char *op, *with_units, *without;
};
const ExpectedChoice kExpected[] = {
    {"matmul", "cpu/onednn", cpu::onednn_missing().empty() ? "cpu/onednn_fp32" : "cpu/blas_fp32"},
    {"fp8_linear", "cpu/rehearsal", "cpu/rehearsal_fp32"},
    {"attention", "cpu/blocks", "cpu/blocks_fp32"}};

TEST(InstructionSet, WithoutBf16UnitsGemmsAreFp32AndTheReceiptSaysWhy) {
  const Engine engine(Target{.bf16_units = Bf16Units::kAbsent});
  for (const ExpectedChoice& w : kExpected) {
    const Choice* choice = choice_of(engine, w.op);
    ASSERT_NE(choice, nullptr) << w.op;
    EXPECT_EQ(choice->implementation, w.without);
    EXPECT_EQ(refusal_of(*choice, w.with_units), "the CPU has no BF16 units");
  }
}

TEST(InstructionSet, WhatIsChosenHereExistsHere) {
  const Engine engine(Target{});
  const bool by_units = cpu::fastest_operands() == cpu::GemmOperands::kBf16;
  for (const ExpectedChoice& w : kExpected) {
    const Choice* choice = choice_of(engine, w.op);
    ASSERT_NE(choice, nullptr) << w.op;
    EXPECT_EQ(choice->implementation, by_units ? w.with_units : w.without);
    if (by_units) continue;
    const std::string wanted = cpu::onednn_missing().empty() ? cpu::gemm_instruction_set()
                                                             : std::string(cpu::onednn_missing());
    const std::string said = refusal_of(*choice, w.with_units);
    EXPECT_NE(said.find(wanted), std::string::npos) << said;
  }
}

// With the variable set, as tests/integration/instruction_sets.py sets it.
TEST(InstructionSet, KernelsStayWithinTheVariable) {
  const char* limit = std::getenv("OCTAVO_CPU_ISA");
  if (limit == nullptr) GTEST_SKIP() << "OCTAVO_CPU_ISA is not set";
  const std::string name(limit), found = cpu::kernel_instruction_set();
  if (name == "SSE41" || name == "AVX2") EXPECT_NE(found, "AVX3");
  if (name == "SSE41") EXPECT_NE(found, "AVX2");
}

TEST(InstructionSet, AnUnknownNameIsRefused) {
  expect_failure(
      ExitCode::kUsage,
      "OCTAVO_CPU_ISA: wanted SSE41, AVX2, AVX512_CORE or AVX512_CORE_BF16, found 'AVX3'",
      [] { cpu::limit_instruction_set_to("AVX3"); });
}

}  // namespace
}  // namespace octavo::engine
