#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "expect_failure.h"
#include "tokenizer/bpe_tokenizer.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/hf_file.h"
#include "tokenizer/tokenizer.h"

namespace octavo::tokenizer {

// A file of the shared data folder; empty when it is not on this machine.
inline fs::path shared_file(const std::string& name) {
  const char* given = std::getenv("OCTAVO_TEST_DATA");
  if (given != nullptr && fs::exists(fs::path(given) / "data" / name))
    return fs::path(given) / "data" / name;
  for (fs::path at = fs::current_path(); at != at.root_path(); at = at.parent_path())
    if (fs::exists(at / "../shared/data" / name)) return at / "../shared/data" / name;
  return {};
}

#define OCTAVO_NEED_FILE(path)                                    \
  if ((path).empty()) {                                           \
    const char* ci = std::getenv("CI");                           \
    ASSERT_FALSE(ci != nullptr && std::string(ci) == "true")      \
        << "a shared data file is missing; set OCTAVO_TEST_DATA"; \
    GTEST_SKIP() << "no shared data; set OCTAVO_TEST_DATA";       \
  }

// A tokenizer.json with the 256 byte tokens (id = byte) and the merges given in the byte alphabet.
inline Json small_file(const std::vector<std::pair<std::string, std::string>>& merges = {}) {
  const ByteAlphabet alphabet;
  Json vocab = Json::object(), merge_list = Json::array();
  for (int byte = 0; byte < 256; ++byte) vocab[alphabet.to_char(static_cast<uint8_t>(byte))] = byte;
  for (const auto& merge : merges) {
    const std::string joined = merge.first + merge.second;
    if (!vocab.contains(joined)) {
      const auto next = vocab.size();
      vocab[joined] = next;
    }
    merge_list.push_back(Json::array({merge.first, merge.second}));
  }
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", Json::array()},
          {"normalizer", nullptr},
          {"pre_tokenizer", byte_level},
          {"post_processor", nullptr},
          {"decoder", byte_level},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merge_list}}}};
}

inline Json added_token(TokenId id, const std::string& content) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", true}};
}

inline std::unique_ptr<Tokenizer> make_tokenizer(const Json& file) {
  return std::make_unique<BpeTokenizer>("test", "0", parse_hf_file(file.dump(), "test.json"));
}

inline std::vector<TokenId> ids_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> ids;
  tokenizer.encode(text, ids);
  return ids;
}

// Random valid UTF-8 that is rich in what the patterns look at.
inline std::string random_text(std::mt19937& random, size_t max_pieces) {
  static const std::vector<std::string> kPieces = {
      "'",      "'s",     "'S",         "'ll",        "'Re",        "'\u017f", "'d",     " ",
      "  ",     "\t",     "\n",         "\r",         "\r\n",       "\u00a0",  "\u2003", "\u3000",
      "\u180e", "\u200b", "a",          "Z",          "word",       "\u00e9",  "\u4e2d", "\u0939",
      "7",      "42",     "1234567",    "\u00bd",     "\u0664",     "!",       "?!",     "...",
      "\u2019", "\u0301", "\U0001F600", "\U0001D7D8", "\U00020000", "_",       "\x7f"};
  std::string text;
  const size_t count = random() % (max_pieces + 1);
  for (size_t i = 0; i < count; ++i) {
    if (random() % 4 != 0) {
      text += kPieces[random() % kPieces.size()];
      continue;
    }
    uint32_t c = random() % 8 == 0 ? random() % 0x110000 : random() % 0x3000;
    if (c >= 0xD800 && c < 0xE000) c = 'x';
    append_utf8(c, text);
  }
  return text;
}

}  // namespace octavo::tokenizer
