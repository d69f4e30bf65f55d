#include "checkpoint/hf.h"

#include "base/log.h"
#include "checkpoint/test_util.h"

namespace octavo::checkpoint {
namespace {

struct HfFolder : Scratch {
  HfFolder() { write_text(*this / "config.json", R"({"model_type":"gpt2","n_layer":2})"); }
  void shard(const std::string& name, const NamedTensors& tensors) {
    write_safetensors(*this / name, tensors, {{"format", "pt"}});
  }
  void index(const std::string& weight_map) {
    write_text(*this / "model.safetensors.index.json",
               R"({"metadata":{"total_size":8},"weight_map":)" + weight_map + "}");
  }
  std::string refused(ExitCode code = ExitCode::kDamaged) {
    return error_of(code, [&] { open_hf_model(path()); });
  }
};

TEST(HuggingFace, SingleFile) {
  HfFolder folder;
  folder.shard("model.safetensors", {{"wte.weight", at::arange(6, at::kFloat).view({2, 3})}});
  at::Tensor view;
  {
    HfModel model = open_hf_model(folder.path());
    EXPECT_EQ(model.config.at("n_layer"), 2);
    EXPECT_TRUE(model.contains("wte.weight"));
    EXPECT_EQ(model.info("wte.weight").shape, (std::vector<int64_t>{2, 3}));
    view = model.tensor("wte.weight");
    std::string message = error_of(ExitCode::kDamaged, [&] { model.tensor("wte.weigth"); });
    EXPECT_TRUE(has(message, "nearest is \"wte.weight\"")) << message;
  }
  EXPECT_EQ(view[1][2].item<float>(), 5.f);
}

TEST(HuggingFace, ShardsByIndexThroughLinksAsInTheCache) {
  HfFolder folder;
  fs::create_directory(folder / "blobs");
  folder.shard("blobs/one", {{"a", at::full({2}, 1.f)}, {"b", at::full({2}, 2.f)}});
  folder.shard("blobs/two", {{"c", at::full({2}, 3.f)}});
  fs::create_symlink("blobs/one", folder / "m-1.safetensors");
  fs::create_symlink("blobs/two", folder / "m-2.safetensors");
  folder.index(R"({"a":"m-1.safetensors","b":"m-1.safetensors","c":"m-2.safetensors"})");
  HfModel model = open_hf_model(folder.path());
  EXPECT_EQ(model.shards.size(), 2);
  EXPECT_EQ(model.tensor("b")[0].item<float>(), 2.f);
  EXPECT_EQ(model.tensor("c")[1].item<float>(), 3.f);
}

TEST(HuggingFace, ShardNamesThatLeaveTheFolderAreRefused) {
  HfFolder outer;
  fs::create_directory(outer / "inner");
  outer.shard("outside.safetensors", {{"a", at::ones({1})}});
  outer.shard("inner/sound.safetensors", {{"a", at::ones({1})}});
  write_text(outer / "inner/config.json", "{}");
  std::string absolute = (outer / "outside.safetensors").string();
  for (const std::string& name :
       {std::string("../outside.safetensors"), std::string("./../outside.safetensors"), absolute,
        std::string("x/../../outside.safetensors"), std::string(""), std::string("."),
        std::string(".."), std::string("..\\\\outside.safetensors"),
        std::string("sub/x.safetensors"), std::string("sound.safetensors\\u0000"),
        std::string("config.json"), std::string("model.bin")}) {
    SCOPED_TRACE(name);
    write_text(outer / "inner/model.safetensors.index.json",
               R"({"weight_map":{"a":")" + name + "\"}}");
    std::string message = error_of(ExitCode::kDamaged, [&] { open_hf_model(outer / "inner"); });
    EXPECT_TRUE(has(message, "refused")) << message;
  }
}

TEST(HuggingFace, IndexMustAgreeWithShards) {
  HfFolder folder;
  folder.shard("m-1.safetensors", {{"a", at::ones({1})}});
  folder.shard("m-2.safetensors", {{"b", at::ones({1})}});
  folder.shard("m-3.safetensors", {{"b", at::ones({1})}});
  folder.index(R"({"a":"m-1.safetensors","b":"m-1.safetensors"})");
  EXPECT_TRUE(has(folder.refused(), "does not have it"));
  folder.index(R"({"a":"m-1.safetensors","zz":"m-2.safetensors"})");
  EXPECT_TRUE(has(folder.refused(), "does not have it"));
  folder.index(R"({"a":"m-1.safetensors","b":"m-9.safetensors"})");
  EXPECT_TRUE(has(folder.refused(), "wanted shard m-9"));
  folder.index(R"({"b":"m-2.safetensors","c":"m-3.safetensors"})");
  EXPECT_TRUE(has(folder.refused(), "also in m-2"));
  folder.index(R"({"a":"m-1.safetensors","a":"m-1.safetensors"})");
  EXPECT_TRUE(has(folder.refused(), "twice"));
  folder.index(R"({"a":1})");
  EXPECT_TRUE(has(folder.refused(), "wanted a file name"));
  folder.index("[]");
  EXPECT_TRUE(has(folder.refused(), "weight_map"));
  folder.index(R"({"a":"m-1.safetensors"})");
  EXPECT_NO_THROW(open_hf_model(folder.path()));
  folder.shard("m-1.safetensors", {{"a", at::ones({1})}, {"extra", at::ones({1})}});
  EXPECT_TRUE(has(folder.refused(), "not in the index"));
}

TEST(HuggingFace, WhatIsMissingIsSaid) {
  HfFolder folder;
  EXPECT_TRUE(has(folder.refused(ExitCode::kUsage), "found neither"));
  write_text(folder / "pytorch_model.bin", "x");
  EXPECT_TRUE(has(folder.refused(ExitCode::kUsage), "pickle"));
  write_text(folder / "config.json", "[1]");
  EXPECT_TRUE(has(folder.refused(), "JSON object"));
  fs::remove(folder / "config.json");
  EXPECT_TRUE(has(folder.refused(ExitCode::kUsage), "no config.json"));
}

TEST(HuggingFace, BothLayoutsAtOnceAreSaid) {
  HfFolder folder;
  folder.shard("model.safetensors", {{"a", at::ones({1})}});
  folder.index(R"({"a":"model.safetensors"})");
  int64_t before = warning_count();
  EXPECT_TRUE(open_hf_model(folder.path()).contains("a"));
  EXPECT_EQ(warning_count(), before + 1);
}

}  // namespace
}  // namespace octavo::checkpoint
