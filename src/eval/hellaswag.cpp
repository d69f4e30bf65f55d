#include "eval/hellaswag.h"

#include <ATen/ATen.h>
#include <utf8proc.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/printed.h"
#include "base/progress.h"
#include "data/units.h"
#include "nn/loss.h"

namespace octavo::eval {
namespace {

using tokenizer::TokenId;

constexpr int64_t kTokensAtOnce = 2048;
constexpr uint64_t kLongestRow = 1 << 20, kBytesAtOnce = 1 << 18;

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

std::string cleaned(std::string text) {
  constexpr const char* kSpace = " \t\n\v\f\r";
  text.erase(0, std::min(text.find_first_not_of(kSpace), text.size()));
  text.erase(text.find_last_not_of(kSpace) + 1);
  replace_all(text, " [title]", ". ");
  for (size_t open = text.find('['); open != std::string::npos; open = text.find('[', open)) {
    const size_t end = text.find_first_of("]\n", open);
    if (end == std::string::npos) break;
    if (text[end] == ']')
      text.erase(open, end + 1 - open);
    else
      open = end;  // a mark does not go over lines
  }
  replace_all(text, "  ", " ");
  return text;
}

// The first letter large, all others small.
std::string capitalized(const std::string& text) {
  std::string result;
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t letter = 0;
    const auto used =
        utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(text.size() - at), &letter);
    if (used <= 0) fail(ExitCode::kDamaged, "train", "hellaswag: the text is not UTF-8");
    utf8proc_uint8_t out[4];
    const auto made =
        utf8proc_encode_char(at == 0 ? utf8proc_totitle(letter) : utf8proc_tolower(letter), out);
    result.append(reinterpret_cast<const char*>(out), static_cast<size_t>(made));
    at += static_cast<size_t>(used);
  }
  return result;
}

// One ending behind its context.
struct Item {
  std::vector<TokenId> ids;
  int64_t context = 0;  // how many of them are the context's
};

Item item_of(const tokenizer::Tokenizer& tokenizer, const std::string& context,
             const std::string& ending, int64_t longest) {
  Item item;
  std::vector<TokenId> before;
  tokenizer.encode(context, before);
  tokenizer.encode(context + " " + ending, item.ids);
  item.context = std::ssize(before);
  if (std::ssize(item.ids) > longest) {  // the end is what counts
    const int64_t cut = std::ssize(item.ids) - longest;
    item.ids.erase(item.ids.begin(), item.ids.begin() + cut);
    item.context -= cut;
  }
  if (item.context < 1 && std::ssize(item.ids) == longest)
    fail(ExitCode::kUsage, "train", "hellaswag: wanted a model whose context holds an ending and ",
         "some text before it, found one of ", longest, " tokens; train with a longer ",
         "max_seq_length, or leave HellaSwag out");
  if (item.context < 1 || item.context >= std::ssize(item.ids))
    fail(ExitCode::kDamaged, "train", "hellaswag: a context or an ending without tokens");
  return item;
}

// The sum of the log likelihoods of each item's ending; all items in one packed batch.
std::vector<double> scores_of(const engine::Engine& engine, const models::Model& model,
                              const std::vector<Item>& items) {
  const at::NoGradGuard no_grad;
  std::vector<int32_t> ids, starts;
  std::vector<int64_t> rows, targets;
  for (const Item& item : items) {
    const auto first = std::ssize(ids);
    starts.push_back(static_cast<int32_t>(first));
    for (int64_t t = item.context; t < std::ssize(item.ids); ++t) {
      rows.push_back(first + t - 1);
      targets.push_back(item.ids[static_cast<size_t>(t)]);
    }
    ids.insert(ids.end(), item.ids.begin(), item.ids.end());
  }
  const at::Device device = engine.target.device;
  const nn::Tokens tokens{at::tensor(ids, at::kInt).to(device),
                          nn::Sequences::from_starts(starts, std::ssize(ids), device)};
  const at::Tensor hidden =
      model.hidden(tokens, nullptr).index_select(0, at::tensor(rows, at::kLong).to(device));
  const at::Tensor logits = nn::head_logits(engine, hidden, model.head(), model.vocab_size());
  const at::Tensor wanted = at::tensor(targets, at::kLong).to(device).unsqueeze(1);
  const at::Tensor found =
      (logits.gather(1, wanted).squeeze(1) - logits.logsumexp(1)).to(at::kDouble).cpu();
  std::vector<double> sums;
  const double* value = found.const_data_ptr<double>();
  for (const Item& item : items) {
    const int64_t count = std::ssize(item.ids) - item.context;
    sums.push_back(std::accumulate(value, value + count, 0.0));
    value += count;
  }
  return sums;
}

std::vector<data::Source> source_of(const fs::path& file) {
  std::vector<data::Source> sources = data::list_sources({file}, {}, /*say_skipped=*/false);
  if (sources.size() != 1)
    fail(ExitCode::kDamaged, "train", "hellaswag: wanted a file of rows (JSON lines or Parquet), ",
         "found ", file.string(), ", which is empty or neither; fetch it again");
  // Lines of JSON under another name.
  if (sources[0].format == data::SourceFormat::kText)
    sources[0].format = data::SourceFormat::kJsonl;
  return sources;
}

