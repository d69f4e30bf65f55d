#include "tokenizer/tokenizer.h"

#include <sstream>
#include <thread>

#include "fixtures.h"

namespace octavo::tokenizer {
namespace {

struct Family {
  const char* folder;
  const char* vectors;
  int64_t vocab_size;
  TokenId end_of_document;
};

class Families : public testing::TestWithParam<Family> {
 protected:
  static fs::path file() { return shared_file(std::string("tokenizers/") + GetParam().folder); }
};

std::vector<std::string> split_on(const std::string& text, const std::string& separator) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t at; (at = text.find(separator, begin)) != std::string::npos;
       begin = at + separator.size())
    parts.push_back(text.substr(begin, at - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

TEST_P(Families, LlamaCppVectorsAndRoundTrips) {
  OCTAVO_NEED_FILE(file());
  const auto tokenizer = load_tokenizer(file().string());
  EXPECT_EQ(tokenizer->vocab_size(), GetParam().vocab_size);
  EXPECT_EQ(tokenizer->end_of_document(), GetParam().end_of_document);
  const std::string stem =
      std::string("tokenizers/llama.cpp-vectors/ggml-vocab-") + GetParam().vectors + ".gguf";
  const auto texts =
      split_on(read_file(shared_file(stem + ".inp"), 1 << 20), "\n__ggml_vocab_test__\n");
  const auto wanted = split_on(read_file(shared_file(stem + ".out"), 1 << 20), "\n");
  ASSERT_EQ(texts.size(), 47u);
  ASSERT_EQ(wanted.size(), 47u);
  for (size_t i = 0; i < texts.size(); ++i) {
    std::istringstream numbers(wanted[i]);
    std::vector<TokenId> ids;
    for (TokenId id; numbers >> id;) ids.push_back(id);
    EXPECT_EQ(ids_of(*tokenizer, texts[i]), ids) << texts[i];
    EXPECT_EQ(tokenizer->decode(ids), texts[i]);
  }
}

TEST_P(Families, RandomTextComesBack) {
  OCTAVO_NEED_FILE(file());
  const auto tokenizer = load_tokenizer(file().string());
  const Nfc nfc;
  const bool normalizes = std::string(GetParam().folder) == "qwen2";
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    const std::string text = random_text(random, 30);
    EXPECT_EQ(tokenizer->decode(ids_of(*tokenizer, text)), normalizes ? nfc.normalize(text) : text);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Families,
                         testing::Values(Family{"gpt2", "gpt-2", 50257, 50256},
                                         Family{"llama3", "llama-bpe", 128256, 128001},
                                         Family{"qwen2", "qwen2", 151646, 151643}));

TEST(Tokenizer, Llama3BeginsWithBeginOfText) {
  const fs::path file = shared_file("tokenizers/llama3/tokenizer.json");
  OCTAVO_NEED_FILE(file);
  const auto tokenizer = load_tokenizer(file.string());
  std::vector<TokenId> ids;
  tokenizer->encode_with_special("Hello<|eot_id|>", ids);
  EXPECT_EQ(ids, (std::vector<TokenId>{128000, 9906, 128009}));
  EXPECT_EQ(tokenizer->decode(ids, true), "Hello");
  EXPECT_EQ(tokenizer->fingerprint(), hash_file(file));
}

TEST(Tokenizer, TextIsTextWhateverItSpells) {
  Json file = small_file();
  Json ordinary = added_token(257, "<tool>");
  ordinary["special"] = false;
  Json normalized = added_token(258, "<n>");
  normalized["normalized"] = true;
  file["added_tokens"] = {added_token(256, "<|endoftext|>"), ordinary, normalized};
  const auto tokenizer = make_tokenizer(file);
  const std::string text = "a<|endoftext|><tool><n>";
  std::vector<TokenId> wanted;
  for (const unsigned char c : std::string("a<|endoftext|>")) wanted.push_back(c);
  wanted.insert(wanted.end(), {257, '<', 'n', '>'});
  std::vector<TokenId> ids;
  EXPECT_EQ(tokenizer->encode_text(text, ids), 2u);
  EXPECT_EQ(ids, wanted);
  EXPECT_EQ(ids_of(*tokenizer, text), (std::vector<TokenId>{'a', 256, 257, 258}));
  EXPECT_EQ(tokenizer->special_tokens(), (std::vector<std::string>{"<|endoftext|>", "<n>"}));
  EXPECT_TRUE(load_tokenizer("bytes")->special_tokens().empty());
  EXPECT_TRUE(tokenizer->knows(258));
  EXPECT_FALSE(tokenizer->knows(259));
}

TEST(Tokenizer, MergesAsStringsOrPairsAreTheSame) {
  Json pairs = small_file({{"a", "b"}, {"Ġ", "ab"}});
  Json strings = pairs;
  strings["model"]["merges"] = {"a b", "Ġ ab"};
  const std::vector<TokenId> wanted = {256, 257};
  EXPECT_EQ(ids_of(*make_tokenizer(pairs), "ab ab"), wanted);
  EXPECT_EQ(ids_of(*make_tokenizer(strings), "ab ab"), wanted);
}

TEST(Tokenizer, TemplatePutsTokensOnBothSides) {
  Json file = small_file();
  file["added_tokens"] = {added_token(256, "<s>"), added_token(257, "<eos>")};
  const auto special = [](const char* id) {
    return Json{{"SpecialToken", {{"id", id}, {"type_id", 0}}}};
  };
  const auto entry = [](const char* id, int number) {
    return Json{{"id", id}, {"ids", {number}}, {"tokens", {id}}};
  };
  file["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {special("<s>"), {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, special("<eos>")}},
      {"pair", Json::array()},
      {"special_tokens", {{"<s>", entry("<s>", 256)}, {"<eos>", entry("<eos>", 257)}}}};
  std::vector<TokenId> ids;
  make_tokenizer(file)->encode_with_special("x", ids);
  EXPECT_EQ(ids, (std::vector<TokenId>{256, 'x', 257}));
  EXPECT_EQ(make_tokenizer(file)->begin_ids(), (std::vector<TokenId>{256}));
  EXPECT_EQ(make_tokenizer(file)->end_ids(), (std::vector<TokenId>{257}));
}

TEST(Tokenizer, ManyThreadsGetTheSameIds) {
  const auto tokenizer = make_tokenizer(small_file({{"a", "b"}, {"ab", "ab"}, {"Ġ", "a"}}));
  std::mt19937 random(11);
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "ab \n"[random() % 4];
  const std::vector<TokenId> wanted = ids_of(*tokenizer, text);
  std::vector<std::vector<TokenId>> found(4);
  std::vector<std::thread> threads;
  for (auto& ids : found)
    threads.emplace_back([&tokenizer, &text, &ids] {
      for (int round = 0; round < 20; ++round) ids = ids_of(*tokenizer, text);
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& ids : found) EXPECT_EQ(ids, wanted);
}

TEST(Tokenizer, BytesTakesAnything) {
  const auto tokenizer = load_tokenizer("bytes");
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  const std::vector<TokenId> ids = ids_of(*tokenizer, all);
  ASSERT_EQ(ids.size(), 256u);
  for (int i = 0; i < 256; ++i) EXPECT_EQ(ids[i], i);
  EXPECT_EQ(tokenizer->decode(ids), all);
  EXPECT_EQ(tokenizer->decode({'a', 256, 'b'}), "ab");
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->end_of_document(), 256);
  EXPECT_EQ(tokenizer->fingerprint().size(), 32u);
  expect_failure(ExitCode::kUsage, "found 257", [&] { tokenizer->decode({257}); });
  expect_failure(ExitCode::kUsage, "found -1", [&] { tokenizer->decode({-1}); });
}

TEST(Tokenizer, RefusesInvalidUtf8UnknownIdsAndMissingFiles) {
  const auto tokenizer = make_tokenizer(small_file());
  expect_failure(ExitCode::kDamaged, "malformed sequence at byte 2",
                 [&] { ids_of(*tokenizer, "ab\xff"); });
  expect_failure(ExitCode::kUsage, "found 256", [&] { tokenizer->decode({256}); });
  expect_failure(ExitCode::kUsage, "found -7", [&] { tokenizer->decode({-7}); });
  expect_failure(ExitCode::kUsage, "ends a document", [&] { tokenizer->end_of_document(); });
  expect_failure(ExitCode::kUsage, "no-such-file", [] { load_tokenizer("no-such-file"); });
}

}  // namespace
}  // namespace octavo::tokenizer
