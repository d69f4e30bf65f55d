#include "monitor/metric_file.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "scratch.h"

namespace octavo::monitor {
namespace {

TEST(MetricFile, IsReadAsItGrowsAndAgainWhenItWasCut) {
  const Scratch folder;
  const fs::path path = folder / "m.jsonl";
  const std::string one = "{\"step\":1,\"val/loss\":2.5}\n";
  std::ofstream(path) << one << "{\"step\":2,\"train/loss\":9}\n{\"step\":2,\"val/lo";
  MetricFile file(path, "val/loss");
  file.update();
  EXPECT_EQ(file.values(), (std::vector<double>{2.5}));
  std::ofstream(path, std::ios::app) << "ss\":1.5}\n{\"step\":3,\"val/loss\":null}\n";
  file.update();
  EXPECT_EQ(file.values(), (std::vector<double>{2.5, 1.5, INFINITY}));  // it diverged
  std::ofstream(path) << one;
  file.update();
  EXPECT_EQ(file.values(), (std::vector<double>{2.5}));
}

}  // namespace
}  // namespace octavo::monitor
