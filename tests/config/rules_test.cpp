#include "config/rules.h"

#include "config/expect_refused.h"

namespace octavo::config {
namespace {

void refused(const Words& words, std::initializer_list<std::string> parts,
             const Arguments& arguments = kTrainArguments) {
  expect_refused([&] { parse(words, arguments); }, parts);
}

TEST(Rules, ContradictionsAreRefusedWithReasonAndValues) {
  refused({"--max_steps", "10", "--num_epochs", "2"},
          {"both say how long", "max_steps: 10, num_epochs: 2", "one_length"});
  refused({"--max_steps", "10", "--warmup_steps", "11"},
          {"warmup_steps must not exceed max_steps", "warmup_fits"});
  refused({"--n_head", "3", "--n_embd", "128"},
          {"n_head must divide n_embd", "n_embd: 128, n_head: 3"});
  refused({"--model_name", "custom", "--n_layer", "2"}, {"give all three", "custom_has_sizes"});
  refused({"--val_fraction", "0"}, {"nothing to evaluate on", "evaluation_has_data"});
  for (const char* name :
       {"a/b", "..", ".", "a\nb", ".x", "latest", "best", "best_model", "step-00000010"})
    refused({"--run_name", name}, {"run_name_is_a_name"});
  refused({"--router_aux_loss_coef", "-0.5"}, {"or -1 for what", "balance_is_a_weight"});
  refused({"--min_lr_ratio", "1.5"}, {"wanted a number from 0 to 1", "found '1.5'"});
}

TEST(Rules, EightBitContradictions) {
  refused({"--use_fp8", "--mixed_precision", "fp32"},
          {"use_fp8: true, mixed_precision: fp32", "one_precision"});
  for (const char* recipe : {"current", "rowwise", "blockwise"})
    refused({"--fp8_scenario", "mxfp8", "--fp8_recipe", recipe}, {"one_recipe", recipe});
  for (const char* backend : {"aten", "rehearse"})
    refused({"--use_te", "--fp8_backend", backend}, {"one_backend", backend});
  refused({"--fp8_execution", "native", "--fp8_backend", "rehearse"}, {"native_is_no_rehearsal"});
  for (const Words& words :
       {Words{"--use_fp8"}, Words{"--use_fp8", "--mixed_precision", "fp8"},
        Words{"--mixed_precision", "fp8", "--use_te", "--fp8_scenario", "mxfp8"},
        Words{"--fp8_scenario", "mxfp8", "--fp8_recipe", "mxfp8"},
        Words{"--fp8_scenario", "none", "--fp8_recipe", "rowwise"},
        Words{"--use_te", "--fp8_backend", "te"}, Words{"--fp8_backend", "aten"},
        Words{"--fp8_execution", "native", "--fp8_backend", "te"},
        Words{"--fp8_execution", "rehearse", "--fp8_backend", "rehearse"}})
    EXPECT_NO_THROW(parse(words, kTrainArguments)) << words.front();
}

TEST(Rules, PathsOfThisMachineAreNoAddresses) {
  refused({"--checkpoint_dir", "s3://b/x"},
          {"checkpoint_dir: wanted a local path, found an address s3://…", "checkpoint_upload"});
  for (const char* key : {"--runs_dir", "--data_cache", "--trace"})
    refused({key, "gs://b/x"}, {"wanted a local path", "gs://…"});
  for (const char* path : {"./s3:/x", "/a/b://c", "s3", "://x"})
    EXPECT_NO_THROW(parse(Words{"--runs_dir", path}, kTrainArguments)) << path;
  EXPECT_NO_THROW(parse(Words{"--checkpoint_upload", "s3://b/x"}, kTrainArguments));
}

TEST(Rules, EveryBrokenRuleIsNamedAtOnce) {
  refused({"--max_steps", "10", "--num_epochs", "2", "--warmup_steps", "11"},
          {"one_length", "warmup_fits"});
}

TEST(Rules, WhatDoesNotContradictPasses) {
  for (const Words& words :
       {Words{"--max_steps", "10", "--warmup_steps", "10"},
        Words{"--num_epochs", "2", "--warmup_steps", "100"},
        Words{"--n_head", "4", "--n_embd", "128"}, Words{"--val_fraction", "0", "--eval_freq", "0"},
        Words{"--model_name", "custom", "--n_layer", "1", "--n_head", "1", "--n_embd", "8"},
        Words{"--run_name", "a..b"}, Words{"--router_aux_loss_coef", "-1"},
        Words{"--router_aux_loss_coef", "0"}})
    EXPECT_NO_THROW(parse(words, kTrainArguments)) << words.front();
}

TEST(Rules, OnlyTheVerbsOwnRulesCount) {
  EXPECT_NO_THROW(parse(Words{"--val_fraction", "0"}, {"data prepare", reader::kPrepare}));
}

TEST(Rules, NameOnlyKnownKeys) {
  for (const Rule& rule : rules()) {
    EXPECT_FALSE(rule.reason.empty());
    EXPECT_NO_THROW(contradictions(Settings{}, reader::kAll));
    EXPECT_TRUE(rule.holds(Settings{})) << rule.name << ": the defaults contradict themselves";
  }
}

}  // namespace
}  // namespace octavo::config
