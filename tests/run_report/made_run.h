#pragma once
// A run's folder for tests, as train writes it.

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "base/error.h"
#include "base/json.h"
#include "run_report/page.h"
#include "scratch.h"

namespace octavo::run_report {

class RunFolderTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((scratch_ / name).parent_path());
    std::ofstream(scratch_ / name, std::ios::binary) << text;
  }

  static Json step(int64_t number, double loss) {
    return {{"step", number},
            {"train/loss", std::isfinite(loss) ? Json(loss) : Json()},
            {"train/learning_rate", 1e-3},
            {"train/grad_norm", 0.5},
            {"perf/step_seconds", 0.5},
            {"perf/tokens_per_second", 2000},
            {"data/wait", 0.1},
            {"goodput", 0.4},
            {"memory/peak_bytes", 1 << 20},
            {"memory/kept_bytes", 1 << 19},
            {"tokens", 1000 * number},
            {"precision", "FP8 rehearsal"}};
  }

  static Json tensor(const std::string& layer, const std::string& name, double sqnr,
                     const std::string& trouble = "") {
    return {{"layer", layer},
            {"tensor", name},
            {"amax", 4.0},
            {"scale", 64.0},
            {"sqnr_db", sqnr},
            {"underflow_percent", 2.5},
            {"saturation_percent", 0.0},
            {"trouble", trouble}};
  }

  std::string lines(int64_t steps) const {
    std::string text;
    for (int64_t i = 1; i <= steps; ++i)
      text += step(i, 4 - 0.001 * static_cast<double>(i)).dump() + "\n";
    return text;
  }

  RunContents read() const { return read_contents(scratch_.path()); }

  Scratch scratch_;
};

}  // namespace octavo::run_report
