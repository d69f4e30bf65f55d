#include "tokenizer/hf_file.h"

#include <set>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/hf_source.h"
#include "tokenizer/hf_steps.h"
#include "tokenizer/unicode.h"

namespace octavo::tokenizer {
namespace {

constexpr TokenId kMaxId = 1 << 21;      // eight times the largest vocabulary in use
constexpr size_t kMaxAddedLength = 512;  // bounds the work at each place of the text
constexpr JsonLimits kLimits{size_t{128} << 20, 16};

// What stands for a space in vocabularies of the SentencePiece heritage.
constexpr std::string_view kSpaceMark = "\u2581";

using Type = Json::value_t;

class Reader {
 public:
  Reader(std::string_view json, std::string_view source)
      : source_(source), root_(parse_json(json, source, kLimits)) {}

  HfFile read() {
    source_.only(root_, "the file",
                 {"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                  "post_processor", "decoder", "model"});
    for (const char* name : {"truncation", "padding"})
      if (root_.contains(name) && !root_[name].is_null())
        source_.refuse(name, "null", root_[name].dump().substr(0, 80));
    byte_level_ = is_byte_level(source_, root_);
    read_model(source_.field(root_, "model", Type::object));
    read_added();
    file_.normalizer = read_normalizer(source_, root_);
    file_.stages = read_pre_tokenizer(source_, root_);
    check_first_prefix(source_, file_.normalizer, file_.stages);
    // Where no token joins a word with the space behind it, words can be merged one by one.
    if (words_stay_apart_)
      file_.stages.push_back({StageKind::kWordStarts, std::string(kSpaceMark), CutMode::kBefore});
    file_.decoder = read_decoder(source_, root_, byte_level_);
    if (root_.contains("post_processor")) read_post_processor(root_["post_processor"]);
    return std::move(file_);
  }

 private:
  TokenId id_of(const Json& value, std::string_view what) const {
    if (!value.is_number_integer())
      source_.damaged(what, ": wanted an id, found ", value.type_name());
    const bool in_range = value.is_number_unsigned() ? value.get<uint64_t>() < uint64_t{kMaxId}
                                                     : value.get<int64_t>() >= 0;
    if (!in_range)
      source_.damaged(what, ": wanted an id from 0 to ", kMaxId - 1, ", found ", value.dump());
    return value.get<TokenId>();
  }

  HfFile::Token& new_token(TokenId id, std::string_view content) {
    if (static_cast<size_t>(id) >= file_.tokens.size()) file_.tokens.resize(id + 1);
    HfFile::Token& token = file_.tokens[id];
    if (token.known)
      source_.damaged("the id ", id, " of '", content, "' belongs to another token, too");
    token.known = true;
    return token;
  }

  void read_model(const Json& model) {
    source_.only(model, "model",
                 {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
                  "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"});
    const std::string type = source_.text(model, "type");
    if (type != "BPE") source_.refuse("model type", "BPE", type);
    for (const char* name : {"continuing_subword_prefix", "end_of_word_suffix"})
      if (model.contains(name) && !model[name].is_null() && model[name] != "")
        source_.refuse(name, "nothing", model[name].dump().substr(0, 80));
    if (model.contains("dropout") && !model["dropout"].is_null() && model["dropout"] != 0)
      source_.refuse("dropout", "none", model["dropout"].dump().substr(0, 80));
    const bool whole_words = source_.flag(model, "ignore_merges", false);
    read_vocab(source_.field(model, "vocab", Type::object), whole_words);
    if (byte_level_)
      read_bytes(model);
    else
      read_characters(model);
    words_stay_apart_ = !byte_level_ && !whole_words && vocab_.find(kSpaceMark) != ByteMap::kNone;
    const Json& merges = source_.field(model, "merges", Type::array);
    file_.merges.reserve(merges.size());
    for (const Json& merge : merges) read_merge(merge);
  }

  void read_vocab(const Json& vocab, bool whole_words) {
    if (vocab.empty()) source_.damaged("wanted a vocabulary, found an empty one");
    for (const auto& item : vocab.items()) {
      const TokenId id = id_of(item.value(), "vocab");
      vocab_.insert(item.key(), id);
      const auto bytes = byte_level_ ? alphabet_.to_bytes(item.key()) : item.key();
      new_token(id, item.key()).bytes = bytes.value_or(item.key());
      if (whole_words && bytes && !bytes->empty()) file_.whole_words.insert(*bytes, id);
    }
  }

  // Bytes without a token: the Hugging Face library drops them when there is no unknown token.
  void read_bytes(const Json& model) {
    int missing = 0;
    for (int byte = 0; byte < 256; ++byte) {
      TokenId& token = file_.symbols.bytes[byte];
      token = vocab_.find(alphabet_.to_char(static_cast<uint8_t>(byte)));
      missing += token == ByteMap::kNone;
    }
    if (missing == 0) return;  // an unknown token or a fallback can never be needed
    if (missing == 256)
      source_.refuse("vocab", "a byte-level vocabulary",
                     "none of the 256 characters that stand for bytes");
    if (model.contains("unk_token") && !model["unk_token"].is_null())
      source_.refuse("unk_token", "null, or a token for every byte",
                     model["unk_token"].dump().substr(0, 80));
    if (source_.flag(model, "byte_fallback", false))
      source_.refuse("byte_fallback", "false, or a token for every byte", "true");
    log_warn_once(
        str("[tokenizer] ", source_.name(), ": ", missing,
            " bytes have no token and are dropped from text, as in the Hugging Face library"));
  }

  // Characters without a token: byte fallback, else the unknown token, else they are dropped.
  void read_characters(const Json& model) {
    Symbols& symbols = file_.symbols;
    symbols.by_characters = true;
    for (const auto& item : model["vocab"].items()) {
      const std::string& token = item.key();
      if (token.empty() || decode_utf8(token.data()).length != token.size()) continue;
      const size_t code_point = decode_utf8(token.data()).value;
      if (symbols.characters.size() <= code_point)
        symbols.characters.resize(code_point + 1, Symbols::kNone);
      symbols.characters[code_point] = vocab_.find(token);
    }
    int missing = 256;
    for (int byte = 0; byte < 256 && source_.flag(model, "byte_fallback", false); ++byte) {
      char name[8];
      std::snprintf(name, sizeof(name), "<0x%02X>", byte);
      symbols.bytes[byte] = vocab_.find(name);
      missing -= symbols.bytes[byte] != ByteMap::kNone;
    }
    symbols.fuses_unknown = source_.flag(model, "fuse_unk", false);
    const bool has_unknown = model.contains("unk_token") && !model["unk_token"].is_null();
    if (has_unknown) symbols.unknown = vocab_.find(source_.text(model, "unk_token"));
    if (missing == 0 || symbols.unknown != Symbols::kNone) return;
    if (has_unknown)
      source_.damaged("unk_token: '", source_.text(model, "unk_token"),
                      "' is not in the vocabulary");
    log_warn_once(str("[tokenizer] ", source_.name(),
                      ": characters without a token are dropped from text, as in the Hugging Face "
                      "library: there is no unk_token and no byte_fallback with 256 tokens"));
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
        source_.damaged("merge ", file_.merges.size(), ": wanted two tokens, found '", text, "'");
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else {
      source_.damaged("merge ", file_.merges.size(), ": wanted two tokens, found ",
                      merge.dump().substr(0, 80));
    }
    if (left.empty() || right.empty())
      source_.damaged("merge ", file_.merges.size(), ": wanted two tokens, found an empty one");
    const auto known = [&](const std::string& token) {
      const TokenId id = vocab_.find(token);
      if (id == ByteMap::kNone)
        source_.damaged("merge ", file_.merges.size(), ": '", token, "' is not in the vocabulary");
      return id;
    };
    file_.merges.push_back({known(left), known(right), known(left + right)});
    if (right.starts_with(kSpaceMark) && !left.ends_with(kSpaceMark)) words_stay_apart_ = false;
  }

  void read_added() {
    if (!root_.contains("added_tokens")) return;
    for (const Json& entry : source_.field(root_, "added_tokens", Type::array)) {
      source_.only(entry, "added_tokens",
                   {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"});
      AddedToken token;
      token.content = source_.text(entry, "content");
      token.id = id_of(source_.field(entry, "id", Type::number_integer), "added_tokens");
      const auto read = [&](const char* name) {
        return source_.field(entry, name, Type::boolean).get<bool>();
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
      source_.damaged("added_tokens: wanted a content of 1 to ", kMaxAddedLength, " bytes, found ",
                      token.content.size());
    if (!added_contents_.insert(token.content).second)
      source_.damaged("added_tokens: '", token.content, "' is there twice");
    const TokenId in_vocab = vocab_.find(token.content);
    if (in_vocab == ByteMap::kNone)
      new_token(token.id, token.content);
    else if (in_vocab != token.id)
      source_.damaged("added_tokens: '", token.content, "' has the id ", token.id,
                      " and in the vocabulary ", in_vocab);
    // As written: of byte-level files the library runs added tokens through its byte alphabet,
    // which garbles é and the like.
    file_.tokens[token.id].bytes = token.content;
    file_.tokens[token.id].special = token.special;
    file_.added.push_back(std::move(token));
  }

  void read_post_processor(const Json& processor) {
    if (processor.is_null()) return;
    const std::string type = source_.text(processor, "type");
    if (type == "ByteLevel") return;  // moves offsets, never ids
    if (type == "Sequence") {
      source_.only(processor, "post_processor", {"type", "processors"});
      for (const Json& part : source_.field(processor, "processors", Type::array))
        read_post_processor(part);
    } else if (type == "TemplateProcessing") {
      read_template(processor);
    } else {
      source_.refuse("post_processor", "ByteLevel, TemplateProcessing or none", type);
    }
  }

  void read_template(const Json& processor) {
    source_.only(processor, "TemplateProcessing", {"type", "single", "pair", "special_tokens"});
    if (has_template_) source_.refuse("post_processor", "one TemplateProcessing", "two");
    has_template_ = true;
    const Json& special = source_.field(processor, "special_tokens", Type::object);
    bool text_seen = false;
    for (const Json& piece : source_.field(processor, "single", Type::array)) {
      source_.only(piece, "TemplateProcessing", {"SpecialToken", "Sequence"});
      if (piece.contains("Sequence")) {
        const Json& sequence = source_.field(piece, "Sequence", Type::object);
        if (text_seen || source_.text(sequence, "id") != "A")
          source_.refuse("TemplateProcessing", "the text once", piece.dump().substr(0, 80));
        text_seen = true;
        continue;
      }
      const Json& token = source_.field(piece, "SpecialToken", Type::object);
      const std::string name = source_.text(token, "id");
      const Json& entry = source_.field(special, name.c_str(), Type::object);
      for (const Json& id : source_.field(entry, "ids", Type::array))
        (text_seen ? file_.suffix : file_.prefix).push_back(template_id(id, name));
    }
    if (!text_seen) source_.refuse("TemplateProcessing", "the text once", "no text");
  }

  TokenId template_id(const Json& value, const std::string& name) const {
    const TokenId id = id_of(value, "TemplateProcessing");
    if (static_cast<size_t>(id) >= file_.tokens.size() || !file_.tokens[id].known)
      source_.damaged("TemplateProcessing: the id ", id, " of '", name, "' is no token");
    return id;
  }

  HfSource source_;
  Json root_;
  HfFile file_;
  ByteAlphabet alphabet_;
  ByteMap vocab_;
  std::set<std::string, std::less<>> added_contents_;
  bool has_template_ = false;
  bool byte_level_ = false;
  bool words_stay_apart_ = false;  // no merge has the mark of a space behind anything else
};

}  // namespace

HfFile parse_hf_file(std::string_view json, std::string_view source) {
  return Reader(json, source).read();
}

}  // namespace octavo::tokenizer
