#pragma once
// What the fields of a row mean: a text, a prompt with its answer, or a chat. Known data sets are
// recognised by the fields of their first row.

#include <string>
#include <vector>

#include "base/json.h"
#include "data/chat_template.h"

namespace octavo::data {

// The fields as the user gave them; "" for those not given.
struct FieldNames {
  std::string text = "text", prompt, response, messages;
};

struct RowFormat {
  enum class Kind { kText, kPrompt, kMessages };
  Kind kind = Kind::kText;
  std::string name = "text";                            // for log lines: "GSM8K (question, answer)"
  std::string text, prompt, input, response, messages;  // fields
  // Rows of these kinds become documents with masks, which are packed.
  bool has_answers() const { return kind != Kind::kText; }
  // The fields that are read; others need not be.
  std::vector<std::string> fields() const;
};

// `place` names the row in messages.
RowFormat detect_format(const FieldNames& given, const Json& first_row, const std::string& place);

// The text of a row; rows that are strings are their own text.
std::string text_of_row(const RowFormat& format, Json& row, const std::string& place);
// The messages of a row with answers.
std::vector<Message> messages_of_row(const RowFormat& format, Json& row, const std::string& place);
// Whether the prompts come with Alpaca's text around them already.
bool has_alpaca_text(const RowFormat& format, const Json& row);

}  // namespace octavo::data
