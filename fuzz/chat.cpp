// An untrusted chat in every template, as ids. What it says must not become a marker.
#include "base/json.h"
#include "data/chat_template.h"
#include "data/row_format.h"
#include "fuzz/harness.h"
#include "fuzz/small_tokenizer.h"

OCTAVO_FUZZ_TARGET(input) {
  using namespace octavo;
  static const auto tokenizer = fuzz::small_tokenizer(tokenizer::kQwen2Pattern, true);
  static const bool has_markers = data::template_of(*tokenizer) == data::ChatTemplate::kLlama3;
  fuzz::check(has_markers, "a template of other markers");
  fuzz::refusal_of([&] {
    Json row = parse_json(input, "row");
    const data::RowFormat format = data::detect_format({}, row, "row 1");
    fuzz::check(!format.fields().empty() || row.is_string(), "a row of no fields");
    data::has_alpaca_text(format, row);
    if (!format.has_answers()) {
      data::text_of_row(format, row, "row 1");
      return;
    }
    const std::vector<data::Message> messages = data::messages_of_row(format, row, "row 1");
    for (const auto kind :
         {data::ChatTemplate::kChatml, data::ChatTemplate::kQwen2, data::ChatTemplate::kSmollm2,
          data::ChatTemplate::kLlama3, data::ChatTemplate::kLlama31, data::ChatTemplate::kAlpaca,
          data::ChatTemplate::kNone}) {
      if (input.size() % 16 == 0) data::check_template(kind, *tokenizer);
      const auto segments = data::render_chat(kind, messages, true);
      size_t markers = 0, found = 0;
      for (const data::Segment& segment : segments)
        markers += segment.kind == data::Segment::Kind::kMarker ||
                   segment.kind == data::Segment::Kind::kEndOfDocument;
      const data::EncodedChat chat = data::encode_chat(*tokenizer, segments);
      fuzz::check(chat.ids.size() == chat.in_loss.size(), "ids without marks");
      for (const tokenizer::TokenId id : chat.ids) found += id >= fuzz::kFirstAdded;
      fuzz::check(found == markers, "untrusted text became a marker");
    }
  });
}
