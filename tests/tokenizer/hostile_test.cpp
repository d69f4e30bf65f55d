// An untrusted tokenizer.json: damage is called damage, and what would change the ids without
// being implemented is refused.

#include <functional>

#include "fixtures.h"

namespace octavo::tokenizer {
namespace {

struct Case {
  const char* name;
  ExitCode code;
  const char* message;
  std::function<void(Json&)> spoil;
};

const ExitCode kDamaged = ExitCode::kDamaged, kUsage = ExitCode::kUsage;

Json pre(std::initializer_list<Json> parts) {
  return {{"type", "Sequence"}, {"pretokenizers", Json(parts)}};
}

Json split(const Json& pattern, const char* behavior) {
  return {{"type", "Split"}, {"pattern", pattern}, {"behavior", behavior}, {"invert", false}};
}

void set_added(Json& file, const char* field, const Json& value) {
  Json token = added_token(300, "<x>");
  token[field] = value;
  file["added_tokens"] = Json::array({token});
}

const std::vector<Case>& damaged_cases() {
  static const std::vector<Case> kCases = {
      {"no model", kDamaged, "'model'", [](Json& f) { f.erase("model"); }},
      {"model a list", kDamaged, "'model'", [](Json& f) { f["model"] = Json::array(); }},
      {"vocab a list", kDamaged, "'vocab'", [](Json& f) { f["model"]["vocab"] = Json::array(); }},
      {"vocab empty", kDamaged, "empty", [](Json& f) { f["model"]["vocab"] = Json::object(); }},
      {"merges an object", kDamaged, "'merges'",
       [](Json& f) { f["model"]["merges"] = Json::object(); }},
      {"negative id", kDamaged, "found -1", [](Json& f) { f["model"]["vocab"]["a"] = -1; }},
      {"huge id", kDamaged, "found 2147483647",
       [](Json& f) { f["model"]["vocab"]["a"] = 2147483647; }},
      {"id over 64 bits", kDamaged, "found 18446744073709551615",
       [](Json& f) { f["model"]["vocab"]["a"] = UINT64_MAX; }},
      {"id a string", kDamaged, "found string", [](Json& f) { f["model"]["vocab"]["a"] = "1"; }},
      {"id a fraction", kDamaged, "found number", [](Json& f) { f["model"]["vocab"]["a"] = 1.5; }},
      {"two tokens, one id", kDamaged, "belongs to another",
       [](Json& f) { f["model"]["vocab"]["a"] = 'b'; }},
      {"merge of an unknown token", kDamaged, "'zz' is not in the vocabulary",
       [](Json& f) {
         f["model"]["merges"] = Json::array({Json::array({"zz", "a"})});
       }},
      {"merge into an unknown token", kDamaged, "'ba' is not in the vocabulary",
       [](Json& f) {
         f["model"]["merges"] = Json::array({Json::array({"b", "a"})});
       }},
      {"merge of three", kDamaged, "wanted two tokens",
       [](Json& f) { f["model"]["merges"] = {"a b c"}; }},
      {"merge of one", kDamaged, "wanted two tokens",
       [](Json& f) { f["model"]["merges"] = {"a"}; }},
      {"merge with an empty side", kDamaged, "empty one",
       [](Json& f) {
         f["model"]["merges"] = Json::array({Json::array({"", "a"})});
       }},
      {"merge of numbers", kDamaged, "wanted two tokens",
       [](Json& f) {
         f["model"]["merges"] = Json::array({Json::array({1, 2})});
       }},
      {"added token without content", kDamaged, "1 to 512",
       [](Json& f) { set_added(f, "content", ""); }},
      {"added token too long", kDamaged, "1 to 512",
       [](Json& f) { set_added(f, "content", std::string(513, 'x')); }},
      {"added id negative", kDamaged, "found -5", [](Json& f) { set_added(f, "id", -5); }},
      {"added id huge", kDamaged, "found 4294967296",
       [](Json& f) { set_added(f, "id", int64_t{1} << 32); }},
      {"added id taken", kDamaged, "belongs to another", [](Json& f) { set_added(f, "id", 5); }},
      {"added id differs from vocab", kDamaged, "in the vocabulary",
       [](Json& f) { set_added(f, "content", "a"); }},
      {"added flag a string", kDamaged, "'lstrip'",
       [](Json& f) { set_added(f, "lstrip", "true"); }},
      {"added twice", kDamaged, "twice",
       [](Json& f) {
         f["added_tokens"] = {added_token(300, "<x>"), added_token(301, "<x>")};
       }},
      {"pre_tokenizer a list", kDamaged, "'pre_tokenizer'",
       [](Json& f) { f["pre_tokenizer"] = Json::array(); }},
      {"no decoder", kDamaged, "'decoder'", [](Json& f) { f["decoder"] = nullptr; }},
  };
  return kCases;
}

const std::vector<Case>& unsupported_cases() {
  static const Json kByteLevel = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  static const std::vector<Case> kCases = {
      {"another model", kUsage, "BPE", [](Json& f) { f["model"]["type"] = "Unigram"; }},
      {"dropout", kUsage, "dropout", [](Json& f) { f["model"]["dropout"] = 0.1; }},
      {"suffix", kUsage, "end_of_word_suffix",
       [](Json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }},
      {"prefix", kUsage, "continuing_subword_prefix",
       [](Json& f) { f["model"]["continuing_subword_prefix"] = "##"; }},
      {"unknown model field", kUsage, "'magic'", [](Json& f) { f["model"]["magic"] = 1; }},
      {"unknown field", kUsage, "'magic'", [](Json& f) { f["magic"] = 1; }},
      {"truncation", kUsage, "truncation",
       [](Json& f) {
         f["truncation"] = {{"max_length", 5}};
       }},
      {"padding", kUsage, "padding",
       [](Json& f) {
         f["padding"] = {{"strategy", "Fixed"}};
       }},
      {"no pre_tokenizer", kUsage, "found ByteLevel",
       [](Json& f) { f["pre_tokenizer"] = nullptr; }},
      {"accents", kUsage, "StripAccents",
       [](Json& f) {
         f["normalizer"] = {{"type", "StripAccents"}};
       }},
      {"nfkc in a sequence", kUsage, "NFKC",
       [](Json& f) {
         f["normalizer"] = {{"type", "Sequence"}, {"normalizers", {Json{{"type", "NFKC"}}}}};
       }},
      {"bert", kUsage, "BertPreTokenizer",
       [](Json& f) {
         f["pre_tokenizer"] = {{"type", "BertPreTokenizer"}};
       }},
      {"byte level first", kUsage, "last part",
       [](Json& f) {
         f["pre_tokenizer"] = pre({kByteLevel, kByteLevel});
       }},
      {"no parts", kUsage, "1 to 16", [](Json& f) { f["pre_tokenizer"] = pre({}); }},
      {"removed", kUsage, "Removed",
       [](Json& f) {
         f["pre_tokenizer"] = pre({split({{"Regex", "a"}}, "Removed"), kByteLevel});
       }},
      {"string pattern too long", kUsage, "String: wanted 1 to 64",
       [](Json& f) {
         f["pre_tokenizer"] =
             pre({split({{"String", std::string(65, 'a')}}, "Isolated"), kByteLevel});
       }},
      {"word decoder", kUsage, "WordPiece",
       [](Json& f) {
         f["decoder"] = {{"type", "WordPiece"}};
       }},
      {"roberta", kUsage, "RobertaProcessing",
       [](Json& f) {
         f["post_processor"] = {{"type", "RobertaProcessing"}};
       }},
      {"unknown token needed", kUsage, "unk_token",
       [](Json& f) {
         f["model"]["vocab"].erase("a");
         f["model"]["merges"] = Json::array();
         f["model"]["unk_token"] = "b";
       }},
      {"fallback needed", kUsage, "byte_fallback",
       [](Json& f) {
         f["model"]["vocab"].erase("a");
         f["model"]["merges"] = Json::array();
         f["model"]["byte_fallback"] = true;
       }},
      {"not byte-level", kUsage, "byte-level",
       [](Json& f) {
         f["model"]["vocab"] = {{"word", 0}};
         f["model"]["merges"] = Json::array();
       }},
  };
  return kCases;
}

TEST(HostileFile, SmallFileItselfIsFine) {
  EXPECT_EQ(ids_of(*make_tokenizer(small_file({{"a", "b"}})), "ab"), (std::vector<TokenId>{256}));
}

TEST(HostileFile, DamageIsNamed) {
  for (const Case& one : damaged_cases()) {
    SCOPED_TRACE(one.name);
    Json file = small_file({{"a", "b"}});
    one.spoil(file);
    expect_failure(one.code, one.message, [&] { make_tokenizer(file); });
  }
}

TEST(HostileFile, WhatIsNotImplementedIsRefused) {
  for (const Case& one : unsupported_cases()) {
    SCOPED_TRACE(one.name);
    Json file = small_file({{"a", "b"}});
    one.spoil(file);
    expect_failure(one.code, one.message, [&] { make_tokenizer(file); });
  }
}

TEST(HostileFile, TemplateMustNameKnownTokensAndTheText) {
  Json file = small_file();
  Json piece = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}};
  file["post_processor"] = {{"type", "TemplateProcessing"},
                            {"single", {piece}},
                            {"special_tokens", {{"<s>", {{"ids", {999}}}}}}};
  expect_failure(kDamaged, "is no token", [&] { make_tokenizer(file); });
  file["post_processor"]["special_tokens"]["<s>"]["ids"] = {1};
  expect_failure(kUsage, "no text", [&] { make_tokenizer(file); });
}

