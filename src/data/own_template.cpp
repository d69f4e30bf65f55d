#include "data/own_template.h"

#include <algorithm>
#include <functional>
#include <span>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/model_file.h"
#include "base/printable.h"
#include "base/utf8.h"
#include "jinja/python_text.h"
#include "tokenizer/special_tokens.h"

namespace octavo::data {
namespace {

using jinja::OrderedJson;
using jinja::Span;
using tokenizer::TokenId;

constexpr size_t kMostTemplateBytes = size_t{1} << 19;
constexpr const char* kConfigName = "tokenizer_config.json";
constexpr const char* kTokenNames[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};

bool is_file(const fs::path& path) {
  std::error_code none;
  return fs::is_regular_file(path, none);
}

// chat_template of tokenizer_config.json: a text, or a list of named ones, of which `default`.
std::optional<std::string> template_in(const Json& config, const fs::path& file) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array())
    fail(ExitCode::kDamaged, "data", file.string(),
         ": chat_template: wanted text or a list, found ", found->type_name());
  for (const Json& one : *found)
    if (one.is_object() && one.value("name", Json()) == "default")
      return json_string(one, "template", file.string());
  return std::nullopt;
}

OrderedJson special_tokens_of(const Json& config) {
  OrderedJson tokens = OrderedJson::object();
  for (const char* name : kTokenNames) {
    const auto found = config.find(name);
    if (found == config.end()) continue;
    if (found->is_string())
      tokens[name] = found->get<std::string>();
    else if (found->is_object() && found->contains("content") && found->at("content").is_string())
      tokens[name] = found->at("content").get<std::string>();
  }
  return tokens;
}

// The day that Llama-3.1's template falls back to: the same data gives the same tokens every day.
std::tm fixed_day() {
  std::tm day{};
  day.tm_year = 124;
  day.tm_mon = 6;
  day.tm_mday = 26;
  day.tm_wday = 5;
  day.tm_yday = 207;
  return day;
}

// What a folder says.
struct Stated {
  std::string text, file;
  OrderedJson special_tokens;
};

std::optional<Stated> stated_beside(const std::string& tokenizer_name) {
  const fs::path folder = tokenizer::folder_of(tokenizer_name);
  if (folder.empty()) return std::nullopt;
  const fs::path config_file = model_file(folder, kConfigName);
  const Json config = is_file(config_file) ? read_json(config_file) : Json::object();
  if (!config.is_object())
    fail(ExitCode::kDamaged, "data", config_file.string(), ": wanted an object, found ",
         config.type_name());
  const fs::path own_file = model_file(folder, "chat_template.jinja");
  if (is_file(own_file))
    return Stated{read_file(own_file, kMostTemplateBytes), own_file.string(),
                  special_tokens_of(config)};
  if (auto text = template_in(config, config_file))
    return Stated{std::move(*text), config_file.string(), special_tokens_of(config)};
  return std::nullopt;
}

std::string whole_text(const Message& message) {
  return message.input.empty() ? message.content : message.content + "\n\n" + message.input;
}

}  // namespace

// Two code points that no text of a chat has stand around what is spelled like a special token.
struct OwnTemplate::Marks {
  std::string begin, end;  // "" when nothing is
};

struct OwnTemplate::Rendering {
  std::string text;
  std::vector<Span> generated;
};

std::shared_ptr<const OwnTemplate> OwnTemplate::find(const tokenizer::Tokenizer& tokenizer) {
  auto stated = stated_beside(tokenizer.name());
  if (!stated) return nullptr;
  return std::make_shared<OwnTemplate>(std::move(stated->text), std::move(stated->file),
                                       std::move(stated->special_tokens), tokenizer);
}

std::shared_ptr<const OwnTemplate> OwnTemplate::usable(const tokenizer::Tokenizer& tokenizer,
                                                       bool with_mask) {
  try {
    auto own = find(tokenizer);
    if (!own) return nullptr;
    const EncodedChat trial =
        own->encode({{"user", "a", ""}, {"assistant", "b", ""}}, false, with_mask);
    if (with_mask && std::ranges::find(trial.in_loss, 1) == trial.in_loss.end())
      fail(ExitCode::kDamaged, "data", own->file(), ": wanted answers, found none in its chats");
    return own;
  } catch (const Error& error) {
    log_warn(str("data: the model's own chat template is not used: ", error.what()));
    return nullptr;
  }
}

