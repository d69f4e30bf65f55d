#include "train/reporting/expert_load.h"

#include <gtest/gtest.h>

#include "monitor/metrics.h"
#include "train/reporting/fp8_report.h"
#include "train/tiny_run.h"

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

class ExpertRun : public TrainTest {
 protected:
  static constexpr int kExperts = 4, kLayers = 2, kSteps = 2;

  config::Settings experts(config::Precision precision) const {
    fs::create_directories(folder / "shape");
    write_file_atomic(folder / "shape" / "config.json",
                      R"({"model_type": "qwen3_moe", "num_hidden_layers": 2, "hidden_size": 64,
            "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2,
            "head_dim": 32, "vocab_size": 257, "num_experts": 4, "num_experts_per_tok": 2,
            "moe_intermediate_size": 32, "norm_topk_prob": true, "hidden_act": "silu",
            "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
            "tie_word_embeddings": false})");
    config::Settings s = settings();
    s.n_layer = s.n_head = s.n_embd = 0;
    s.model_name = (folder / "shape").string();
    s.init_from = "random";
    s.mixed_precision = precision;
    return s;
  }
  // The lines of experts, and that all lines have all FLOPs.
  static std::vector<Json> lines_of_experts(const config::Settings& s) {
    const auto run = start(s);
    for (int i = 0; i < kSteps; ++i) train_step(*run);
    std::vector<Json> found;
    double shares = 0;
    const Json receipt = fp8_receipt(run->trained, run->settings.max_seq_length);
    for (const Json& line : receipt["gemms"]) {
      shares += line["flops_share"].get<double>();
      if (line["layer"].get<std::string>().find(".experts.") != std::string::npos)
        found.push_back(line);
    }
    EXPECT_NEAR(shares, 1, 1e-12);
    return found;
  }
};

TEST_F(ExpertRun, TheReceiptHasALineForTheExpertsOfALayer) {
  const auto lines = lines_of_experts(experts(config::Precision::kFp8));
  ASSERT_EQ(lines.size(), size_t{kLayers * 2 * 3});
  EXPECT_EQ(lines[0]["layer"], "layers.0.mlp.experts.*.gate_up_proj");
  for (const Json& line : lines) {
    EXPECT_EQ(line["layers"], kExperts) << line;
    EXPECT_EQ(line["ran_fp8"], kExperts * kSteps) << line;
    EXPECT_EQ(line["recipe"], name_of(settings().fp8_recipe)) << line;
  }
}

TEST_F(ExpertRun, AnExpertThatDiffersHasALineOfItsOwn) {
  auto s = experts(config::Precision::kFp8);
  s.fp8_skip = {"layers.1.mlp.experts.2.*"};
  int others = 0, own = 0;
  for (const Json& line : lines_of_experts(s)) {
    if (line["reason"] == "") {
      EXPECT_TRUE(line["layers"] == 4 || line["layers"] == 3) << line;
      others += line["layers"].get<int>();
    } else {
      EXPECT_TRUE(line["layer"].get<std::string>().starts_with("layers.1.mlp.experts.2."));
      EXPECT_FALSE(line.contains("layers")) << line;
      ++own;
    }
  }
  EXPECT_EQ(own, 2 * 3);
  EXPECT_EQ(others, (kLayers * kExperts - 1) * 2 * 3);
}

}  // namespace
}  // namespace octavo::train
