#include "train/reporting/expert_load.h"

#include <gtest/gtest.h>

#include "monitor/metrics.h"

namespace octavo::train {
namespace {

// Two layers of four experts, a token has two; three micro-batches of ten tokens together.
TEST(ExpertLoad, OfCountsByHand) {
  monitor::StepRecord record;
  report_experts({.layers = 2, .experts = 4, .active = 2},
                 {7.5, 0.6, /*first*/ 15, 15, 15, 15, /*second*/ 0, 30, 6, 24}, 3, record);
  EXPECT_EQ(record.balance_loss, 2.5);
  EXPECT_NEAR(record.router_z, 0.2, 1e-12);
  ASSERT_EQ(record.expert_loads.size(), 2u);
  const auto &even = record.expert_loads[0], &uneven = record.expert_loads[1];
  EXPECT_EQ(even.busiest_share, 0.5);
  EXPECT_EQ(even.even_share, 0.5);
  EXPECT_EQ(even.largest, 1);
  EXPECT_EQ(even.idle, 0);
  EXPECT_EQ(uneven.busiest_share, 0.9);
  EXPECT_EQ(uneven.largest, 2);
  EXPECT_EQ(uneven.idle, 1);
  EXPECT_EQ(even.token_shares, std::vector<double>(4, 0.5));
  EXPECT_EQ(uneven.token_shares, (std::vector<double>{0, 1, 0.2, 0.8}));
  int64_t found = 0;
  for (const auto& metric : monitor::metrics_of(record)) {
    if (metric.name == "moe/largest_load") found += metric.value == 2 ? 1 : 100;
    if (metric.name == "moe/busiest_share") found += metric.value == 0.9 ? 1 : 100;
    if (metric.name == "moe/idle_experts") found += metric.value == 1 ? 1 : 100;
    if (metric.name == "moe/fullest_share") found += metric.value == 1 ? 1 : 100;
    if (metric.name == "moe/emptiest_share") found += metric.value == 0 ? 1 : 100;
  }
  EXPECT_EQ(found, 5);
}

}  // namespace
}  // namespace octavo::train