std::string OwnTemplate::fingerprint_beside(const std::string& tokenizer_name) {
  const auto stated = stated_beside(tokenizer_name);
  return stated ? hash_of(stated->text, stated->special_tokens) : "";
}

OwnTemplate::OwnTemplate(std::string text, std::string file, OrderedJson special_tokens,
                         const tokenizer::Tokenizer& tokenizer)
    : text_(std::move(text)),
      file_(std::move(file)),
      special_tokens_(std::move(special_tokens)),
      takes_input_(text_.find("['input']") != std::string::npos),
      template_(text_, file_),
      tokenizer_(tokenizer),
      specials_(tokenizer.special_tokens()) {
  std::ranges::sort(specials_, std::greater(), [](const auto& special) { return special.size(); });
  for (const std::string& special : specials_)
    begins_special_[static_cast<unsigned char>(special[0])] = true;
}

std::string_view OwnTemplate::special_at(std::string_view text) const {
  if (text.empty() || !begins_special_[static_cast<unsigned char>(text[0])]) return {};
  for (const std::string& special : specials_)
    if (text.starts_with(special)) return special;
  return {};
}

bool OwnTemplate::spells_special(std::string_view text) const {
  for (; !text.empty(); text.remove_prefix(1))
    if (!special_at(text).empty()) return true;
  return false;
}

std::string OwnTemplate::hash_of(const std::string& text, const OrderedJson& special_tokens) {
  const std::string all = text + '\0' + special_tokens.dump();
  return hash_bytes(std::as_bytes(std::span(all.data(), all.size())));
}

std::string OwnTemplate::mask_source() const {
  return template_.has_generation() ? "answers as its {% generation %} says"
                                    : "answers by comparing its renderings";
}

OwnTemplate::Marks OwnTemplate::marks_for(const std::vector<Message>& messages) const {
  std::string all;
  for (const Message& message : messages) all += whole_text(message) + '\n';
  if (!spells_special(all)) return {};
  // Noncharacters: Unicode says that no text has them, but who knows.
  for (uint32_t point = 0xFDD0; point < 0xFDEF; point += 2) {
    Marks marks;
    append_utf8(point, marks.begin);
    append_utf8(point + 1, marks.end);
    if (all.find(marks.begin) == all.npos && all.find(marks.end) == all.npos) return marks;
  }
  fail(ExitCode::kDamaged, "data",
       "wanted a chat of text, found one with all of Unicode's "
       "noncharacters U+FDD0 to U+FDEF; remove it");
}

OwnTemplate::Rendering OwnTemplate::render(const std::vector<Message>& messages, size_t count,
                                           bool open_turn, const Marks& marks) const {
  OrderedJson list = OrderedJson::array();
  for (size_t i = 0; i < count; ++i) {
    std::string content = takes_input_ ? messages[i].content : whole_text(messages[i]);
    if (!marks.begin.empty()) {
      std::string marked;
      for (std::string_view rest = content; !rest.empty();) {
        const std::string_view special = special_at(rest);
        if (special.empty())
          marked += rest[0];
        else
          marked.append(marks.begin).append(special).append(marks.end);
        rest.remove_prefix(std::max<size_t>(special.size(), 1));
      }
      content = std::move(marked);
    }
    list.push_back({{"role", messages[i].role}, {"content", std::move(content)}});
    if (takes_input_ && !messages[i].input.empty()) list.back()["input"] = messages[i].input;
  }
  OrderedJson context = special_tokens_;
  context["messages"] = std::move(list);
  context["tools"] = nullptr;
  context["documents"] = nullptr;
  context["add_generation_prompt"] = open_turn;
  jinja::RenderOptions options;
  options.now = fixed_day();
  jinja::Rendered rendered = template_.render(context, options);
  if (rendered.generation_is_unplaced)
    fail(ExitCode::kDamaged, "data", file_,
         ": {% generation %} inside a macro or a set block has no place in the text; "
         "name another chat_template, or train_on all");
  return {std::move(rendered.text), std::move(rendered.generated)};
}

