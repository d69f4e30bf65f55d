#pragma once
// A real run, small enough to be built and stepped in a test: bytes, two layers, real shards.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <memory>
#include <string>

#include "base/file.h"
#include "scratch.h"
#include "train/run.h"
#include "train/state/persist.h"
#include "train/step.h"

namespace octavo::train {

class TrainTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 400; ++i)
      text += "line " + std::to_string(i * 7 % 100) + " of a text that repeats itself\n";
    write_file_atomic(folder / "text.txt", text);
  }
  config::Settings settings() const {
    config::Settings s;
    s.model_name = "custom";
    s.n_layer = 2;
    s.n_head = 2;
    s.n_embd = 32;
    s.max_seq_length = 16;
    s.dataset = {(folder / "text.txt").string()};
    s.data_cache = (folder / "cache").string();
    s.tokenizer = "bytes";
    s.batch_size = 4;
    s.max_steps = 50;
    s.learning_rate = 1e-2;
    s.mixed_precision = config::Precision::kFp32;
    s.eval_batches = 4;
    return s;
  }
  static std::unique_ptr<train::Run> start(const config::Settings& s) { return assemble(s); }
  // The settings of a run whose first step is in a checkpoint, and that run.
  std::pair<config::Settings, std::unique_ptr<train::Run>> saved_run() const {
    auto s = settings();
    s.checkpoint_dir = (folder / "checkpoints").string();
    auto run = start(s);
    train_step(*run);
    save(*run, "saved", false, nullptr);
    return {s, std::move(run)};
  }
  Scratch scratch;
  const fs::path& folder = scratch.path();
};

}  // namespace octavo::train
