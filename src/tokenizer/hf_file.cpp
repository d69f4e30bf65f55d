#include "tokenizer/hf_file.h"

#include <algorithm>
#include <initializer_list>
#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "tokenizer/byte_alphabet.h"

namespace octavo::tokenizer {
namespace {

constexpr TokenId kMaxId = 1 << 21;      // eight times the largest vocabulary in use
constexpr size_t kMaxAddedLength = 512;  // bounds the work at each place of the text
constexpr size_t kMaxStages = 16;
constexpr JsonLimits kLimits{size_t{128} << 20, 16};

using Type = Json::value_t;

class Reader {
 public:
  Reader(std::string_view json, std::string_view source)
      : source_(source), root_(parse_json(json, source, kLimits)) {}

  HfFile read() {
    only(root_, "the file",
         {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
          "post_processor", "decoder", "model"});
    for (const char* name : {"truncation", "padding"})
      if (root_.contains(name) && !root_[name].is_null())
        refuse(name, "null", root_[name].dump().substr(0, 80));
    read_model(json_field(root_, "model", Type::object, source_));
    read_added();
    if (root_.contains("normalizer")) read_normalizer(root_["normalizer"]);
    read_pre_tokenizers();
    read_decoder();
    if (root_.contains("post_processor")) read_post_processor(root_["post_processor"]);
    return std::move(file_);
  }

 private:
  // The field's value would change the ids and nothing here computes what it asks for.
  [[noreturn]] void refuse(std::string_view what, std::string_view wanted,
                           std::string_view found) const {
    fail(ExitCode::kUsage, "tokenizer", source_, ": ", what, ": wanted ", wanted, ", found ", found,
         ", which is not supported; use another tokenizer");
  }
  template <typename... Parts>
  [[noreturn]] void damaged(const Parts&... parts) const {
    fail(ExitCode::kDamaged, "tokenizer", source_, ": ", parts...,
         "; get the file again from where it came");
  }

  void only(const Json& object, std::string_view where,
            std::initializer_list<std::string_view> known) const {
    if (!object.is_object()) damaged(where, ": wanted an object, found ", object.type_name());
    for (const auto& item : object.items())
      if (std::find(known.begin(), known.end(), item.key()) == known.end())
        refuse(where, "only known fields", "'" + item.key().substr(0, 80) + "'");
  }

  bool flag(const Json& object, const char* name, bool absent) const {
    if (!object.contains(name)) return absent;
    return json_field(object, name, Type::boolean, source_).get<bool>();
  }

  TokenId id_of(const Json& value, std::string_view what) const {
    if (!value.is_number_integer()) damaged(what, ": wanted an id, found ", value.type_name());
    const bool in_range = value.is_number_unsigned() ? value.get<uint64_t>() < uint64_t{kMaxId}
                                                     : value.get<int64_t>() >= 0;
    if (!in_range) damaged(what, ": wanted an id from 0 to ", kMaxId - 1, ", found ", value.dump());
    return value.get<TokenId>();
  }

  HfFile::Token& new_token(TokenId id, std::string_view content) {
    if (static_cast<size_t>(id) >= file_.tokens.size()) file_.tokens.resize(id + 1);
    HfFile::Token& token = file_.tokens[id];
    if (token.known) damaged("the id ", id, " of '", content, "' belongs to another token, too");
    token.known = true;
    return token;
  }

