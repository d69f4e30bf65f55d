#include "tokenizer/special_tokens.h"

#include <unistd.h>

#include "base/log.h"
#include "fixtures.h"

namespace octavo::tokenizer {
namespace {

using Ids = std::vector<TokenId>;

class SpecialTokensTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() /
              str("octavo-special-", ::testing::UnitTest::GetInstance()->random_seed(), "-",
                  ::testing::UnitTest::GetInstance()->current_test_info()->name(), "-", ::getpid());
    fs::create_directories(folder_);
    Json file = small_file();
    file["added_tokens"] = Json::array(
        {added_token(256, "<s>"), added_token(257, "</s>"), added_token(258, "<|turn|>")});
    tokenizer_ = make_tokenizer(file);
  }
  void TearDown() override { fs::remove_all(folder_); }
  void write(const char* name, const std::string& text) { write_file_atomic(folder_ / name, text); }
  SpecialTokens read() const { return read_special_tokens(folder_, *tokenizer_); }

  fs::path folder_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(SpecialTokensTest, NothingSaid) {
  const SpecialTokens found = read();
  EXPECT_FALSE(found.bos || found.eos);
  EXPECT_TRUE(found.stop.empty());
}

TEST_F(SpecialTokensTest, TheTokenizersNamesGoFirst) {
  write("tokenizer_config.json", R"({"bos_token": "<s>", "eos_token": {"content": "<|turn|>"}})");
  write("generation_config.json", R"({"bos_token_id": 1, "eos_token_id": [257, 258, 257]})");
  write("config.json", R"({"bos_token_id": 2, "eos_token_id": 3})");
  const SpecialTokens found = read();
  EXPECT_EQ(found.bos, 256);
  EXPECT_EQ(found.eos, 258);
  EXPECT_EQ(found.stop, (Ids{258, 257}));
}

TEST_F(SpecialTokensTest, GenerationConfigBeforeConfig) {
  write("generation_config.json", R"({"eos_token_id": [128001, 128008]})");
  write("config.json", R"({"bos_token_id": 7, "eos_token_id": 3})");
  SpecialTokens found = read();
  EXPECT_EQ(found.eos, 128001);
  EXPECT_EQ(found.stop, (Ids{128001, 128008}));
  write("generation_config.json", R"({"eos_token_id": null})");
  found = read();
  EXPECT_EQ(found.bos, 7);
  EXPECT_EQ(found.eos, 3);
  EXPECT_EQ(found.stop, (Ids{3}));
}

TEST_F(SpecialTokensTest, UnknownNamesAreSaidAndLeftOut) {
  write("tokenizer_config.json", R"({"bos_token": null, "eos_token": "<nobody>"})");
  write("config.json", R"({"eos_token_id": 9})");
  const int64_t before = warning_count();
  const SpecialTokens found = read();
  EXPECT_EQ(warning_count(), before + 1);
  EXPECT_FALSE(found.bos);
  EXPECT_EQ(found.eos, 9);
}

TEST_F(SpecialTokensTest, HostileFiles) {
  for (const char* text :
       {R"({"eos_token_id": -1})", R"({"eos_token_id": "2"})", R"({"eos_token_id": [1, [2]]})",
        R"({"eos_token_id": 1.5})", R"({"eos_token_id": 16777216})", R"({"bos_token_id": true})",
        R"({"eos_token_id": 99999999999999999999})"}) {
    write("generation_config.json", text);
    expect_failure(ExitCode::kDamaged, "wanted an id or a list of ids", [&] { read(); });
  }
  write("generation_config.json", Json{{"eos_token_id", std::vector<int>(257, 1)}}.dump());
  expect_failure(ExitCode::kDamaged, "at most 256", [&] { read(); });
  write("generation_config.json", "[]");
  expect_failure(ExitCode::kDamaged, "wanted an object", [&] { read(); });
  write("generation_config.json", "{}");
  write("tokenizer_config.json", R"({"eos_token": {"text": "x"}})");
  expect_failure(ExitCode::kDamaged, "content", [&] { read(); });
  write("tokenizer_config.json", R"({"eos_token": 3})");
  expect_failure(ExitCode::kDamaged, "eos_token", [&] { read(); });
}

}  // namespace
}  // namespace octavo::tokenizer
