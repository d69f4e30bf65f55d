// Vocabularies of characters with byte fallback: the kinds of Llama 2, Mistral and Gemma.
// tests/conformance/tokenizers_fallback.py compares whole files with the Hugging Face library.

#include <functional>

#include "fixtures.h"

namespace octavo::tokenizer {
namespace {

constexpr const char* kMark = "\u2581";

Json sequence_of(const char* name, std::initializer_list<Json> parts) {
  return {{"type", "Sequence"}, {name, Json(parts)}};
}

Json replace_step(const char* pattern, const char* content) {
  return {{"type", "Replace"}, {"pattern", {{"String", pattern}}}, {"content", content}};
}

Json metaspace(const char* scheme, bool splits) {
  return {
      {"type", "Metaspace"}, {"replacement", kMark}, {"prepend_scheme", scheme}, {"split", splits}};
}

// Ids: <unk> 0, <s> 1, </s> 2, bytes from 3 on, then ▁ 259, a, b, ▁a 262, ab, ▁ab, aa.
enum : TokenId { kUnk, kBegin, kEnd, kByte, kSpaceId = 259, kA, kB, kSpaceA, kAb, kSpaceAb, kAa };

Json fallback_file() {
  Json vocab = {{"<unk>", kUnk}, {"<s>", kBegin}, {"</s>", kEnd}};
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    vocab[name] = kByte + byte;
  }
  const std::string mark = kMark;
  const std::string rest[] = {mark, "a", "b", mark + "a", "ab", mark + "ab", "aa"};
  TokenId id = kSpaceId;
  for (const std::string& token : rest) vocab[token] = id++;
  Json merges = Json::array({{mark, "a"}, {"a", "b"}, {mark + "a", "b"}, {"a", "a"}});
  return {{"added_tokens", {added_token(kUnk, "<unk>"), added_token(kBegin, "<s>")}},
          {"normalizer", sequence_of("normalizers", {Json{{"type", "Prepend"}, {"prepend", kMark}},
                                                     replace_step(" ", kMark)})},
          {"pre_tokenizer", nullptr},
          {"decoder",
           sequence_of(
               "decoders",
               {replace_step(kMark, " "), Json{{"type", "ByteFallback"}}, Json{{"type", "Fuse"}},
                Json{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}})},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", vocab},
            {"merges", merges}}}};
}

Json metaspace_file(const char* scheme, bool splits) {
  Json file = fallback_file();
  file["normalizer"] = nullptr;
  file["pre_tokenizer"] = metaspace(scheme, splits);
  return file;
}

using Ids = std::vector<TokenId>;

Ids ids_at(const Tokenizer& tokenizer, std::string_view text, Place place) {
  Ids ids, plain, ordinary;
  tokenizer.encode(text, ids, place);
  tokenizer.encode_plain(text, plain, place);
  tokenizer.encode_text(text, ordinary, place);
  EXPECT_EQ(plain, ordinary);
  return ids;
}

TEST(Fallback, CharactersThenBytes) {
  const auto tokenizer = make_tokenizer(fallback_file());
  EXPECT_EQ(ids_of(*tokenizer, "ab a\nb"), (Ids{kSpaceAb, kSpaceA, kByte + '\n', kB}));
  EXPECT_EQ(ids_of(*tokenizer, "\u00e9"), (Ids{kSpaceId, kByte + 0xC3, kByte + 0xA9}));
  EXPECT_EQ(ids_of(*tokenizer, " a"), (Ids{kSpaceId, kSpaceA}));
  EXPECT_EQ(ids_of(*tokenizer, ""), Ids{});
  EXPECT_EQ(ids_of(*tokenizer, "<s>a"), (Ids{kBegin, kSpaceA}));
}

TEST(Fallback, TextsThatContinueGetNoMark) {
  const auto prepended = make_tokenizer(fallback_file());
  EXPECT_EQ(ids_at(*prepended, "a", Place::kStart), (Ids{kSpaceA}));
  EXPECT_EQ(ids_at(*prepended, "a", Place::kAfterToken), (Ids{kSpaceA}));
  EXPECT_EQ(ids_at(*prepended, "a", Place::kInsideText), (Ids{kA}));
  const auto first = make_tokenizer(metaspace_file("first", false));
  EXPECT_EQ(ids_at(*first, "a", Place::kStart), (Ids{kSpaceA}));
  EXPECT_EQ(ids_at(*first, "a", Place::kAfterToken), (Ids{kA}));
  EXPECT_EQ(ids_at(*first, "a", Place::kInsideText), (Ids{kA}));
  EXPECT_EQ(ids_of(*first, "<s>a"), (Ids{kBegin, kA}));
  EXPECT_EQ(ids_of(*first, "a<s>a"), (Ids{kSpaceA, kBegin, kA}));
  const auto always = make_tokenizer(metaspace_file("always", true));
  EXPECT_EQ(ids_at(*always, "a", Place::kAfterToken), (Ids{kSpaceA}));
  EXPECT_EQ(ids_at(*always, "a", Place::kInsideText), (Ids{kA}));
  const auto never = make_tokenizer(metaspace_file("never", true));
  EXPECT_EQ(ids_at(*never, "a a", Place::kStart), (Ids{kA, kSpaceA}));
}

