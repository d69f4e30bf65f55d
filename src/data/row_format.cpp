#include "data/row_format.h"

#include <algorithm>

#include "base/error.h"

namespace octavo::data {
namespace {

struct KnownDataset {
  const char* name;
  const char* prompt;
  const char* response;
  const char* input;
};
// In this order: Alpaca's rows have a text as well.
constexpr KnownDataset kKnownSets[] = {
    {"OpenMathInstruct-2", "problem", "generated_solution", ""},
    {"GSM8K", "question", "answer", ""},
    {"Alpaca", "instruction", "output", "input"},
    {"Dolly", "instruction", "response", "context"},
    {"prompt and response", "prompt", "response", ""},
    {"prompt and completion", "prompt", "completion", ""},
};
constexpr const char* kMessageFields[] = {"messages", "conversations", "conversation"};

std::string field_list(const Json& row) {
  constexpr size_t kShown = 20;
  std::string names;
  size_t count = 0;
  for (const auto& item : row.items()) {
    if (++count > kShown) return names + ", …";
    names += (names.empty() ? "" : ", ") + item.key();
  }
  return names.empty() ? "none" : names;
}

bool has_string(const Json& row, const char* name) {
  const auto field = row.find(name);
  return field != row.end() && field->is_string();
}

std::string found_instead(const Json& row, const std::string& name) {
  if (!row.is_object()) return row.type_name();
  const auto field = row.find(name);
  return field == row.end() ? "no such field" : "it to be " + std::string(field->type_name());
}

// The first row shows whether a key names what is there: else it is a mistake of the user, not
// damage of the file.
void check_named(const Json& row, const std::string& name, const char* key, Json::value_t type,
                 const std::string& place) {
  const auto field = row.is_object() ? row.find(name) : row.end();
  if (!row.is_object() || (field != row.end() && (field->type() == type || field->is_null())))
    return;  // a row that is no object is for the encoder to judge
  fail(ExitCode::kUsage, "data", place, ": wanted ",
       type == Json::value_t::array ? "a list of messages" : "a text", " in the field '", name,
       "', found ", found_instead(row, name), "; set ", key,
       " to one of the fields of the rows: ", field_list(row));
}

// The string in a field, moved out of the row.
std::string take_string(Json& row, const std::string& name, const std::string& place,
                        const char* what, const char* key) {
  const auto field = row.is_object() ? row.find(name) : row.end();
  if (!row.is_object() || field == row.end() || !field->is_string())
    fail(ExitCode::kDamaged, "data", place, ": wanted an object with the ", what, " field '", name,
         "', found ", found_instead(row, name), "; set ", key, ", or repair or remove the row");
  return std::move(field->get_ref<std::string&>());
}

std::string role_name(std::string role, const std::string& place) {
  if (role == "human") return "user";
  if (role == "gpt" || role == "model" || role == "bot") return "assistant";
  const bool sound = !role.empty() && role.size() <= 32 &&
                     std::all_of(role.begin(), role.end(),
                                 [](const char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
  if (!sound)
    fail(ExitCode::kDamaged, "data", place,
         ": wanted a role such as system, user or assistant, found '", role.substr(0, 40),
         "'; repair or remove the row");
  return role;
}

Message message_of(Json& item, const std::string& place) {
  const bool share_gpt = item.is_object() && item.contains("from");
  Message message;
  message.role = role_name(
      take_string(item, share_gpt ? "from" : "role", place, "role", "messages_field"), place);
  message.content =
      take_string(item, share_gpt ? "value" : "content", place, "content", "messages_field");
  return message;
}

RowFormat prompt_format(const std::string& name, std::string prompt, std::string response,
                        std::string input) {
  RowFormat format{.kind = RowFormat::Kind::kPrompt};
  format.name = str(name, " (", prompt, ", ", input.empty() ? "" : input + ", ", response, ")");
  format.prompt = std::move(prompt);
  format.response = std::move(response);
  format.input = std::move(input);
  return format;
}

RowFormat messages_format(const std::string& field) {
  return {.kind = RowFormat::Kind::kMessages,
          .name = str("chat (", field, ")"),
          .text = {},
          .prompt = {},
          .input = {},
          .response = {},
          .messages = field};
}

RowFormat text_format(const std::string& field) {
  return {.kind = RowFormat::Kind::kText,
          .name = str("plain text (", field, ")"),
          .text = field,
          .prompt = {},
          .input = {},
          .response = {},
          .messages = {}};
}

}  // namespace

std::vector<std::string> RowFormat::fields() const {
  std::vector<std::string> names;
  for (const std::string* field : {&text, &prompt, &input, &response, &messages})
    if (!field->empty()) names.push_back(*field);
  return names;
}

RowFormat detect_format(const FieldNames& given, const Json& row, const std::string& place) {
  if (given.prompt.empty() != given.response.empty())
    fail(ExitCode::kUsage, "data", "wanted prompt_field and response_field together, found only ",
         given.prompt.empty() ? "response_field" : "prompt_field", "; give both");
  if (!given.prompt.empty() && !given.messages.empty())
    fail(ExitCode::kUsage, "data",
         "wanted either prompt_field and response_field or messages_field, found all; give one");
  if (!given.prompt.empty()) {
    check_named(row, given.prompt, "prompt_field", Json::value_t::string, place);
    check_named(row, given.response, "response_field", Json::value_t::string, place);
    return prompt_format("as given", given.prompt, given.response, "");
  }
  if (!given.messages.empty()) {
    check_named(row, given.messages, "messages_field", Json::value_t::array, place);
    return messages_format(given.messages);
  }
  if (given.text != "text" || !row.is_object()) {
    check_named(row, given.text, "text_field", Json::value_t::string, place);
    return text_format(given.text);
  }
  for (const char* field : kMessageFields)
    if (row.contains(field) && row[field].is_array()) return messages_format(field);
  for (const KnownDataset& set : kKnownSets)
    if (has_string(row, set.prompt) && has_string(row, set.response))
      return prompt_format(set.name, set.prompt, set.response,
                           set.input[0] != '\0' && row.contains(set.input) ? set.input : "");
  if (!row.contains("text"))
    fail(ExitCode::kUsage, "data", place,
         ": wanted a text, a prompt with an answer or chat messages, the text field 'text' is "
         "missing (no such field), found the fields ",
         field_list(row), "; set text_field, prompt_field and response_field, or messages_field");
  return text_format("text");
}

std::string text_of_row(const RowFormat& format, Json& row, const std::string& place) {
  if (row.is_string()) return std::move(row.get_ref<std::string&>());
  return take_string(row, format.text, place, "text", "text_field");
}

std::vector<Message> messages_of_row(const RowFormat& format, Json& row, const std::string& place) {
  if (format.kind == RowFormat::Kind::kPrompt) {
    Message user{.role = "user", .content = {}, .input = {}};
    user.content = take_string(row, format.prompt, place, "prompt", "prompt_field");
    if (!format.input.empty() && row.contains(format.input) && !row[format.input].is_null())
      user.input = take_string(row, format.input, place, "input", "prompt_field");
    Message answer{.role = "assistant", .content = {}, .input = {}};
    answer.content = take_string(row, format.response, place, "response", "response_field");
    return {std::move(user), std::move(answer)};
  }
  const auto list = row.is_object() ? row.find(format.messages) : row.end();
  if (!row.is_object() || list == row.end() || !list->is_array())
    fail(ExitCode::kDamaged, "data", place, ": wanted an object with a list of messages in '",
         format.messages, "', found ", found_instead(row, format.messages),
         "; set messages_field, or repair or remove the row");
  std::vector<Message> messages;
  for (Json& item : *list) messages.push_back(message_of(item, place));
  return messages;
}

bool has_alpaca_text(const RowFormat& format, const Json& row) {
  return format.kind == RowFormat::Kind::kPrompt && row.is_object() &&
         has_string(row, format.prompt.c_str()) &&
         row[format.prompt].get_ref<const std::string&>().starts_with(
             "Below is an instruction that describes a task");
}

}  // namespace octavo::data
