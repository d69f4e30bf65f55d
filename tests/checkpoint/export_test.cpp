// Weights in eight bits, and the folders that they and others are written into.

#include "checkpoint/export_shards.h"
#include "checkpoint/hf_fp8.h"
#include "checkpoint/test_util.h"
#include "nn/fp8_weight.h"

namespace octavo::checkpoint {
namespace {

using nn::dequantize_weight;
using nn::Fp8Block;
using nn::Fp8Weight;
using nn::quantize_weight;

constexpr const char* kBlocks =
    R"({"model_type":"llama","quantization_config":{"quant_method":"fp8","fmt":"e4m3","weight_block_size":[128,128]}})";
constexpr const char* kChannels =
    R"({"quantization_config":{"quant_method":"compressed-tensors","format":"float-quantized","config_groups":{"g":{"weights":{"num_bits":8,"type":"float","strategy":"channel","symmetric":true}}}}})";

bool contains_text(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

at::Tensor random_matrix(int64_t rows, int64_t columns) {
  at::manual_seed(5);
  // Magnitudes of many powers of two, so that subnormal codes are reached too.
  return at::randn({rows, columns}) * at::exp2(at::randint(-12, 3, {rows, columns}));
}

// Half the distance of E4M3's neighbours at |w| / scale, times scale.
at::Tensor half_step(const at::Tensor& weight, const at::Tensor& scale) {
  const at::Tensor ratio = (weight.to(at::kDouble) / scale).abs().clamp(1e-30, 448);
  return at::exp2(at::floor(at::log2(ratio)).clamp_min(-6) - 4) * scale;
}

void expect_within_half_a_step(const at::Tensor& weight, const Fp8Block& block,
                               at::ScalarType scale_type) {
  const Fp8Weight made = quantize_weight(weight, block, scale_type, "w");
  const at::Tensor back = dequantize_weight(made.codes, made.scales, block);
  const at::Tensor scale = made.scales.to(at::kDouble)
                               .repeat_interleave(block.rows, 0)
                               .narrow(0, 0, weight.size(0))
                               .repeat_interleave(block.columns, 1)
                               .narrow(1, 0, weight.size(1));
  const at::Tensor error = (back.to(at::kDouble) - weight.to(at::kDouble)).abs();
  const at::Tensor allowed = half_step(weight, scale) + weight.abs().to(at::kDouble) * 1e-6;
  EXPECT_TRUE((error <= allowed).all().item<bool>());
  EXPECT_TRUE(at::equal(back, made.codes.to(at::kFloat) * scale.to(at::kFloat)));
}

TEST(ExportFp8, EveryWeightIsWithinHalfAStepInBlocksThatDoNotFit) {
  const at::Tensor weight = random_matrix(300, 200);
  expect_within_half_a_step(weight, {128, 128}, at::kFloat);
  expect_within_half_a_step(weight, {1, 200}, at::kBFloat16);
  const Fp8Weight made = quantize_weight(weight, {128, 128}, at::kFloat, "w");
  EXPECT_EQ(made.scales.sizes(), at::IntArrayRef({3, 2}));
  EXPECT_EQ(made.scales[2][1].item<float>(),
            weight.slice(0, 256).slice(1, 128).abs().max().item<float>() / 448);
}

TEST(ExportFp8, ZerosTinyNumbersAndOthersThatAreNone) {
  at::Tensor weight = at::zeros({2, 4});
  weight[1][0] = 1e-42;  // a subnormal float
  const Fp8Weight made = quantize_weight(weight, {1, 4}, at::kFloat, "w");
  EXPECT_EQ(made.scales[0][0].item<float>(), 1);
  EXPECT_TRUE(at::isfinite(dequantize_weight(made.codes, made.scales, {1, 4})).all().item<bool>());
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), HUGE_VAL, -HUGE_VAL}) {
    weight[0][3] = bad;
    const std::string message = error_of(ExitCode::kDamaged, [&] {
      quantize_weight(weight, {2, 4}, at::kFloat, "q_proj");
    });
    EXPECT_TRUE(contains_text(message, "q_proj")) << message;
  }
}

struct Fp8Folder : Scratch {
  Fp8Folder(const std::string& config, const NamedTensors& tensors) {
    write_text(*this / "config.json", config);
    write_safetensors(*this / "model.safetensors", tensors, {{"format", "pt"}});
  }
  std::string refused(ExitCode code) {
    return error_of(code, [&] { HfWeights(path()).tensor("a.weight"); });
  }
};