TEST(Fallback, UnknownTokensAreFusedWhereTheFileSaysSo) {
  Json file = fallback_file();
  file["model"]["byte_fallback"] = false;
  EXPECT_EQ(ids_of(*make_tokenizer(file), "axyb"), (Ids{kSpaceA, kUnk, kB}));
  file["model"]["fuse_unk"] = false;
  EXPECT_EQ(ids_of(*make_tokenizer(file), "axyb"), (Ids{kSpaceA, kUnk, kUnk, kB}));
  file["model"]["unk_token"] = nullptr;
  EXPECT_EQ(ids_of(*make_tokenizer(file), "axyb"), (Ids{kSpaceAb}));
}

// As in the Hugging Face library: an unknown token waits until a character has one of its own.
TEST(Fallback, BytesGoBeforeAnUnknownTokenThatWaits) {
  Json file = fallback_file();
  file["model"]["vocab"].erase("<0x78>");
  EXPECT_EQ(ids_of(*make_tokenizer(file), "axyb"), (Ids{kSpaceA, kByte + 'y', kUnk, kB}));
}

TEST(Fallback, DecodesWholeTextsAndWhatFollows) {
  const auto tokenizer = make_tokenizer(fallback_file());
  EXPECT_EQ(tokenizer->decode({kBegin, kSpaceA, kSpaceAb}), "<s> a ab");
  EXPECT_EQ(tokenizer->decode({kBegin, kSpaceA, kSpaceAb}, true), "a ab");
  EXPECT_EQ(tokenizer->decode_more({kSpaceA, kSpaceAb}), " a ab");
  EXPECT_EQ(tokenizer->decode({kByte + 0xC3, kByte + 0xA9}), "\u00e9");
  EXPECT_EQ(tokenizer->decode({kByte + 0xC3, kA}), "\uFFFDa");
  EXPECT_EQ(tokenizer->decode_more({kByte + 0xC3}) + tokenizer->decode_more({kByte + 0xA9}),
            "\u00e9");
  EXPECT_EQ(tokenizer->decode({}), "");
}

TEST(Fallback, MetaspaceDecoderDropsTheFirstMark) {
  Json file = metaspace_file("always", true);
  file["decoder"] = metaspace("always", true);
  const auto tokenizer = make_tokenizer(file);
  EXPECT_EQ(tokenizer->decode({kSpaceA, kSpaceAb}), "a ab");
  EXPECT_EQ(tokenizer->decode_more({kSpaceA}), " a");
  file["decoder"] = metaspace("never", true);
  EXPECT_EQ(make_tokenizer(file)->decode({kSpaceA, kSpaceAb}), " a ab");
}

// A merge over a space: then a text without pre-tokenizer is one word.
TEST(Fallback, TokensMayReachOverSpaces) {
  Json file = fallback_file();
  const std::string joined = std::string("b") + kMark;
  file["model"]["vocab"][joined] = 300;
  file["model"]["merges"].insert(file["model"]["merges"].begin(), Json::array({"b", kMark}));
  EXPECT_EQ(ids_of(*make_tokenizer(file), "b a"), (Ids{kSpaceId, 300, kA}));
  EXPECT_EQ(ids_of(*make_tokenizer(fallback_file()), "b a"), (Ids{kSpaceId, kB, kSpaceA}));
}

TEST(Fallback, SplitsLeanToEitherSide) {
  const auto pieces = [](const char* behavior, bool invert) {
    Json file = fallback_file();
    file["normalizer"] = nullptr;
    file["pre_tokenizer"] = {{"type", "Split"},
                             {"pattern", {{"String", "b"}}},
                             {"behavior", behavior},
                             {"invert", invert}};
    return ids_of(*make_tokenizer(file), "aabbaa");
  };
  EXPECT_EQ(pieces("Isolated", false), (Ids{kAa, kB, kB, kAa}));
  EXPECT_EQ(pieces("MergedWithPrevious", false), (Ids{kA, kAb, kB, kAa}));
  EXPECT_EQ(pieces("MergedWithNext", false), (Ids{kAa, kB, kB, kAa}));
  EXPECT_EQ(pieces("MergedWithNext", true), (Ids{kA, kAb, kB, kAa}));
  EXPECT_EQ(pieces("Contiguous", false), (Ids{kAa, kB, kB, kAa}));
}

