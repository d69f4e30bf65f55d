#include "hub/listing.h"

#include "fixtures.h"

namespace octavo::hub {
namespace {

const std::string kBlob(40, 'b'), kSha(64, 'c');

Json entry(const std::string& name, int64_t size = 10) {
  return {{"rfilename", name}, {"size", size}, {"blobId", kBlob}};
}

Json answer(const std::vector<Json>& files) {
  return {{"sha", kCommit}, {"siblings", files}, {"anything", "else"}};
}

std::vector<std::string> picked(const std::vector<std::string>& names, Parts parts) {
  std::vector<Json> files;
  for (const std::string& name : names) files.push_back(entry(name));
  std::vector<std::string> result;
  for (const RemoteFile& file : model_files(parse_listing(answer(files), "test"), parts, "a/b"))
    result.push_back(file.name);
  return result;
}

TEST(Listing, ReadsPlainAndLfs) {
  Json large = entry("model.safetensors", 130);
  large["lfs"] = {{"sha256", kSha}, {"size", 5'000'000'000}, {"pointerSize", 130}};
  const Listing listing = parse_listing(answer({large, entry("config.json")}), "test");
  ASSERT_EQ(listing.files.size(), 2u);
  EXPECT_EQ(listing.commit, kCommit);
  EXPECT_EQ(listing.files[0].name, "config.json");
  EXPECT_EQ(listing.files[0].hash, kBlob);
  EXPECT_EQ(listing.files[1].hash, kSha);
  EXPECT_EQ(listing.files[1].size, 5'000'000'000u);
  const Listing again = parse_tree(tree_of(listing), kCommit, "tree");
  ASSERT_EQ(again.files.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(again.files[i].name, listing.files[i].name);
    EXPECT_EQ(again.files[i].hash, listing.files[i].hash);
    EXPECT_EQ(again.files[i].size, listing.files[i].size);
    EXPECT_EQ(again.files[i].lfs, listing.files[i].lfs);
  }
}

TEST(Listing, RefusesHostileOnes) {
  const auto refused = [](const std::string& part, const Json& json) {
    expect_failure(ExitCode::kDamaged, part, [&] { parse_listing(json, "test"); });
  };
  for (const char* name : {"../x.json", "/x.json", "a/../../x.json", "", "a//b", "x\ty"})
    refused("refused", answer({entry(name)}));
  refused("listed twice", answer({entry("a"), entry("b"), entry("a")}));
  refused("a size", answer({entry("a", -1)}));
  refused("a size", answer({entry("a", int64_t{1} << 51)}));
  Json file = entry("a");
  file["blobId"] = "../../../x";
  refused("hex digits", answer({file}));
  file = entry("a");
  file["lfs"] = {{"sha256", kBlob}, {"size", 1}};
  refused("hex digits", answer({file}));
  refused("siblings", Json{{"sha", kCommit}});
  refused("hex digits", Json{{"sha", "main"}, {"siblings", Json::array()}});
  refused("rfilename", answer({Json::object()}));
  expect_failure(ExitCode::kDamaged, "refused", [] {
    parse_tree({{"files", {{"../x", {{"size", 1}, {"blob_id", kBlob}}}}}}, kCommit, "tree");
  });
  file = entry("a");
  file.erase("blobId");
  expect_failure(ExitCode::kEnvironment, "no hashes",
                 [&] { parse_listing(answer({file}), "test"); });
}

TEST(Listing, OnlyWhatIsNeeded) {
  using Names = std::vector<std::string>;
  const Names all = {"README.md",
                     "chat_template.jinja",
                     "config.json",
                     "consolidated.pth",
                     "consolidated.safetensors",
                     "model.gguf",
                     "model-00001-of-00002.safetensors",
                     "model-00002-of-00002.safetensors",
                     "onnx/model.json",
                     "original/params.json",
                     "pytorch_model.bin",
                     "tokenizer.json",
                     "tokenizer.model"};
  EXPECT_EQ(picked(all, Parts::kModel),
            (Names{"chat_template.jinja", "config.json", "tokenizer.json",
                   "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"}));
  EXPECT_EQ(picked(all, Parts::kTokenizer),
            (Names{"chat_template.jinja", "config.json", "tokenizer.json"}));
  EXPECT_EQ(picked({"README.md", "tokenizer.json"}, Parts::kTokenizerAlone),
            Names{"tokenizer.json"});
  EXPECT_EQ(picked({"adapter_config.json", "adapter_model.safetensors"}, Parts::kModel),
            (Names{"adapter_config.json", "adapter_model.safetensors"}));
  expect_failure(ExitCode::kUsage, "pickles only", [] {
    picked({"config.json", "pytorch_model.bin"}, Parts::kModel);
  });
  const Listing huge = parse_listing(answer({entry("tokenizer.json", 1 << 30)}), "test");
  expect_failure(ExitCode::kDamaged, "tokenizer.json",
                 [&] { model_files(huge, Parts::kTokenizer, "a/b"); });
}

}  // namespace
}  // namespace octavo::hub
