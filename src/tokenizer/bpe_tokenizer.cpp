#include "tokenizer/bpe_tokenizer.h"

#include <algorithm>
#include <set>

#include "base/error.h"

namespace octavo::tokenizer {
namespace {

// Offsets are 32 bits; form C can triple a text, prefix spaces double it, and so on.
constexpr size_t kMaxText = size_t{512} << 20;
constexpr size_t kMaxNormalizedToken = 1024;
// By family: GPT-2 and Qwen2, Llama-3, the SentencePiece heritage.
constexpr std::string_view kEndNames[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};

std::vector<AddedToken> select_added(const std::vector<AddedToken>& all, bool normalized,
                                     const Normalizer& normalizer, const std::string& source) {
  std::vector<AddedToken> selected;
  std::set<std::string> contents;
  for (const AddedToken& token : all) {
    if (token.normalized != normalized) continue;
    selected.push_back(token);
    if (!normalized) continue;
    std::string& content = selected.back().content;
    content = normalizer.normalize(content);
    if (content.empty() || content.size() > kMaxNormalizedToken || !contents.insert(content).second)
      fail(ExitCode::kUsage, "tokenizer", source, ": added_tokens: '", token.content,
           "' with `normalized`: wanted a text of 1 to ", kMaxNormalizedToken,
           " bytes that no other has, found '", content.substr(0, 80),
           "' after the normalizer, which is not supported; use another tokenizer");
  }
  return selected;
}

std::optional<TokenId> find_end(const std::vector<AddedToken>& added) {
  for (const std::string_view name : kEndNames)
    for (const AddedToken& token : added)
      if (token.content == name) return token.id;
  return std::nullopt;
}

}  // namespace

class BpeTokenizer::Lease {
 public:
  explicit Lease(const BpeTokenizer& owner) : owner_(owner) {
    {
      const std::lock_guard lock(owner_.mutex_);
      if (!owner_.idle_.empty()) {
        scratch_ = std::move(owner_.idle_.back());
        owner_.idle_.pop_back();
      }
    }
    if (!scratch_) scratch_ = std::make_unique<Scratch>();
  }
  ~Lease() {
    const std::lock_guard lock(owner_.mutex_);
    owner_.idle_.push_back(std::move(scratch_));
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Scratch& operator*() { return *scratch_; }

 private:
  const BpeTokenizer& owner_;
  std::unique_ptr<Scratch> scratch_;
};

BpeTokenizer::BpeTokenizer(std::string name, std::string fingerprint, HfFile file)
    : name_(std::move(name)),
      fingerprint_(std::move(fingerprint)),
      tokens_(std::move(file.tokens)),
      prefix_(std::move(file.prefix)),
      suffix_(std::move(file.suffix)),
      end_of_document_(find_end(file.added)),
      decoder_(std::move(file.decoder)),
      normalizer_(std::move(file.normalizer)),
      raw_added_(select_added(file.added, false, normalizer_, name_)),
      normalized_added_(select_added(file.added, true, normalizer_, name_)),
      pre_tokenizer_(file.stages, name_),
      bpe_(file.merges, std::move(file.symbols), std::move(file.whole_words)) {
  for (const AddedToken& token : file.added) {
    added_ids_.emplace(token.content, token.id);
    if (token.special) special_tokens_.push_back(token.content);
    // The decoder's steps undo what the normalizer did, and expect that it was done.
    if (token.normalized && !decoder_.empty())
      tokens_[token.id].bytes = normalizer_.normalize(token.content);
  }
}

std::optional<TokenId> BpeTokenizer::added_token(std::string_view content) const {
  const auto found = added_ids_.find(content);
  return found == added_ids_.end() ? std::nullopt : std::make_optional(found->second);
}

void BpeTokenizer::check_text(std::string_view text) {
  if (text.size() >= kMaxText)
    fail(ExitCode::kUsage, "tokenizer", "wanted a text below 512 MiB, found ", text.size(),
         " bytes; split it into documents");
  if (const size_t at = find_invalid_utf8(text); at != std::string_view::npos)
    fail(ExitCode::kDamaged, "tokenizer", "wanted UTF-8, found a malformed sequence at byte ", at,
         " of ", text.size(), "; convert the text, or use the `bytes` tokenizer");
}

void BpeTokenizer::encode_plain(std::string_view text, std::vector<TokenId>& out,
                                Place place) const {
  encode_with(text, AddedTokenMatcher::Find::kNone, place, out);
}

void BpeTokenizer::encode(std::string_view text, std::vector<TokenId>& out, Place place) const {
  encode_with(text, AddedTokenMatcher::Find::kAll, place, out);
}

size_t BpeTokenizer::encode_text(std::string_view text, std::vector<TokenId>& out,
                                 Place place) const {
  return encode_with(text, AddedTokenMatcher::Find::kOrdinary, place, out);
}

size_t BpeTokenizer::encode_with(std::string_view text, AddedTokenMatcher::Find find, Place place,
                                 std::vector<TokenId>& out) const {
  check_text(text);
  Lease lease(*this);
  Scratch& scratch = *lease;
  if (find == AddedTokenMatcher::Find::kNone) return encode_piece(text, find, place, scratch, out);
  scratch.pieces.clear();
  size_t left = raw_added_.split(text, scratch.pieces, find);
  for (const AddedTokenMatcher::Piece& piece : scratch.pieces) {
    if (piece.id >= 0)
      out.push_back(piece.id);
    else
      left += encode_piece(piece.text, find, place, scratch, out);
    place = Place::kAfterToken;  // two texts never follow each other
  }
  return left;
}

size_t BpeTokenizer::encode_piece(std::string_view piece, AddedTokenMatcher::Find find, Place place,
                                  Scratch& scratch, std::vector<TokenId>& out) const {
  piece = normalizer_.normalize(piece, place == Place::kInsideText, scratch.normalized);
  scratch.inner.clear();
  size_t left = 0;
  if (find == AddedTokenMatcher::Find::kNone || normalized_added_.empty())
    scratch.inner.push_back({-1, piece});
  else
    left = normalized_added_.split(piece, scratch.inner, find);
  for (const AddedTokenMatcher::Piece& inner : scratch.inner) {
    if (inner.id >= 0) {
      out.push_back(inner.id);
    } else {
      const std::string_view cut = pre_tokenizer_.split(inner.text, place, scratch.words);
      bpe_.encode(cut, scratch.words.ends, scratch.bpe, out);
    }
    place = Place::kAfterToken;
  }
  return left;
}

void BpeTokenizer::encode_with_special(std::string_view text, std::vector<TokenId>& out) const {
  out.insert(out.end(), prefix_.begin(), prefix_.end());
  encode(text, out);
  out.insert(out.end(), suffix_.begin(), suffix_.end());
}

bool BpeTokenizer::knows(TokenId id) const {
  return id >= 0 && static_cast<size_t>(id) < tokens_.size() && tokens_[id].known;
}

std::string BpeTokenizer::decode(const std::vector<TokenId>& ids, bool skip_special) const {
  return decode_at(ids, skip_special, false);
}

std::string BpeTokenizer::decode_more(const std::vector<TokenId>& ids, bool skip_special) const {
  return decode_at(ids, skip_special, true);
}

std::string BpeTokenizer::decode_at(const std::vector<TokenId>& ids, bool skip_special,
                                    bool continues) const {
  std::string bytes;
  std::vector<std::string> tokens;
  for (const TokenId id : ids) {
    if (!knows(id))
      fail(ExitCode::kUsage, "tokenizer", "wanted ids of ", name_, " (0 to ", tokens_.size() - 1,
           "), found ", id, "; the ids come from another tokenizer");
    if (skip_special && tokens_[id].special) continue;
    if (decoder_.empty())
      bytes += tokens_[id].bytes;
    else
      tokens.push_back(tokens_[id].bytes);
  }
  return decoder_.empty() ? bytes : decode_tokens(decoder_, std::move(tokens), continues);
}

TokenId BpeTokenizer::end_of_document() const {
  if (end_of_document_) return *end_of_document_;
  fail(ExitCode::kUsage, "tokenizer", "wanted an added token that ends a document in ", name_, " (",
       kEndNames[0], ", ", kEndNames[1], ", ", kEndNames[2], " or ", kEndNames[3],
       "), found none; add one to its added_tokens");
}

}  // namespace octavo::tokenizer
