#include "tokenizer/added_tokens.h"

#include <algorithm>

namespace octavo::tokenizer {
namespace {

size_t previous_start(std::string_view text, size_t at) {
  do --at;
  while ((static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  ends_.push_back(0);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    uint64_t node = 0;
    for (const char c : tokens_[i].content) {
      const auto byte = static_cast<unsigned char>(c);
      if (node == 0) first_[byte] = true;
      const auto [child, is_new] =
          children_.try_emplace(node << 8 | byte, static_cast<uint32_t>(ends_.size()));
      if (is_new) ends_.push_back(0);
      node = child->second;
    }
    ends_[node] = static_cast<uint32_t>(i + 1);
    if (tokens_[i].single_word && !word_character_)
      word_character_.emplace(R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}])",
                              "added tokens");
  }
}

std::optional<AddedTokenMatcher::Match> AddedTokenMatcher::find_next(std::string_view text,
                                                                     size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (!first_[static_cast<unsigned char>(text[begin])]) continue;
    std::optional<Match> longest;
    uint64_t node = 0;
    for (size_t at = begin; at < text.size(); ++at) {
      const auto child = children_.find(node << 8 | static_cast<unsigned char>(text[at]));
      if (child == children_.end()) break;
      node = child->second;
      if (ends_[node] != 0) longest = Match{&tokens_[ends_[node] - 1], begin, at + 1};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

bool AddedTokenMatcher::touches_word(std::string_view text, const Match& match) const {
  const auto is_word = [&](size_t at) {
    const CodePoint c = decode_utf8(text.data() + at);
    // Our table may know letters that PCRE2's does not yet.
    return (classes_.of(c.value) & kLetter) != 0 ||
           word_character_->matches_whole(text.substr(at, c.length));
  };
  return (match.begin > 0 && is_word(previous_start(text, match.begin))) ||
         (match.end < text.size() && is_word(match.end));
}

void AddedTokenMatcher::strip(std::string_view text, size_t floor, Match& match) const {
  if (match.token->lstrip) {
    while (match.begin > floor) {
      const size_t before = previous_start(text, match.begin);
      if (!(classes_.of(decode_utf8(text.data() + before).value) & kSpace)) break;
      match.begin = before;
    }
    match.begin = std::max(match.begin, floor);
  }
  // What was stripped before is white space all along: it is not looked through again.
  if (match.token->rstrip && match.end < floor) match.end = floor;
  while (match.token->rstrip && match.end < text.size()) {
    const CodePoint c = decode_utf8(text.data() + match.end);
    if (!(classes_.of(c.value) & kSpace)) break;
    match.end += c.length;
  }
}

size_t AddedTokenMatcher::split(std::string_view text, std::vector<Piece>& pieces,
                                Find find) const {
  size_t done = 0, from = 0, left = 0;
  while (find != Find::kNone) {
    auto match = find_next(text, from);
    if (!match) break;
    // The search continues after the token itself, even when it is discarded or takes spaces along.
    from = match->end;
    if (find == Find::kOrdinary && match->token->special) {
      ++left;
      continue;
    }
    if (match->token->single_word && touches_word(text, *match)) continue;
    strip(text, done, *match);
    if (done < match->begin) pieces.push_back({-1, text.substr(done, match->begin - done)});
    pieces.push_back({match->token->id, {}});
    done = match->end;
  }
  if (done < text.size()) pieces.push_back({-1, text.substr(done)});
  return left;
}

}  // namespace octavo::tokenizer