  void read_model(const Json& model) {
    only(model, "model",
         {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
          "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
    const std::string type = json_string(model, "type", source_);
    if (type != "BPE") refuse("model type", "BPE", type);
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (model.contains(name) && !model[name].is_null() && model[name] != "")
        refuse(name, "nothing", model[name].dump().substr(0, 80));
    if (model.contains("dropout") && !model["dropout"].is_null() && model["dropout"] != 0)
      refuse("dropout", "none", model["dropout"].dump().substr(0, 80));
    const bool whole_words = flag(model, "ignore_merges", false);
    const Json& vocab = json_field(model, "vocab", Type::object, source_);
    if (vocab.empty()) damaged("wanted a vocabulary, found an empty one");
    for (const auto& item : vocab.items()) {
      const TokenId id = id_of(item.value(), "vocab");
      vocab_.insert(item.key(), id);
      const auto bytes = alphabet_.to_bytes(item.key());
      new_token(id, item.key()).bytes = bytes.value_or(item.key());
      if (whole_words && bytes && !bytes->empty()) file_.whole_words.insert(*bytes, id);
    }
    read_bytes(model);
    const Json& merges = json_field(model, "merges", Type::array, source_);
    file_.merges.reserve(merges.size());
    for (const Json& merge : merges) read_merge(merge);
  }

  // Bytes without a token: the Hugging Face library drops them when there is no unknown token.
  void read_bytes(const Json& model) {
    int missing = 0;
    for (int byte = 0; byte < 256; ++byte) {
      file_.byte_tokens[byte] = vocab_.find(alphabet_.to_char(static_cast<uint8_t>(byte)));
      missing += file_.byte_tokens[byte] == ByteMap::kNone;
    }
    if (missing == 0) return;  // an unknown token or a fallback can never be needed
    if (missing == 256)
      refuse("vocab", "a byte-level vocabulary", "none of the 256 characters that stand for bytes");
    if (model.contains("unk_token") && !model["unk_token"].is_null())
      refuse("unk_token", "null, or a token for every byte",
             model["unk_token"].dump().substr(0, 80));
    if (flag(model, "byte_fallback", false))
      refuse("byte_fallback", "false, or a token for every byte", "true");
    log_warn_once(
        str("[tokenizer] ", source_, ": ", missing,
            " bytes have no token and are dropped from text, as in the Hugging Face library"));
  }

  void read_merge(const Json& merge) {
    std::string left, right;
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else if (merge.is_string()) {
      const auto& text = merge.get_ref<const std::string&>();
      const size_t space = text.find(' ');
      if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos)
        damaged("merge ", file_.merges.size(), ": wanted two tokens, found '", text, "'");
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else {
      damaged("merge ", file_.merges.size(), ": wanted two tokens, found ",
              merge.dump().substr(0, 80));
    }
    if (left.empty() || right.empty())
      damaged("merge ", file_.merges.size(), ": wanted two tokens, found an empty one");
    const auto known = [&](const std::string& token) {
      const TokenId id = vocab_.find(token);
      if (id == ByteMap::kNone)
        damaged("merge ", file_.merges.size(), ": '", token, "' is not in the vocabulary");
      return id;
    };
    file_.merges.push_back({known(left), known(right), known(left + right)});
  }

  void read_added() {
    if (!root_.contains("added_tokens")) return;
    for (const Json& entry : json_field(root_, "added_tokens", Type::array, source_)) {
      only(entry, "added_tokens",
           {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
      AddedToken token;
      token.content = json_string(entry, "content", source_);
      token.id = id_of(json_field(entry, "id", Type::number_integer, source_), "added_tokens");
      const auto read = [&](const char* name) {
        return json_field(entry, name, Type::boolean, source_).get<bool>();
      };
      token.single_word = read("single_word");
      token.lstrip = read("lstrip");
      token.rstrip = read("rstrip");
      token.normalized = read("normalized");
      token.special = read("special");
      add(std::move(token));
    }
  }

  void add(AddedToken token) {
    if (token.content.empty() || token.content.size() > kMaxAddedLength)
      damaged("added_tokens: wanted a content of 1 to ", kMaxAddedLength, " bytes, found ",
              token.content.size());
    if (!added_contents_.insert(token.content).second)
      damaged("added_tokens: '", token.content, "' is there twice");
    const TokenId in_vocab = vocab_.find(token.content);
    if (in_vocab == ByteMap::kNone)
      new_token(token.id, token.content);
    else if (in_vocab != token.id)
      damaged("added_tokens: '", token.content, "' has the id ", token.id,
              " and in the vocabulary ", in_vocab);
    // As written: the library runs added tokens through its byte alphabet, which garbles é and the
    // like.
    file_.tokens[token.id].bytes = token.content;
    file_.tokens[token.id].special = token.special;
    file_.added.push_back(std::move(token));
  }

  void read_normalizer(const Json& normalizer) {
    if (normalizer.is_null()) return;
    const std::string type = json_string(normalizer, "type", source_);
    if (type == "NFC") {
      only(normalizer, "normalizer", {"type"});
      file_.nfc = true;
    } else if (type == "Sequence") {
      only(normalizer, "normalizer", {"type", "normalizers"});
      for (const Json& part : json_field(normalizer, "normalizers", Type::array, source_))
        read_normalizer(part);
    } else {
      refuse("normalizer", "NFC or none", type);
    }
  }

  void read_pre_tokenizers() {
    const Json& pre = json_field(root_, "pre_tokenizer", Type::object, source_);
    std::vector<const Json*> parts{&pre};
    if (json_string(pre, "type", source_) == "Sequence") {
      only(pre, "pre_tokenizer", {"type", "pretokenizers"});
      parts.clear();
      for (const Json& part : json_field(pre, "pretokenizers", Type::array, source_))
        parts.push_back(&part);
    }
    if (parts.empty() || parts.size() > kMaxStages)
      refuse("pre_tokenizer", str("1 to ", kMaxStages, " parts"), str(parts.size()));
    for (const Json* part : parts) {
      const bool last = part == parts.back();
      const std::string type = json_string(*part, "type", source_);
      // After ByteLevel the text is written in its alphabet; nothing may cut it there.
      if ((type == "ByteLevel") != last)
        refuse("pre_tokenizer", "ByteLevel as the last part and only there", type);
      read_pre_tokenizer(*part, type);
    }
  }

  void read_pre_tokenizer(const Json& part, const std::string& type) {
    if (type == "ByteLevel") {
      only(part, type, {"type", "add_prefix_space", "trim_offsets", "use_regex"});
      if (flag(part, "add_prefix_space", true))
        file_.stages.push_back({StageKind::kPrefixSpace, {}});
      if (flag(part, "use_regex", true)) file_.stages.push_back({StageKind::kGpt2, {}});
    } else if (type == "Digits") {
      only(part, type, {"type", "individual_digits"});
      const bool alone = json_field(part, "individual_digits", Type::boolean, source_).get<bool>();
      file_.stages.push_back({alone ? StageKind::kDigits : StageKind::kDigitRuns, {}});
    } else if (type == "Split") {
      only(part, type, {"type", "pattern", "behavior", "invert"});
      const Json& pattern = json_field(part, "pattern", Type::object, source_);
      only(pattern, "Split pattern", {"Regex"});
      const std::string behavior = json_string(part, "behavior", source_);
      if (behavior != "Isolated") refuse("Split behavior", "Isolated", behavior);
      // Isolated keeps matches and what is between them alike, so `invert` changes nothing.
      flag(part, "invert", false);
      file_.stages.push_back(stage_of_pattern(json_string(pattern, "Regex", source_)));
    } else {
      refuse("pre_tokenizer", "Split, Digits or ByteLevel", type);
    }
  }

  void read_decoder() {
    const Json& decoder = json_field(root_, "decoder", Type::object, source_);
    const std::string type = json_string(decoder, "type", source_);
    if (type != "ByteLevel") refuse("decoder", "ByteLevel", type);
  }

  void read_post_processor(const Json& processor) {
    if (processor.is_null()) return;
    const std::string type = json_string(processor, "type", source_);
    if (type == "ByteLevel") return;  // moves offsets, never ids
    if (type == "Sequence") {
      only(processor, "post_processor", {"type", "processors"});
      for (const Json& part : json_field(processor, "processors", Type::array, source_))
        read_post_processor(part);
    } else if (type == "TemplateProcessing") {
      read_template(processor);
    } else {
      refuse("post_processor", "ByteLevel, TemplateProcessing or none", type);
    }
  }

  void read_template(const Json& processor) {
    only(processor, "TemplateProcessing", {"type", "single", "pair", "special_tokens"});
    if (has_template_) refuse("post_processor", "one TemplateProcessing", "two");
    has_template_ = true;
    const Json& special = json_field(processor, "special_tokens", Type::object, source_);
    bool text_seen = false;
    for (const Json& piece : json_field(processor, "single", Type::array, source_)) {
      only(piece, "TemplateProcessing", {"SpecialToken", "Sequence"});
      if (piece.contains("Sequence")) {
        const Json& sequence = json_field(piece, "Sequence", Type::object, source_);
        if (text_seen || json_string(sequence, "id", source_) != "A")
          refuse("TemplateProcessing", "the text once", piece.dump().substr(0, 80));
        text_seen = true;
        continue;
      }
      const Json& token = json_field(piece, "SpecialToken", Type::object, source_);
      const std::string name = json_string(token, "id", source_);
      const Json& entry = json_field(special, name.c_str(), Type::object, source_);
      for (const Json& id : json_field(entry, "ids", Type::array, source_))
        (text_seen ? file_.suffix : file_.prefix).push_back(template_id(id, name));
    }
    if (!text_seen) refuse("TemplateProcessing", "the text once", "no text");
  }

  TokenId template_id(const Json& value, const std::string& name) const {
    const TokenId id = id_of(value, "TemplateProcessing");
    if (static_cast<size_t>(id) >= file_.tokens.size() || !file_.tokens[id].known)
      damaged("TemplateProcessing: the id ", id, " of '", name, "' is no token");
    return id;
  }

  std::string source_;
  Json root_;
  HfFile file_;
  ByteAlphabet alphabet_;
  ByteMap vocab_;
  std::set<std::string, std::less<>> added_contents_;
  bool has_template_ = false;
};

}  // namespace

HfFile parse_hf_file(std::string_view json, std::string_view source) {
  return Reader(json, source).read();
}

}  // namespace octavo::tokenizer
