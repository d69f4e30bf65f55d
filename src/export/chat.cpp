#include "export/chat.h"

#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "data/chat_jinja.h"
#include "tokenizer/special_tokens.h"

namespace octavo::exporter {
namespace {

using tokenizer::TokenId;

constexpr const char* kIdNames[] = {"bos_token_id", "eos_token_id", "pad_token_id"};

// A number or a list of them, with `id` in front of the others.
Json with_end(const Json& ids, TokenId id) {
  Json all = Json::array({id});
  const Json others = ids.is_array() ? ids : ids.is_null() ? Json::array() : Json::array({ids});
  for (const Json& other : others)
    if (std::ranges::find(all, other) == all.end()) all.push_back(other);
  return all.size() == 1 ? all.front() : all;
}

// What the source's folder says of a file; an empty object when it has none.
Json of_source(const ExportSource& source, const char* name) {
  const fs::path file = source.files / name;
  if (source.files.empty() || !fs::is_regular_file(file)) return Json::object();
  Json json = read_json(file);
  if (!json.is_object())
    fail(ExitCode::kDamaged, "train", file.string(), ": wanted an object, found ",
         json.type_name());
  return json;
}

// A chat template and what becomes of the files of a model that was trained with it.
class ChatFiles {
 public:
  ChatFiles(const ExportSource& source, const tokenizer::Tokenizer& tokenizer,
            config::ChatTemplate kind)
      : source_(source),
        tokenizer_(tokenizer),
        is_own_(kind == config::ChatTemplate::kAuto),
        end_(data::end_of_answer(kind, tokenizer)),
        jinja_(data::jinja_of(kind, tokenizer)) {}

  // The content of a file, or "" when it is the source's or there is none.
  std::string content(const std::string& name) const {
    const bool has_tokenizer =
        !source_.files.empty() && fs::is_regular_file(source_.files / "tokenizer.json");
    const bool in_source = !source_.files.empty() && fs::is_regular_file(source_.files / name);
    if (name == "generation_config.json") return generation_config().dump(2) + "\n";
    if (name == "tokenizer_config.json" && has_tokenizer)
      return tokenizer_config(in_source).dump(2) + "\n";
    if (name == "chat_template.jinja" && in_source && !is_own_)
      return jinja_;  // goes before the other's
    if (name == "special_tokens_map.json" && in_source) {
      Json map = of_source(source_, name.c_str());
      map["eos_token"] = text(end_);
      return map.dump(2) + "\n";
    }
    return {};
  }

 private:
  std::string text(TokenId id) const { return tokenizer_.decode({id}); }

  Json generation_config() const {
    Json json = of_source(source_, "generation_config.json");
    Json ids;
    add_token_ids(source_, &tokenizer_, ids);
    for (const char* name : kIdNames)
      if (!json.contains(name) && ids.contains(name) && !ids.at(name).is_null())
        json[name] = ids.at(name);
    json["eos_token_id"] = with_end(json.value("eos_token_id", Json()), end_);
    return json;
  }

  Json tokenizer_config(bool in_source) const {
    Json json = of_source(source_, "tokenizer_config.json");
    if (!in_source) {
      json = {{"tokenizer_class", "PreTrainedTokenizerFast"},
              {"clean_up_tokenization_spaces", false}};
      std::vector<TokenId> begin;
      tokenizer_.encode_with_special("", begin);
      if (!begin.empty()) json["bos_token"] = text(begin.front());
    }
    json["eos_token"] = text(end_);
    if (is_own_) return json;  // what it says of the template stays
    const auto old = json.find("chat_template");
    if (old != json.end() && *old != jinja_)
      log_info(
          "export: the chat template of the source is replaced by the one that the model was "
          "trained with (which has no place for tools)");
    json["chat_template"] = jinja_;
    return json;
  }

  const ExportSource& source_;
  const tokenizer::Tokenizer& tokenizer_;
  bool is_own_;  // the source's own template
  TokenId end_;
  std::string jinja_;
};

}  // namespace

void add_token_ids(const ExportSource& source, const tokenizer::Tokenizer* tokenizer,
                   Json& config) {
  for (const Json& ids : {source.source_config, of_source(source, "generation_config.json")})
    for (const char* name : kIdNames)
      if (ids.is_object() && ids.contains(name) &&
          (!config.contains(name) || config.at(name).is_null()))
        config[name] = ids.at(name);
  if (tokenizer == nullptr) return;
  if (!config.contains("eos_token_id")) {
    tokenizer::SpecialTokens special;
    if (!source.files.empty()) special = tokenizer::read_special_tokens(source.files, *tokenizer);
    config["bos_token_id"] = special.bos ? Json(*special.bos) : Json();
    Json ends;
    for (auto id = special.stop.rbegin(); id != special.stop.rend(); ++id)
      ends = with_end(ends, *id);
    config["eos_token_id"] = ends.is_null() ? Json(tokenizer->end_of_document()) : ends;
  }
  if (source.chat_template)
    config["eos_token_id"] =
        with_end(config.at("eos_token_id"), data::end_of_answer(*source.chat_template, *tokenizer));
}

void write_companions(const ExportSource& source, const tokenizer::Tokenizer* tokenizer,
                      const fs::path& folder, ExportReport& report) {
  std::optional<ChatFiles> chat;
  if (source.chat_template && tokenizer != nullptr) {
    chat.emplace(source, *tokenizer, *source.chat_template);
    report.chat_template = data::stored_name(*source.chat_template);
  } else if (source.chat_template) {
    log_warn(octavo::str("export: without a tokenizer the export does not say that chat_template ",
                         data::stored_name(*source.chat_template),
                         " ends its answers, nor what it is"));
  }
  for (const char* name : {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
                           "generation_config.json", "chat_template.jinja"}) {
    if (const std::string content = chat ? chat->content(name) : ""; !content.empty()) {
      write_file_atomic(folder / name, content);
      report.written.emplace_back(name);
      continue;
    }
    const fs::path file = source.files / name;
    if (source.files.empty() || !fs::is_regular_file(file)) {
      report.missing.emplace_back(name);
      continue;
    }
    fs::copy_file(file, folder / name);
    fsync_path(folder / name);
    report.copied.emplace_back(name);
  }
}

}  // namespace octavo::exporter
