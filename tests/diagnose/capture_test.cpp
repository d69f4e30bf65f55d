#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "checkpoint/safetensors.h"
#include "diagnose/captured.h"
#include "fp8/quantize.h"
#include "scratch.h"

namespace octavo::diagnose {
namespace {

constexpr int64_t kCaptureTokens = 160, kCaptureInputs = 256, kCaptureOutputs = 128;

Json layer_entry() {
  return {{"name", "model.layers.0.mlp.up_proj"},
          {"class", "Linear"},
          {"layout", "out_in"},
          {"calls", 1},
          {"tied_to", nullptr},
          {"file", "layer-00000.safetensors"},
          {"outputs", kCaptureOutputs},
          {"inputs", kCaptureInputs},
          {"tokens", kCaptureTokens},
          {"trainable", true},
          {"token_groups", {0, 1}},
          {"output_groups", {0}}};
}

Json capture_json(const Json& layers) {
  return {{"format", "octavo-capture"},
          {"version", 1},
          {"model", "LlamaForCausalLM"},
          {"torch", "2.15.0"},
          {"step", 3},
          {"sampling", {{"rows", 512}, {"group", 128}}},
          {"layers", layers},
          {"not_captured", {{{"name", "visual"}, {"why", "a Conv2d"}}}}};
}

CaptureManifest parse_layer_entry(const Json& layer) {
  return parse_capture(capture_json(Json::array({layer})).dump(), "capture.json");
}

at::Tensor captured_tensor(at::IntArrayRef sizes, uint64_t seed, double scale) {
  at::manual_seed(seed);
  return (at::randn(sizes) * scale).to(at::kBFloat16);
}

void write_capture(const fs::path& folder, const at::Tensor& x, const at::Tensor& w,
                   const at::Tensor& dy) {
  checkpoint::write_safetensors(folder / "layer-00000.safetensors",
                                {{"input", x}, {"weight", w}, {"gradient", dy}}, {});
  write_file_atomic(folder / kCaptureManifest, capture_json(Json::array({layer_entry()})).dump());
}

TEST(Capture, ReadsItsManifest) {
  const CaptureManifest found = parse_layer_entry(layer_entry());
  EXPECT_EQ(found.model, "LlamaForCausalLM");
  EXPECT_EQ(found.step, 3);
  ASSERT_EQ(found.layers.size(), 1U);
  EXPECT_EQ(found.layers[0].saved_tokens(), 160);  // the second group is short
  EXPECT_EQ(found.layers[0].saved_outputs(), 128);
  EXPECT_FALSE(found.layers[0].is_sampled());
  ASSERT_EQ(found.not_captured.size(), 1U);
  EXPECT_EQ(found.not_captured[0].why, "a Conv2d");

  Json sampled = layer_entry();
  sampled["tokens"] = 1000;
  sampled["token_groups"] = {1, 7};  // 7 is the last, of 104 rows
  EXPECT_EQ(parse_layer_entry(sampled).layers[0].saved_tokens(), 128 + 104);
  EXPECT_TRUE(parse_layer_entry(sampled).layers[0].is_sampled());
}

TEST(Capture, HostileManifestsAreRefused) {
  const std::vector<std::pair<const char*, Json>> wrong = {
      {"file", "../layer-00000.safetensors"},
      {"file", "/etc/passwd"},
      {"file", "layer-.safetensors"},
      {"file", "layer-0/0.safetensors"},
      {"file", 7},
      {"name", "a\"}; import os"},
      {"name", ""},
      {"name", "a\nb"},
      {"name", std::string(600, 'a')},
      {"layout", "diagonal"},
      {"outputs", 0},
      {"outputs", -5},
      {"inputs", int64_t{1} << 62},
      {"inputs", int64_t{1} << 39},  // times 160 tokens
      {"tokens", 1.5},
      {"trainable", "yes"},
      {"token_groups", Json::array()},
      {"token_groups", {1, 0}},
      {"token_groups", {0, 0}},
      {"token_groups", {0, 2}},  // 160 tokens have two groups
      {"token_groups", {-1}},
      {"output_groups", {"0"}},
  };
  for (const auto& [field, value] : wrong) {
    Json layer = layer_entry();
    layer[field] = value;
    EXPECT_THROW(parse_layer_entry(layer), Error) << field << " " << value.dump();
    layer.erase(field);
    EXPECT_THROW(parse_layer_entry(layer), Error) << "without " << field;
  }
  const Json layer = layer_entry();
  EXPECT_THROW(parse_capture(capture_json(Json::array({layer, layer})).dump(), "twice"), Error);
  EXPECT_THROW(parse_capture(capture_json(Json::array()).dump(), "empty"), Error);
  Json later = capture_json(Json::array({layer}));
  later["version"] = 2;
  EXPECT_THROW(parse_capture(later.dump(), "later"), Error);
  EXPECT_THROW(parse_capture("[]", "list"), Error);
}

TEST(Capture, TensorsMustBeThoseOfTheManifest) {
  const Scratch scratch;
  const at::Tensor x = captured_tensor({kCaptureTokens, kCaptureInputs}, 1, 1),
                   w = captured_tensor({kCaptureOutputs, kCaptureInputs}, 2, 0.02),
                   dy = captured_tensor({kCaptureTokens, kCaptureOutputs}, 3, 1e-4);
  EXPECT_THROW(diagnose_capture(scratch.path(), {}), Error);  // no manifest
  write_capture(scratch.path(), x, w, dy);
  EXPECT_EQ(diagnose_capture(scratch.path(), {}).layers.size(), 1U);
  write_capture(scratch.path(), x.slice(0, 0, 128), w, dy);
  EXPECT_THROW(diagnose_capture(scratch.path(), {}), Error);
  write_capture(scratch.path(), x, w.to(at::kInt), dy);
  EXPECT_THROW(diagnose_capture(scratch.path(), {}), Error);
  write_capture(scratch.path(), x, w, dy.flatten());
  EXPECT_THROW(diagnose_capture(scratch.path(), {}), Error);
}

TEST(Capture, FiguresAreThoseOfPlainLoops) {
  const Scratch scratch;
  const at::Tensor x = captured_tensor({kCaptureTokens, kCaptureInputs}, 4, 1),
                   w = captured_tensor({kCaptureOutputs, kCaptureInputs}, 5, 0.02),
                   dy = captured_tensor({kCaptureTokens, kCaptureOutputs}, 6, 1e-4);
  write_capture(scratch.path(), x.to(at::kFloat), w, dy);
  const CapturedDiagnosis found = diagnose_capture(scratch.path(), {});
  int compared = 0;
  for (const VariantStats& v : found.layers.front().variants)
    for (const TensorStats& t : v.tensors) {
      if (fp8::is_fp4(v.variant.recipe)) continue;  // fp4_linear_test has its statistics
      const at::Tensor& of = t.role == fp8::Role::kInput    ? x
                             : t.role == fp8::Role::kWeight ? w
                                                            : dy;
      const at::Tensor values = of.to(at::kFloat).contiguous();
      const std::span<const float> span(values.const_data_ptr<float>(),
                                        static_cast<size_t>(values.numel()));
      const fp8::Side side = side_of(v.variant.recipe, v.variant.format, t.role, t.direction);
      const float given =
          factor_from_amax(v.variant, side.format, of.abs().max().to(at::kFloat).item<float>());
      const auto made =
          fp8::quantize(v.variant.recipe, side, t.direction, {span, of.size(0), of.size(1)}, given);
      const auto back = fp8::dequantize(made, of.size(1));
      double signal = 0, noise = 0;
      for (size_t i = 0; i < span.size(); ++i) {
        signal += std::pow(static_cast<double>(span[i]), 2);
        noise += std::pow(static_cast<double>(span[i]) - static_cast<double>(back[i]), 2);
      }
      EXPECT_NEAR(t.health.sqnr_db(), 10 * std::log10(signal / noise), 1e-3) << name_of(v.variant);
      EXPECT_EQ(t.health.incidents.underflowed, made.incidents.underflowed);
      ++compared;
    }
  EXPECT_GE(compared, 3 * static_cast<int>(fp8::kRecipeTraits.size()));
  EXPECT_FALSE(is_sick(found));
  EXPECT_NE(text_of(found).find("verdict: healthy"), std::string::npos) << text_of(found);
}

TEST(Capture, ALayerWithAnOutlierIsKeptInBf16) {
  const Scratch scratch;
  at::Tensor x = captured_tensor({kCaptureTokens, kCaptureInputs}, 7, 1e-3);
  x[3][5] = 3e4;
  write_capture(scratch.path(), x, captured_tensor({kCaptureOutputs, kCaptureInputs}, 8, 0.02),
                captured_tensor({kCaptureTokens, kCaptureOutputs}, 9, 1e-4));
  const CapturedDiagnosis found = diagnose_capture(scratch.path(), {});
  EXPECT_TRUE(is_sick(found));
  const auto kept = kept_in_bf16(found.layers, variant_of(found.chosen));
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_TRUE(kept[0].is_sick);
  EXPECT_NE(kept[0].why.find("underflowed"), std::string::npos) << kept[0].why;
  const Json json = json_of(found);
  EXPECT_EQ(json["verdict"], "sick");
  for (const Json& recipe : json["recipes"])
    EXPECT_EQ(recipe["keep_in_bf16"].size(), recipe["sick"].get<size_t>()) << recipe["variant"];
  EXPECT_NE(text_of(found).find("fp8_skip: [layers.0.mlp.gate_up_proj]"), std::string::npos)
      << text_of(found);
}

TEST(Capture, FiltersNameWhatTheTrainerHas) {
  EXPECT_EQ(octavo_name("model.layers.3.self_attn.k_proj"), "layers.3.self_attn.qkv_proj");
  EXPECT_EQ(octavo_name("model.layers.3.mlp.down_proj"), "layers.3.mlp.down_proj");
  EXPECT_EQ(octavo_name("transformer.h.0.attn.c_attn"), "h.0.attn.c_attn");
  EXPECT_EQ(octavo_name("layers.1.feed_forward.w3"), "layers.1.mlp.gate_up_proj");
  EXPECT_EQ(octavo_name("lm_head"), "");
  const Filters filters =
      filters_for({{"model.layers.0.self_attn.q_proj", "input: 12 NaN", true},
                   {"model.layers.0.self_attn.v_proj", "input: 12 NaN", true},
                   {"model.layers.0.mlp.up_proj", "outputs 704 is not a multiple of 128", false},
                   {"lm_head", "outputs 1000 is not a multiple of 16", false}});
  EXPECT_NE(filters.torchao.find("    \"lm_head\",  # outputs 1000"), std::string::npos);
  EXPECT_NE(filters.torchao.find("module_filter_fn"), std::string::npos);
  EXPECT_NE(filters.transformer_engine.find("fp8_autocast(enabled=False)"), std::string::npos);
  EXPECT_EQ(filters.octavo, "fp8_skip: [layers.0.self_attn.qkv_proj]\n");
}

}  // namespace
}  // namespace octavo::diagnose