TEST(Fallback, NormalizersInTheirOrder) {
  Json file = fallback_file();
  file["normalizer"] = sequence_of(
      "normalizers", {Json{{"type", "Lowercase"}},
                      Json{{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}},
                      Json{{"type", "NFC"}}, replace_step("zz", "ab")});
  const auto tokenizer = make_tokenizer(file);
  EXPECT_EQ(ids_of(*tokenizer, " \u3000AzZ\n "), (Ids{kA, kAb}));
  EXPECT_EQ(ids_of(*tokenizer, "\u0130"),
            ids_of(*tokenizer, "i\u0307"));  // its small form is two characters
  EXPECT_EQ(ids_of(*tokenizer, " \n"), Ids{});
}

TEST(Fallback, NormalizedAddedTokensAreDecodedByTheDecoder) {
  Json file = fallback_file();
  Json token = added_token(300, "<x y>");
  token["normalized"] = true;
  token["special"] = false;
  file["added_tokens"].push_back(token);
  const auto tokenizer = make_tokenizer(file);
  EXPECT_EQ(ids_of(*tokenizer, "<x y>a"), (Ids{300, kA}));
  EXPECT_EQ(tokenizer->decode({300, kA}), "<x y>a");
  Json twin = added_token(301, std::string("<x") + kMark + "y>");
  twin["normalized"] = true;
  file["added_tokens"].push_back(twin);
  expect_failure(ExitCode::kUsage, "no other has", [&] { make_tokenizer(file); });
}

TEST(Fallback, WhatIsNotUnderstoodIsRefusedByName) {
  struct Spoiled {
    const char* message;
    std::function<void(Json&)> spoil;
    ExitCode code = ExitCode::kUsage;
  };
  const Spoiled cases[] = {
      {"NFKC",
       [](Json& f) {
         f["normalizer"] = {{"type", "NFKC"}};
       }},
      {"'Regex'",
       [](Json& f) {
         f["normalizer"] = {{"type", "Replace"}, {"pattern", {{"Regex", " +"}}}, {"content", ""}};
       }},
      {"String: wanted 1 to 64", [](Json& f) { f["normalizer"] = replace_step("", "a"); }},
      {"content: wanted 0 to 64",
       [](Json& f) { f["normalizer"] = replace_step("a", std::string(65, 'a').c_str()); }},
      {"64 times",
       [](Json& f) {
         f["normalizer"] = sequence_of(
             "normalizers", {replace_step("a", "bbbbbbbb"), replace_step("b", "aaaaaaaa")});
       }},
      {"Removed",
       [](Json& f) {
         f["pre_tokenizer"] = {
             {"type", "Split"}, {"pattern", {{"String", " "}}}, {"behavior", "Removed"}};
       }},
      {"WhitespaceSplit",
       [](Json& f) {
         f["pre_tokenizer"] = {{"type", "WhitespaceSplit"}};
       }},
      {"prepend_scheme", [](Json& f) { f["pre_tokenizer"] = metaspace("last", true); }},
      {"one character",
       [](Json& f) {
         f["pre_tokenizer"] = {{"type", "Metaspace"}, {"replacement", "__"}};
       },
       ExitCode::kDamaged},
      {"add_prefix_space",
       [](Json& f) {
         f["pre_tokenizer"] = metaspace("first", true);
         f["pre_tokenizer"]["add_prefix_space"] = false;
       },
       ExitCode::kDamaged},
      {"shortens",
       [](Json& f) {
         f["pre_tokenizer"] = metaspace("first", true);
         f["normalizer"] = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", false}};
       }},
      {"CTC",
       [](Json& f) {
         f["decoder"] = {{"type", "CTC"}};
       }},
      {"found ByteLevel",
       [](Json& f) {
         f["decoder"] = {{"type", "ByteLevel"}};
       }},
      {"start", [](Json& f) { f["decoder"]["decoders"][3]["start"] = 65; }},
      {"stop", [](Json& f) { f["decoder"]["decoders"][3]["stop"] = -1; }},
      {"'<none>' is not in the vocabulary",
       [](Json& f) {
         f["model"]["unk_token"] = "<none>";
         f["model"]["byte_fallback"] = false;
       },
       ExitCode::kDamaged},
      {"at most 16",
       [](Json& f) {
         f["normalizer"] = sequence_of("normalizers", {});
         for (int i = 0; i < 17; ++i) f["normalizer"]["normalizers"].push_back({{"type", "NFC"}});
       }},
  };
  for (const Spoiled& one : cases) {
    SCOPED_TRACE(one.message);
    Json file = fallback_file();
    one.spoil(file);
    expect_failure(one.code, one.message, [&] { make_tokenizer(file); });
  }
}

// White space that is a token and takes white space along: each space is looked at a few times.
TEST(Fallback, LongRunsOfStrippedSpacesTakeLinearTime) {
  Json file = fallback_file();
  Json token = added_token(300, "  ");
  token["rstrip"] = token["lstrip"] = true;
  file["added_tokens"].push_back(token);
  const auto tokenizer = make_tokenizer(file);
  EXPECT_EQ(ids_of(*tokenizer, std::string(1 << 20, ' ')).size(), size_t{1} << 19);
}

}  // namespace
}  // namespace octavo::tokenizer
