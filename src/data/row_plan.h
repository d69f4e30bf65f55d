#pragma once
// What is to be made of the rows of the inputs, as options, first row and tokenizer say.

#include <memory>
#include <vector>

#include "data/own_template.h"
#include "data/prepare.h"
#include "data/row_format.h"
#include "data/sources.h"
#include "tokenizer/tokenizer.h"

namespace octavo::data {

struct RowPlan {
  RowFormat format;                                  // plain text when no input has rows
  ChatTemplate chat_template = ChatTemplate::kNone;  // kAuto: the model's own
  std::shared_ptr<const OwnTemplate> own;            // of the model's folder, when it is used
};

// Looks at the first row of all: what it is.
RowFormat find_format(const PrepareOptions& options, const std::vector<Source>& sources);
// And what becomes of it, which is said.
RowPlan plan_rows(const PrepareOptions& options, const tokenizer::Tokenizer& tokenizer,
                  const std::vector<Source>& sources);

// Removes text files, which have no answers, and says so.
void drop_texts(std::vector<Source>& sources);

}  // namespace octavo::data