TEST(HfFp8, ReadsBlocksAndChannelsAndHidesTheScales) {
  const at::Tensor weight = random_matrix(200, 130);
  const at::Tensor norm = at::ones({7}, at::kBFloat16);
  for (const bool is_block : {true, false}) {
    const Fp8Block block = is_block ? Fp8Block{128, 128} : Fp8Block{1, 130};
    const auto made = quantize_weight(weight, block, is_block ? at::kFloat : at::kBFloat16, "w");
    const Fp8Folder folder(is_block ? kBlocks : kChannels,
                           {{"a.weight", made.codes},
                            {is_block ? "a.weight_scale_inv" : "a.weight_scale", made.scales},
                            {"norm.weight", norm}});
    const HfWeights weights(folder.path());
    EXPECT_EQ(weights.names(), (std::vector<std::string>{"a.weight", "norm.weight"}));
    EXPECT_EQ(weights.in_eight_bits(), 1);
    EXPECT_FALSE(weights.contains("a.weight_scale"));
    EXPECT_FALSE(weights.contains("a.weight_scale_inv"));
    EXPECT_TRUE(
        same_bits(weights.tensor("a.weight"), dequantize_weight(made.codes, made.scales, block)));
    EXPECT_TRUE(same_bits(weights.tensor("norm.weight"), norm));
  }
}

TEST(HfFp8, WhatCannotBeDecodedIsRefused) {
  const auto made = quantize_weight(random_matrix(200, 130), {128, 128}, at::kFloat, "w");
  const std::pair<std::string, at::Tensor> codes{"a.weight", made.codes},
      scales{"a.weight_scale_inv", made.scales};
  using E = ExitCode;
  EXPECT_TRUE(contains_text(Fp8Folder(kBlocks, {codes}).refused(E::kDamaged), "scale_inv"));
  EXPECT_TRUE(contains_text(Fp8Folder("{}", {codes, scales}).refused(E::kDamaged), "config"));
  EXPECT_TRUE(contains_text(
      Fp8Folder(kBlocks, {codes, {scales.first, at::ones({2, 1})}}).refused(E::kDamaged),
      "[2, 1]"));
  EXPECT_TRUE(contains_text(
      Fp8Folder(kBlocks, {codes, {scales.first, at::ones({2, 2}, at::kInt)}}).refused(E::kDamaged),
      "scale"));
  EXPECT_TRUE(
      contains_text(Fp8Folder(kBlocks, {{"a.weight", made.codes.view(at::kFloat8_e5m2)}, scales})
                        .refused(E::kDamaged),
                    "E5M2"));
  EXPECT_TRUE(contains_text(
      Fp8Folder(R"({"quantization_config":{"quant_method":"gptq"}})", {codes}).refused(E::kUsage),
      "gptq"));
  EXPECT_TRUE(contains_text(
      Fp8Folder("{}", {{"a.weight", at::ones({2, 2}, at::kChar)}}).refused(E::kDamaged), "I8"));
  for (const char* block : {"[0,128]", "[128]", "[-1,1]", "\"x\"", "[1e9,1]", "[4000000000,1]"}) {
    const std::string config = octavo::str(
        R"({"quantization_config":{"quant_method":"fp8","weight_block_size":)", block, "}}");
    EXPECT_TRUE(contains_text(Fp8Folder(config, {codes, scales}).refused(E::kDamaged), "block"));
  }
}

TEST(ExportShards, AreFilledInOrderAndTheirIndexOpens) {
  const Scratch folder;
  write_text(folder / "config.json", "{}");
  NamedTensors outlines;
  for (const char* name : {"d", "c", "b", "a"})
    outlines.emplace_back(name, at::empty({10}, at::TensorOptions(at::kMeta).dtype(at::kFloat)));
  std::vector<std::string> asked;
  const auto produce = [&](const std::string& name) {
    asked.push_back(name);
    return at::full({10}, static_cast<double>(name[0]));
  };
  write_hf_weights(folder.path(), outlines, produce, 90);
  EXPECT_EQ(asked, (std::vector<std::string>{"c", "d", "a", "b"}));  // by name within a shard
  EXPECT_FALSE(fs::exists(folder / "model.safetensors"));
  const HfModel model = open_hf_model(folder.path());
  EXPECT_EQ(model.shards.size(), 2);
  EXPECT_EQ(model.shard_of.at("d"), model.shard_of.at("c"));
  EXPECT_EQ(model.shards[model.shard_of.at("a")].path().filename(),
            "model-00002-of-00002.safetensors");
  EXPECT_EQ(model.tensor("b")[9].item<float>(), 'b');
  const Json index = read_json(folder / "model.safetensors.index.json");
  EXPECT_EQ(index.at("metadata").at("total_size"), 160);
}

}  // namespace
}  // namespace octavo::checkpoint
