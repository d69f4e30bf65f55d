#pragma once
// The files beside an export's weights: how others talk to the model, and when it is done.

#include "base/json.h"
#include "export/export.h"
#include "export/source.h"
#include "tokenizer/tokenizer.h"

namespace octavo::exporter {

// Puts bos_token_id, eos_token_id and pad_token_id of the source into config.json's fields: of its
// config.json, else of the other files there. A model that was trained on chats ends its answers
// with its template's marker, which goes in front of the other ends. `tokenizer` may be null.
void add_token_ids(const ExportSource& source, const tokenizer::Tokenizer* tokenizer, Json& config);

// Copies the tokenizer's files and generation_config.json. Of a model that was trained on chats
// they are made to say so: the template's marker ends a text, and chat_template is what it was
// trained with.
void write_companions(const ExportSource& source, const tokenizer::Tokenizer* tokenizer,
                      const fs::path& folder, ExportReport& report);

}  // namespace octavo::exporter
