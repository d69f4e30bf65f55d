#pragma once
// A byte-level tokenizer with a few merges, and the markers of every chat template; and tokenizers
// of characters with byte fallback.

#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "tokenizer/bpe_tokenizer.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/hf_file.h"
#include "tokenizer/pre_tokenizer.h"

namespace octavo::fuzz {

inline constexpr tokenizer::TokenId kFirstAdded = 300;

// `digits`: numbers are cut out (all digits of one together, or each alone) and a text without a
// space in front gets one.
enum class Digits { kAsTheyAre, kTogether, kAlone };

inline std::unique_ptr<tokenizer::Tokenizer> small_tokenizer(std::string_view pattern, bool nfc,
                                                             Digits digits = Digits::kAsTheyAre) {
  const tokenizer::ByteAlphabet alphabet;
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[alphabet.to_char(static_cast<uint8_t>(byte))] = byte;
  Json merges = Json::array();
  int id = 256;
  for (const auto& [left, right] : {std::pair{"a", "a"},
                                    {"aa", "aa"},
                                    {"t", "h"},
                                    {"th", "e"},
                                    {"\u0120", "the"},
                                    {"\u0120", "\u0120"},
                                    {"i", "n"}}) {
    vocab[std::string(left) + right] = id++;
    merges.push_back(Json::array({left, right}));
  }
  Json added = Json::array();
  id = kFirstAdded;
  for (const char* content :
       {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|begin_of_text|>", "<|start_header_id|>",
        "<|end_header_id|>", "<|eot_id|>", "<a", "<ab", "  "})
    added.push_back({{"id", id++},
                     {"content", content},
                     {"single_word", content[1] == 'a'},
                     {"lstrip", id % 2 == 0},
                     {"rstrip", id % 3 == 0},
                     {"normalized", id % 4 == 0},
                     {"special", true}});
  const Json split = {{"type", "Split"},
                      {"pattern", {{"Regex", std::string(pattern)}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  const Json bytes = {{"type", "ByteLevel"},
                      {"add_prefix_space", digits != Digits::kAsTheyAre},
                      {"trim_offsets", false},
                      {"use_regex", false}};
  Json stages = Json::array({split});
  if (digits != Digits::kAsTheyAre)
    stages.push_back({{"type", "Digits"}, {"individual_digits", digits == Digits::kAlone}});
  stages.push_back(bytes);
  const Json file = {{"added_tokens", added},
                     {"normalizer", nfc ? Json{{"type", "NFC"}} : Json()},
                     {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", stages}}},
                     {"decoder", {{"type", "ByteLevel"}}},
                     {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
  return std::make_unique<tokenizer::BpeTokenizer>("small", "",
                                                   tokenizer::parse_hf_file(file.dump(), "small"));
}

// Where a space's mark is put: in front of every text (Llama 2), of the first (Mistral), nowhere
// (Gemma).
enum class Fallback { kPrepend, kFirst, kNone };

inline Json replace_step(const char* pattern, const char* content) {
  return {{"type", "Replace"}, {"pattern", {{"String", pattern}}}, {"content", content}};
}

inline Json fallback_vocab() {
  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", byte);
    vocab[name] = byte;
  }
  int id = 256;
  for (const char* token : {"<unk>", "\u2581", "t", "h", "e", "a", "th", "the", "\u2581the",
                            "\u2581\u2581", "aa", "\u00e9", "e\u2581"})
    vocab[token] = id++;
  return vocab;
}

inline std::unique_ptr<tokenizer::Tokenizer> fallback_tokenizer(Fallback kind) {
  const char* const mark = "\u2581";
  Json merges = Json::array({{"t", "h"}, {"th", "e"}, {mark, "the"}, {mark, mark}, {"a", "a"}});
  // A merge over a space: words are then not merged one by one.
  if (kind == Fallback::kNone) merges.push_back({"e", mark});
  Json decoders = {replace_step(mark, " "), {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
  if (kind != Fallback::kNone)
    decoders.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  Json normalizer = replace_step(" ", mark), pre_tokenizer;
  if (kind == Fallback::kPrepend)
    normalizer = {{"type", "Sequence"},
                  {"normalizers", {{{"type", "Prepend"}, {"prepend", mark}}, normalizer}}};
  if (kind == Fallback::kFirst) {
    normalizer = nullptr;
    pre_tokenizer = {{"type", "Metaspace"}, {"replacement", mark}, {"prepend_scheme", "first"}};
  }
  const Json file = {{"normalizer", normalizer},
                     {"pre_tokenizer", pre_tokenizer},
                     {"decoder", {{"type", "Sequence"}, {"decoders", decoders}}},
                     {"model",
                      {{"type", "BPE"},
                       {"byte_fallback", true},
                       {"unk_token", "<unk>"},
                       {"vocab", fallback_vocab()},
                       {"merges", merges}}}};
  return std::make_unique<tokenizer::BpeTokenizer>(
      "fallback", "", tokenizer::parse_hf_file(file.dump(), "fallback"));
}

}  // namespace octavo::fuzz
