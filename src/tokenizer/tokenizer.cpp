#include "tokenizer/tokenizer.h"

#include "base/error.h"
#include "base/model_file.h"
#include "tokenizer/bpe_tokenizer.h"
#include "tokenizer/hf_file.h"

namespace octavo::tokenizer {
namespace {

constexpr size_t kMaxFile = size_t{128} << 20;  // the largest in use (256k tokens) is 34 MB

// id = byte; 256 stands between documents and is not text.
class BytesTokenizer : public Tokenizer {
 public:
  using Tokenizer::encode;
  void encode(std::string_view text, std::vector<TokenId>& out, Place) const override {
    const auto* bytes = reinterpret_cast<const unsigned char*>(text.data());
    out.insert(out.end(), bytes, bytes + text.size());
  }
  size_t encode_text(std::string_view text, std::vector<TokenId>& out, Place) const override {
    encode(text, out);
    return 0;
  }
  void encode_plain(std::string_view text, std::vector<TokenId>& out, Place) const override {
    encode(text, out);
  }
  std::optional<TokenId> added_token(std::string_view) const override { return std::nullopt; }
  const std::vector<TokenId>& begin_ids() const override { return none_; }
  const std::vector<TokenId>& end_ids() const override { return none_; }
  const std::vector<std::string>& special_tokens() const override { return no_texts_; }
  void encode_with_special(std::string_view text, std::vector<TokenId>& out) const override {
    encode(text, out);
  }
  std::string decode(const std::vector<TokenId>& ids, bool) const override {
    std::string bytes;
    for (const TokenId id : ids) {
      if (!knows(id))
        fail(ExitCode::kUsage, "tokenizer", "wanted ids of `bytes` (0 to ", kEnd, "), found ", id,
             "; the ids come from another tokenizer");
      if (id != kEnd) bytes.push_back(static_cast<char>(id));
    }
    return bytes;
  }
  std::string decode_more(const std::vector<TokenId>& ids, bool skip_special) const override {
    return decode(ids, skip_special);
  }
  bool knows(TokenId id) const override { return id >= 0 && id <= kEnd; }
  int64_t vocab_size() const override { return kEnd + 1; }
  TokenId end_of_document() const override { return kEnd; }
  std::string name() const override { return "bytes"; }
  std::string fingerprint() const override {
    const std::string_view what = "octavo bytes tokenizer, 257 ids";
    return hash_bytes(std::as_bytes(std::span(what.data(), what.size())));
  }

 private:
  static constexpr TokenId kEnd = 256;
  std::vector<TokenId> none_;
  std::vector<std::string> no_texts_;
};

}  // namespace

std::unique_ptr<Tokenizer> load_tokenizer(const std::string& name) {
  if (name == "bytes") return std::make_unique<BytesTokenizer>();
  fs::path path = name;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) path = model_file(path, "tokenizer.json");
  if (!fs::is_regular_file(path, ignored))
    fail(ExitCode::kUsage, "tokenizer",
         "wanted `bytes`, a tokenizer.json or a folder that holds one, found '", name,
         "' which is none of them; give the path of a tokenizer.json, or owner/name of the Hugging "
         "Face hub");
  const std::string json = read_file(path, kMaxFile);
  std::string fingerprint = hash_bytes(std::as_bytes(std::span(json.data(), json.size())));
  return std::make_unique<BpeTokenizer>(name, std::move(fingerprint),
                                        parse_hf_file(json, path.string()));
}

}  // namespace octavo::tokenizer
