#pragma once
// A run's folder as train would leave it, with losses that a test chooses.

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "scratch.h"

namespace octavo::compare {

class ScratchTest : public testing::Test {
 protected:
  Scratch scratch_;
  const fs::path folder_ = scratch_.path();
};

struct SyntheticRun {
  std::string name;
  int64_t steps = 400;
  std::function<double(int64_t)> loss = [](int64_t) { return 2.0; };
  std::function<double(int64_t)> seconds = [](int64_t step) {
    return 0.1 + 0.001 * static_cast<double>(step % 7);
  };
  std::string precision = "BF16", device = "cpu", status = "done", settings = "seed: 1\n";
  int64_t eval_freq = 20;  // 0: none
  int64_t step_tokens = 512;
  std::function<double(int64_t)> validation;  // without it: the training loss
};

inline fs::path make_run(const fs::path& parent, const SyntheticRun& run) {
  const fs::path folder = parent / run.name;
  fs::create_directories(folder);
  std::string lines;
  for (int64_t step = 1; step <= run.steps; ++step) {
    const double loss = run.loss(step);
    lines +=
        str("{\"step\":", step, ",\"train/loss\":", loss == loss ? str(loss) : "null",
            ",\"perf/step_seconds\":", run.seconds(step), ",\"tokens\":", step * run.step_tokens,
            ",\"memory/peak_bytes\":1000000,\"precision\":\"", run.precision, "\"}\n");
    if (run.eval_freq > 0 && step % run.eval_freq == 0) {
      const double value = run.validation ? run.validation(step) : loss;
      lines +=
          str("{\"step\":", step, ",\"val/loss\":", value == value ? str(value) : "null", "}\n");
    }
  }
  write_file_atomic(folder / "metrics.jsonl", lines);
  write_file_atomic(folder / "config.yaml", run.settings);
  write_file_atomic(folder / "receipt.json",
                    str("{\"status\":\"", run.status, "\",\"device\":\"", run.device,
                        "\",\"fp8\":{\"flops_share\":0.75,\"fallbacks\":[]}}"));
  return folder;
}

}  // namespace octavo::compare
