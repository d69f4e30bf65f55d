#include "fixtures.h"
#include "hub/answers.h"
#include "hub/hub.h"
#include "hub/listing.h"

namespace octavo::hub {
namespace {

class ResolveTest : public HubTest {
 protected:
  RepoCache model_{home_, {}};
  void SetUp() override {
    HubTest::SetUp();
    model_ = RepoCache(cache(), *parse_repo("org/name", Kind::kModel, "main"));
  }
  void put_model() {
    put(model_, kCommit, "config.json", "{}");
    put(model_, kCommit, "tokenizer.json", "{}");
    put(model_, kCommit, "model.safetensors", "w");
    model_.write_ref(kCommit);
  }
};

TEST_F(ResolveTest, APathGoesFirst) {
  put_model();
  write(home_ / "here/config.json", "{}");
  EXPECT_EQ(resolve_model((home_ / "here").string(), {}), home_ / "here");
  EXPECT_EQ(resolve_model("org/name", {}), model_.snapshot(kCommit));
  EXPECT_TRUE(is_hub_name("org/name"));
  EXPECT_FALSE(is_hub_name((home_ / "here").string()));
  EXPECT_FALSE(is_hub_name("./nowhere"));
  expect_failure(ExitCode::kUsage, "which is neither", [] { resolve_model("./nowhere", {}); });
  expect_failure(ExitCode::kUsage, "which is neither", [] { resolve_model("", {}); });
}

TEST_F(ResolveTest, TheKeysDecide) {
  config::Settings settings;
  settings.offline = true;
  settings.revision = "dev";
  settings.dataset_config = "main";
  EXPECT_TRUE(model_options(settings).offline && dataset_options(settings).offline);
  EXPECT_EQ(model_options(settings).revision, "dev");
  EXPECT_EQ(dataset_options(settings).revision, "main");  // the branch: data sets have their own
  EXPECT_EQ(dataset_options(settings).subset, "main");
  ::setenv("HF_HUB_OFFLINE", "0", 1);
  expect_failure(ExitCode::kUsage, "offline is set",
                 [&] { resolve_model("org/name", model_options(settings)); });
  expect_failure(ExitCode::kUsage, "offline is set",
                 [&] { resolve_dataset("org/name", "train", dataset_options(settings)); });
}

TEST_F(ResolveTest, RevisionsAreKeptApart) {
  put_model();
  Options options;
  options.revision = kCommit;
  EXPECT_EQ(resolve_model("org/name", options), model_.snapshot(kCommit));
  EXPECT_EQ(resolve_model("org/name@" + kCommit, {}), model_.snapshot(kCommit));
  expect_failure(ExitCode::kUsage, "found nothing", [] { resolve_model("org/name@dev", {}); });
}

TEST_F(ResolveTest, WhatIsMissingIsNamed) {
  const auto offline = [](const std::string& part) {
    expect_failure(ExitCode::kUsage, part, [] { resolve_model("org/name", {}); });
  };
  offline("found nothing");
  model_.write_ref(kCommit);
  offline("without config.json");
  put(model_, kCommit, "config.json", "{}");
  offline("without tokenizer.json");
  model_.note_absent(kCommit, "tokenizer.json");
  offline("without safetensors files");
  Options options;
  options.parts = Parts::kTokenizer;
  EXPECT_EQ(resolve_model("org/name", options), model_.snapshot(kCommit));
  put(model_, kCommit, "model-00001-of-00002.safetensors", "w");
  offline("without safetensors files");
  put(model_, kCommit, "model.safetensors.index.json",
      R"({"weight_map": {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}})");
  offline("without safetensors files");
  put(model_, kCommit, "model-00002-of-00002.safetensors", "w");
  EXPECT_EQ(resolve_model("org/name", {}), model_.snapshot(kCommit));
}

TEST_F(ResolveTest, ATokenizerNeedsNoModel) {
  put(model_, kCommit, "tokenizer.json", "{}");
  model_.write_ref(kCommit);
  config::Settings settings;
  settings.revision = "dev";  // of model_name
  EXPECT_EQ(resolve_tokenizer("org/name", settings), model_.snapshot(kCommit).string());
  EXPECT_EQ(resolve_tokenizer("org/name@" + kCommit, settings), model_.snapshot(kCommit).string());
  expect_failure(ExitCode::kUsage, "without config.json", [] { resolve_model("org/name", {}); });
  expect_failure(ExitCode::kUsage, "found nothing",
                 [&] { resolve_tokenizer("org/other", settings); });
  const RepoCache other(cache(), *parse_repo("org/other", Kind::kModel, "main"));
  put(other, kCommit, "config.json", "{}");
  other.write_ref(kCommit);
  expect_failure(ExitCode::kUsage, "without tokenizer.json",
                 [&] { resolve_tokenizer("org/other", settings); });
}

TEST_F(ResolveTest, OfATokenizerPathsAndBytesStayAsTheyAre) {
  fs::create_directories(home_ / "here");
  for (const std::string& name :
       {std::string(), std::string("bytes"), std::string("tokens"), std::string("./nowhere"),
        std::string("data/tokenizer.json"), (home_ / "here").string()}) {
    EXPECT_FALSE(is_hub_tokenizer(name)) << name;
    EXPECT_EQ(resolve_tokenizer(name, {}), name);
  }
  for (const char* name : {"org/name", "org/name@main", "gpt2"})
    EXPECT_TRUE(is_hub_tokenizer(name)) << name;
}

TEST_F(ResolveTest, AnIndexThatLeavesTheFolder) {
  put_model();
  write(model_.folder() / "outside.safetensors", "w");
  put(model_, kCommit, "model.safetensors.index.json",
      R"({"weight_map": {"a": "../../outside.safetensors"}})");
  expect_failure(ExitCode::kUsage, "without safetensors", [] { resolve_model("org/name", {}); });
  put(model_, kCommit, "model.safetensors.index.json", R"({"weight_map": {}})");
  expect_failure(ExitCode::kUsage, "without safetensors", [] { resolve_model("org/name", {}); });
}

TEST_F(ResolveTest, DataSetsFromTheCache) {
  const RepoCache data(cache(), *parse_repo("org/data", Kind::kDataset, "main"));
  put(data, kCommit, "data/train-00000-of-00002.parquet", "a");
  data.write_ref(kCommit);
  const auto find = [](const std::string& split) { return resolve_dataset("org/data", split, {}); };
  expect_failure(ExitCode::kUsage, "not all files of split train", [&] { find(""); });
  put(data, kCommit, "data/train-00001-of-00002.parquet", "b");
  const Dataset found = find("");
  EXPECT_EQ(found.split, "train");
  EXPECT_EQ(found.files,
            (std::vector<fs::path>{data.snapshot(kCommit) / "data/train-00000-of-00002.parquet",
                                   data.snapshot(kCommit) / "data/train-00001-of-00002.parquet"}));
  // The list of all files knows of more than is here.
  Listing listing{.commit = kCommit, .files = {}};
  for (const char* name : {"data/extra-train.parquet", "data/train.parquet"})
    listing.files.push_back({name, 1, std::string(40, 'a'), std::string(40, 'a'), false});
  write(data.tree(kCommit), tree_of(listing).dump());
  expect_failure(ExitCode::kUsage, "not all files of split train", [&] { find("train"); });
  write(data.tree(kCommit), "{");
  expect_failure(ExitCode::kDamaged, "JSON", [&] { find("train"); });
}

TEST_F(ResolveTest, AFileInTheCachesPlace) {
  write(home_ / "hub", "not a folder");
  expect_failure(ExitCode::kUsage, "found nothing", [] { resolve_model("org/name", {}); });
  ::setenv("HF_HUB_CACHE", (home_ / "loop").c_str(), 1);
  fs::create_symlink("loop", home_ / "loop");
  expect_failure(ExitCode::kUsage, "found nothing", [] { resolve_model("org/name", {}); });
}

TEST_F(ResolveTest, DataSetsFromPaths) {
  write(home_ / "d/train.jsonl", "{}");
  write(home_ / "d/test.jsonl", "{}");
  EXPECT_EQ(resolve_dataset((home_ / "d").string(), "test", {}).files,
            std::vector<fs::path>{home_ / "d/test.jsonl"});
  EXPECT_EQ(resolve_dataset((home_ / "d/test.jsonl").string(), "train", {}).files,
            std::vector<fs::path>{home_ / "d/test.jsonl"});
}

class Mistyped : public HubTest {
 protected:
  void SetUp() override {
    HubTest::SetUp();
    ::unsetenv("HF_HUB_OFFLINE");
    ::setenv("no_proxy", "127.0.0.1", 1);
    fs::create_directories(home_ / "here/data/web");
    write(home_ / "here/docs/a.txt", "text");
    before_ = fs::current_path();
    fs::current_path(home_ / "here");
  }
  void TearDown() override {
    fs::current_path(before_);
    HubTest::TearDown();
  }
  // The message, and what was logged on the way.
  static std::string said(const std::string& name, ExitCode code = ExitCode::kUsage) {
    testing::internal::CaptureStderr();
    std::string message;
    try {
      resolve_dataset(name, "train", {});
      ADD_FAILURE() << name << " was found";
    } catch (const Error& error) {
      message = error.what();
      EXPECT_EQ(error.code(), code) << message;
    }
    return message + "\n" + testing::internal::GetCapturedStderr();
  }
  fs::path before_;
};

TEST_F(Mistyped, APathIsAskedForOnceAndTheNearOneIsNamed) {
  for (const auto& [name, near] :
       {std::pair("docsZ", "docs"), {"data/wep", "data/web"}, {"docsZ@main", "docs"}}) {
    const std::string text = said(name);  // wrong use: no restart finds it
    EXPECT_NE(text.find(str("type ", near, ".")), std::string::npos) << text;
    EXPECT_NE(text.find("cannot be fetched"), std::string::npos) << text;
    EXPECT_EQ(text.find("try 2"), std::string::npos) << text;
  }
  // Or a data set without an owner that the hub has, once it can be asked: a restart may find it.
  for (const auto& [name, code] : {std::pair("qwertyuiop", ExitCode::kEnvironment),
                                   {"qwertyuiop.jsonl", ExitCode::kUsage},
                                   {"qwertyuiop/train.parquet", ExitCode::kUsage}}) {
    const std::string far = said(name, code);
    EXPECT_NE(far.find("type that of one that exists"), std::string::npos) << far;
    EXPECT_EQ(far.find("try 2"), std::string::npos) << far;
  }
  ::setenv("HF_HUB_OFFLINE", "1", 1);
  EXPECT_NE(said("docsZ").find("offline is set"), std::string::npos);
  EXPECT_NE(said("docsZ").find("type docs."), std::string::npos);
}

// What can only be a name is worth waiting for.
TEST_F(Mistyped, ANameIsNoPath) {
  const auto may_be = [&](const std::string& name) {
    return may_be_path(RepoCache(cache(), *parse_repo(name, Kind::kDataset, "main")));
  };
  EXPECT_TRUE(may_be("docsZ"));
  EXPECT_TRUE(may_be("org/train.jsonl"));
  EXPECT_FALSE(may_be("org/name"));
  EXPECT_FALSE(may_be("openai/gsm8k"));
  ::setenv("HF_HUB_OFFLINE", "1", 1);  // or its four tries take seconds
  EXPECT_EQ(said("org/name").find("No file or folder"), std::string::npos);
}

// Said at once: retries of a download would not make the family known. A copy that is here is left
// to its config.json.
TEST_F(ResolveTest, FamiliesThatAreNotImplementedAreRefusedBeforeTheNetwork) {
  expect_failure(ExitCode::kUsage, "which is gpt-oss and not implemented",
                 [] { refuse_other_family("openai/gpt-oss-20b"); });
  refuse_other_family("Qwen/Qwen3-30B-A3B");  // is implemented
  expect_failure(ExitCode::kUsage, "octavo names", [] { refuse_other_family("gpt-oss-20b"); });
  for (const char* name : {"org/name", "meta-llama/Llama-3.2-1B", "Qwen/Qwen3-8B", "gpt2", ""})
    EXPECT_NO_THROW(refuse_other_family(name)) << name;
  write(home_ / "gemma-2-9b/config.json", "{}");
  EXPECT_NO_THROW(refuse_other_family((home_ / "gemma-2-9b").string()));
  const RepoCache cached(cache(), *parse_repo("google/gemma-2-2b", Kind::kModel, "main"));
  put(cached, kCommit, "config.json", "{}");
  cached.write_ref(kCommit);
  EXPECT_NO_THROW(refuse_other_family("google/gemma-2-2b"));
}

}  // namespace
}  // namespace octavo::hub
