#include "data/row_plan.h"

#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "data/units.h"

namespace octavo::data {
namespace {

struct FirstRow {
  Json row;
  std::string place;
};

std::optional<FirstRow> first_row_of(const Source& source) {
  const std::vector<Source> alone{source};
  UnitReader reader(alone, {}, {.batch_bytes = 4096});
  while (const auto unit = reader.next()) {
    uint64_t number = unit->start.line;
    for (const std::string& line : split(unit->text, '\n')) {
      const std::string place = str(source.path.string(), ":", number++);
      if (trim(line).empty()) continue;
      try {
        return FirstRow{parse_json(line, place), place};
      } catch (const Error& error) {
        fail(ExitCode::kDamaged, "data", "wanted one JSON object per line or row: ", error.what(),
             "; repair or remove it");
      }
    }
  }
  return std::nullopt;
}

struct DetectedFormat {
  RowFormat format;
  Json row;  // null when no input has rows
};

DetectedFormat find_first(const PrepareOptions& options, const std::vector<Source>& sources) {
  const FieldNames given{options.text_field, options.prompt_field, options.response_field,
                         options.messages_field};
  for (const Source& source : sources) {
    if (source.format == SourceFormat::kText) continue;
    if (auto first = first_row_of(source))
      return {detect_format(given, first->row, first->place), std::move(first->row)};
  }
  DetectedFormat none;
  none.format.text = options.text_field;
  return none;
}

void choose_template(const PrepareOptions& options, const tokenizer::Tokenizer& tokenizer,
                     const Json& row, RowPlan& plan) {
  const RowFormat& format = plan.format;
  ChatTemplate chosen = options.chat_template;
  const char* why = "as given";
  if (chosen == ChatTemplate::kAuto && has_alpaca_text(format, row)) {
    chosen = ChatTemplate::kNone;
    why = "the prompts have Alpaca's text already";
  } else if (chosen == ChatTemplate::kAuto) {
    plan.own = OwnTemplate::usable(tokenizer, options.train_on != config::TrainOn::kAll);
    if (plan.own) {
      plan.chat_template = ChatTemplate::kAuto;
      log_info(str("data: rows are ", format.name, ", chat_template of ", plan.own->file(), " (",
                   plan.own->mask_source(), "), train_on ", name_of(options.train_on)));
      return;
    }
    chosen = template_of(tokenizer);
    why = chosen == ChatTemplate::kAlpaca ? "the tokenizer has no chat markers"
                                          : "as the tokenizer's added tokens say";
  }
  check_template(chosen, tokenizer);
  log_info(str("data: rows are ", format.name, ", chat_template ", name_of(chosen), " (", why,
               "), train_on ", name_of(options.train_on)));
  plan.chat_template = chosen;
}

}  // namespace

RowFormat find_format(const PrepareOptions& options, const std::vector<Source>& sources) {
  return find_first(options, sources).format;
}

RowPlan plan_rows(const PrepareOptions& options, const tokenizer::Tokenizer& tokenizer,
                  const std::vector<Source>& sources) {
  const DetectedFormat found = find_first(options, sources);
  RowPlan plan{.format = found.format};
  if (plan.format.has_answers())
    choose_template(options, tokenizer, found.row, plan);
  else if (found.row.is_object())
    log_info(str("data: rows are ", plan.format.name));
  return plan;
}

void drop_texts(std::vector<Source>& sources) {
  std::string names;
  const size_t dropped = std::erase_if(sources, [&](const Source& source) {
    const bool text = source.format == SourceFormat::kText;
    if (text) names += (names.empty() ? "" : ", ") + source.name;
    return text;
  });
  if (dropped > 0)
    log_warn(str("data: skipped ", counted(dropped, "text file"), " beside rows with answers: ",
                 names.size() > 500 ? names.substr(0, 500) + " …" : names));
}

}  // namespace octavo::data