// The rows of a file, each a line of JSON.
class Rows {
 public:
  explicit Rows(const fs::path& file)
      : source_(source_of(file)),
        units_(source_, {}, {.batch_bytes = kBytesAtOnce, .line_bytes = kLongestRow},
               {"activity_label", "ctx_a", "ctx_b", "endings", "label"}) {}
  Rows(const Rows&) = delete;
  Rows& operator=(const Rows&) = delete;

  bool next(std::string& line) {
    while (at_ >= text_.size()) {
      std::optional<data::Unit> unit = units_.next();
      if (!unit) return false;
      text_ = std::move(unit->text);
      at_ = 0;
    }
    const size_t end = std::min(text_.find('\n', at_), text_.size());
    line.assign(text_, at_, end - at_);
    at_ = end + 1;
    ++number_;
    return true;
  }
  // Of the row that next() gave, for messages.
  std::string place() const { return octavo::str(source_[0].path.string(), ":", number_); }

 private:
  const std::vector<data::Source> source_;  // units_ keeps a reference
  data::UnitReader units_;
  std::string text_;
  size_t at_ = 0;
  int64_t number_ = 0;
};

// At most `limit`.
int64_t row_count(const fs::path& file, int64_t limit) {
  Rows rows(file);
  int64_t count = 0;
  for (std::string line; count < limit && rows.next(line);) ++count;
  return count;
}

// The hub's rows have it as text, which is empty where it is kept secret.
int64_t label_of(const Json& row, const std::string& source) {
  const Json label = row.value("label", Json());
  if (!label.is_string()) return json_int(row, "label", source);
  const std::string text = label.get<std::string>();
  return text.size() == 1 ? text[0] - '0' : -1;
}

}  // namespace

HellaSwagPrompt hellaswag_prompt(const std::string& line, const std::string& source) {
  const Json row = parse_json(line, source);
  HellaSwagPrompt prompt;
  prompt.context = cleaned(json_string(row, "activity_label", source) + ": " +
                           json_string(row, "ctx_a", source) + " " +
                           capitalized(json_string(row, "ctx_b", source)));
  for (const Json& ending : json_field(row, "endings", Json::value_t::array, source)) {
    if (!ending.is_string())
      fail(ExitCode::kDamaged, "train", source, ": an ending wanted as text");
    prompt.endings.push_back(cleaned(ending.get<std::string>()));
  }
  prompt.label = label_of(row, source);
  if (prompt.endings.size() != 4 || prompt.label < 0 || prompt.label > 3)
    fail(ExitCode::kDamaged, "train", source, ": wanted 4 endings and a label of 0 to 3, found ",
         prompt.endings.size(), " and ", prompt.label);
  return prompt;
}

void check_hellaswag_file(const fs::path& file) {
  Rows rows(file);
  std::string line;
  if (!rows.next(line))
    fail(ExitCode::kDamaged, "train", "hellaswag: ", file.string(), " has no rows");
  hellaswag_prompt(line, rows.place());
}

HellaSwagResult hellaswag(const engine::Engine& engine, const models::Model& model,
                          const tokenizer::Tokenizer& tokenizer, const fs::path& file,
                          int64_t limit, const std::function<void(const HellaSwagRow&)>& on_row,
                          bool shows_progress) {
  Rows rows(file);
  const int64_t most = limit > 0 ? limit : INT64_MAX;
  std::optional<octavo::Progress> bar;
  if (shows_progress) bar.emplace("hellaswag", static_cast<double>(row_count(file, most)), "rows");
  HellaSwagResult result;
  std::vector<Item> items;
  std::vector<HellaSwagPrompt> prompts;
  int64_t tokens = 0;
  const auto flush = [&] {
    if (items.empty()) return;
    const auto scores = scores_of(engine, model, items);
    if (!std::ranges::all_of(scores, [](double score) { return std::isfinite(score); }))
      fail(ExitCode::kGuard, "train", "hellaswag: the model's scores are no numbers; take another ",
           "checkpoint: octavo checkpoints list");
    for (size_t i = 0; i < prompts.size(); ++i) {
      const auto* of_row = scores.data() + 4 * i;
      double normed[4];
      for (size_t k = 0; k < 4; ++k)
        normed[k] =
            of_row[k] / static_cast<double>(std::max<size_t>(columns_of(prompts[i].endings[k]), 1));
      const HellaSwagRow row{.row = result.rows,
                             .label = prompts[i].label,
                             .pred = std::max_element(of_row, of_row + 4) - of_row,
                             .pred_norm = std::max_element(normed, normed + 4) - normed};
      result.right += row.pred == row.label;
      result.right_norm += row.pred_norm == row.label;
      ++result.rows;
      on_row(row);
    }
    if (bar)
      bar->set(static_cast<double>(result.rows), octavo::str("acc_norm ", result.acc_norm()));
    items.clear();
    prompts.clear();
    tokens = 0;
  };
  std::string line;
  for (int64_t number = 1; number <= most && rows.next(line); ++number) {
    prompts.push_back(hellaswag_prompt(line, rows.place()));
    for (const auto& ending : prompts.back().endings) {
      items.push_back(item_of(tokenizer, prompts.back().context, ending, model.context()));
      tokens += std::ssize(items.back().ids);
    }
    if (tokens >= kTokensAtOnce) flush();
  }
  flush();
  if (bar) bar->finish();
  if (result.rows == 0)
    fail(ExitCode::kDamaged, "train", "hellaswag: ", file.string(), " has no rows");
  return result;
}

}  // namespace octavo::eval