TEST(HostileFile, EveryPrefixOfAFileIsRefusedOrDamaged) {
  const std::string whole = small_file({{"a", "b"}}).dump();
  for (size_t length = 0; length < whole.size(); length += 7)
    EXPECT_THROW(parse_hf_file(whole.substr(0, length), "cut"), Error);
}

TEST(HostileFile, RandomBytesInsideNeverCrash) {
  const std::string whole = small_file({{"a", "b"}, {"Ġ", "ab"}}).dump();
  std::mt19937 random(13);
  int loaded = 0;
  for (int round = 0; round < 2000; ++round) {
    std::string spoiled = whole;
    for (size_t i = 1 + random() % 3; i > 0; --i)
      spoiled[random() % spoiled.size()] = static_cast<char>(random());
    try {
      const BpeTokenizer tokenizer("spoiled", "0", parse_hf_file(spoiled, "spoiled"));
      ids_of(tokenizer, "some text 123 ab");
      ++loaded;
    } catch (const Error&) {
    }
  }
  EXPECT_LT(loaded, 2000);
}

TEST(HostileFile, DeepNestingIsRefused) {
  const std::string deep = std::string(10'000, '[') + std::string(10'000, ']');
  EXPECT_THROW(parse_hf_file(deep, "deep"), Error);
}

}  // namespace
}  // namespace octavo::tokenizer