// Behind the token that ends an answer templates write a line end, which the model does not.
size_t OwnTemplate::without_space_behind_end(const std::string& text, Span span) const {
  const std::string_view part(text.data() + span.begin, span.end - span.begin);
  const std::string_view bare = jinja::strip(part, jinja::Ends::kRight);
  const bool ends = std::any_of(specials_.begin(), specials_.end(),
                                [&](const auto& one) { return bare.ends_with(one); });
  return ends ? span.begin + bare.size() : span.end;
}

// Behind the next special token.
size_t OwnTemplate::end_of_turn(const std::string& text, size_t from) const {
  for (size_t at = from; at < text.size(); ++at)
    if (const auto special = special_at(std::string_view(text).substr(at)); !special.empty())
      return at + special.size();
  return text.size();
}

Span OwnTemplate::answer_at(const std::vector<Message>& messages, size_t index,
                            const Rendering& whole, const Marks& marks) const {
  const std::string prompt = render(messages, index, true, marks).text;
  if (!whole.text.starts_with(prompt))
    fail(ExitCode::kDamaged, "data", file_,
         ": wanted a chat that begins with its prompt, found that the template writes "
         "earlier turns otherwise: which tokens are answers is not known; name another "
         "chat_template, or train_on all");
  Span span{prompt.size(), whole.text.size()};
  if (index + 1 < messages.size()) {
    const std::string so_far = render(messages, index + 1, false, marks).text;
    if (whole.text.starts_with(so_far)) {
      span.end = so_far.size();
    } else {
      // The last answer of a chat may look otherwise than one before it (reasoning that is
      // dropped).
      const std::string said(jinja::strip(whole_text(messages[index]), jinja::Ends::kBoth));
      const size_t at = whole.text.find(said, span.begin);
      if (at == std::string::npos)
        fail(ExitCode::kDamaged, "data", file_,
             ": wanted an answer as it was given, found that the template rewrites it; "
             "name another chat_template, or train_on all");
      span.end = end_of_turn(whole.text, at + said.size());
    }
  }
  span.end = without_space_behind_end(whole.text, span);
  return span;
}

std::vector<Span> OwnTemplate::answers(const std::vector<Message>& messages, const Rendering& whole,
                                       const Marks& marks) const {
  if (template_.has_generation()) return whole.generated;
  std::vector<Span> spans;
  for (size_t i = 0; i < messages.size(); ++i)
    if (messages[i].role == "assistant") spans.push_back(answer_at(messages, i, whole, marks));
  return spans;
}

void OwnTemplate::encode_part(std::string_view text, const Marks& marks,
                              std::vector<TokenId>& ids) const {
  // A template may take the marks apart; one that is left alone goes away.
  while (!text.empty()) {
    const size_t at =
        marks.begin.empty() ? text.npos : std::min(text.find(marks.begin), text.find(marks.end));
    tokenizer_.encode(text.substr(0, at), ids);
    if (at == text.npos) return;
    const bool begins = text.substr(at).starts_with(marks.begin);
    text.remove_prefix(at + marks.begin.size());
    const std::string_view special = begins ? special_at(text) : std::string_view();
    tokenizer_.encode_text(special, ids);
    text.remove_prefix(special.size());
  }
}

EncodedChat OwnTemplate::encode(const std::vector<Message>& messages, bool open_turn,
                                bool with_mask) const {
  const Marks marks = marks_for(messages);
  const Rendering whole = render(messages, messages.size(), open_turn, marks);
  EncodedChat chat;
  const auto add = [&](size_t begin, size_t end, bool in_loss) {
    encode_part(std::string_view(whole.text).substr(begin, end - begin), marks, chat.ids);
    chat.in_loss.resize(chat.ids.size(), in_loss ? 1 : 0);
  };
  size_t at = 0;
  if (with_mask)
    for (const Span& span : answers(messages, whole, marks)) {
      if (span.begin < at || span.end < span.begin)
        fail(ExitCode::kDamaged, "data", file_,
             ": wanted answers in the order of the chat, found another order; "
             "name another chat_template, or train_on all");
      add(at, span.begin, false);
      add(span.begin, span.end, true);
      at = span.end;
    }
  add(at, whole.text.size(), false);
  return chat;
}

}  // namespace octavo::data
