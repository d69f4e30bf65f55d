#include "data/input_sets.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/text.h"

namespace octavo::data {
namespace {

constexpr size_t kMostPlaces = 5, kMostSaid = 20;

uint64_t count_at(const Json& json, const char* name, const std::string& source) {
  const int64_t value = json_int(json, name, source);
  if (value < 0)
    fail(ExitCode::kDamaged, "data", source, ": field '", name, "' wanted from 0, found ", value,
         "; prepare the data again");
  return static_cast<uint64_t>(value);
}

std::string percent(double share) {
  return str(std::round(1000 * share) / 10, "%");
}

}  // namespace

std::vector<InputSet> sets_of(const PrepareOptions& options) {
  if (!options.sets.empty()) return options.sets;
  return {{.name = options.inputs.empty() ? "" : options.inputs.front().filename().string(),
           .inputs = options.inputs.size(),
           .val_inputs = options.val_inputs.size(),
           .val_split = {}}};
}

bool holds_out_by_set(const PrepareOptions& options) {
  return options.sets.size() > 1 && options.val_fraction > 0 &&
         std::any_of(options.sets.begin(), options.sets.end(),
                     [](const InputSet& set) { return set.val_inputs == 0; });
}

size_t list_set_sources(const PrepareOptions& options, std::vector<Source>& sources) {
  const auto add = [&](const std::vector<fs::path>& paths, size_t InputSet::*count) {
    size_t first = 0, number = 0;
    for (const InputSet& set : sets_of(options)) {
      OCTAVO_ASSERT(first + set.*count <= paths.size());
      const auto begin = paths.begin() + static_cast<std::ptrdiff_t>(first);
      const std::vector<fs::path> own(begin, begin + static_cast<std::ptrdiff_t>(set.*count));
      for (Source& source : list_sources(own, options.output)) {
        source.set = number;
        sources.push_back(std::move(source));
      }
      first += set.*count;
      ++number;
    }
  };
  add(options.inputs, &InputSet::inputs);
  const size_t first_val = sources.size();
  add(options.val_inputs, &InputSet::val_inputs);
  return first_val;
}

std::vector<ValidationCut> validation_cuts(const PrepareOptions& options,
                                           const std::vector<Source>& sources,
                                           const std::vector<uint64_t>& begins, size_t first_val) {
  const std::vector<InputSet> sets = sets_of(options);
  std::vector<ValidationCut> cuts(sources.size());
  for (size_t i = first_val; i < sources.size(); ++i) cuts[i].val_begin = begins[i];
  for (size_t first = 0, end = 0; first < first_val; first = end) {
    const size_t set = sources[first].set;
    for (end = first; end < first_val && sources[end].set == set;) ++end;
    if (sets[set].val_inputs > 0 || options.val_fraction == 0) continue;
    const auto bytes = static_cast<double>(begins[end] - begins[first]);
    const ValidationCut cut{
        begins[first] + static_cast<uint64_t>(std::floor(bytes * (1 - options.val_fraction))),
        last_document_end(sources, begins, first, end)};
    std::fill(cuts.begin() + static_cast<std::ptrdiff_t>(first),
              cuts.begin() + static_cast<std::ptrdiff_t>(end), cut);
  }
  return cuts;
}

Tally::Tally(const PrepareOptions& options) {
  for (const InputSet& set : sets_of(options))
    sets_.push_back({.name = set.name,
                     .validation = !set.val_split.empty() ? "its split " + set.val_split
                                   : set.val_inputs > 0   ? "files of its own"
                                   : options.val_fraction > 0
                                       ? str("the last ", options.val_fraction, " of it")
                                       : "none"});
}

void Tally::add(const EncodedUnit& unit, size_t set) {
  Set& counts = sets_.at(set);
  for (const uint64_t document : unit.documents)
    ++(document < unit.train_tokens ? counts.train_documents : counts.val_documents);
  counts.val_tokens += unit.tokens.size() - unit.train_tokens;
  empty_texts_ += unit.empty_texts;
  empty_answers_ += unit.empty_answers;
  cut_ += unit.cut_documents;
  too_long_ += unit.documents_without_loss;
  special_ += unit.special_in_text;
  duplicates_ += unit.duplicates;
  for (const std::string& place : unit.skipped_places)
    if (places_.size() < kMostPlaces) places_.push_back(place);
}

Json Tally::to_json() const {
  Json sets = Json::array();
  for (size_t i = 0; i < sets_.size() && known_; ++i) {
    const Set& set = sets_[i];
    sets.push_back({{"name", set.name},
                    {"validation", set.validation},
                    {"train_documents", set.train_documents},
                    {"val_documents", set.val_documents},
                    {"val_tokens", set.val_tokens}});
  }
  return {{"sets", std::move(sets)},
          {"empty_texts", empty_texts_},
          {"empty_answers", empty_answers_},
          {"too_long", too_long_},
          {"cut", cut_},
          {"special", special_},
          {"duplicates", duplicates_},
          {"places", places_}};
}

void Tally::add(const Json& json, const std::string& source) {
  const Json& sets = json_field(json, "sets", Json::value_t::array, source);
  if (sets.empty()) return forget();
  if (sets.size() != sets_.size())
    fail(ExitCode::kDamaged, "data", source, ": wanted the counts of ", sets_.size(),
         " data sets, found ", sets.size(), "; delete the folder and prepare the data again");
  for (size_t i = 0; i < sets_.size(); ++i) {
    sets_[i].train_documents += count_at(sets[i], "train_documents", source);
    sets_[i].val_documents += count_at(sets[i], "val_documents", source);
    sets_[i].val_tokens += count_at(sets[i], "val_tokens", source);
  }
  empty_texts_ += count_at(json, "empty_texts", source);
  empty_answers_ += count_at(json, "empty_answers", source);
  too_long_ += count_at(json, "too_long", source);
  cut_ += count_at(json, "cut", source);
  special_ += count_at(json, "special", source);
  if (json.contains("duplicates")) duplicates_ += count_at(json, "duplicates", source);
  if (!json.contains("places")) return;  // a journal of an earlier version
  for (const Json& place : json_field(json, "places", Json::value_t::array, source))
    if (place.is_string() && places_.size() < kMostPlaces) places_.push_back(place);
}

void Tally::check(const PrepareOptions& options) const {
  if (empty_texts_ > 0)
    log_warn(str("data: left out ", counted(empty_texts_, "row"), " with an empty text"));
  if (cut_ > 0)
    log_warn(str("data: cut ", counted(cut_, "document"), " to max_seq_length ",
                 options.max_seq_length));
  if (special_ > 0)
    log_warn(str("data: ", counted(special_, "place"), special_ == 1 ? " is" : " are",
                 " spelled like special tokens of the tokenizer (<|endoftext|> and the like) and ",
                 special_ == 1 ? "was" : "were",
                 " taken as text; set "
                 "special_tokens_in_text when they are meant"));
  uint64_t documents = 0;
  for (const Set& set : sets_) documents += set.train_documents + set.val_documents;
  const uint64_t skipped = empty_answers_ + too_long_;
  if (skipped == 0) return;
  std::string why;
  if (too_long_ > 0)
    why = str(too_long_, " whose answer begins behind max_seq_length ", options.max_seq_length);
  if (empty_answers_ > 0) why += str(why.empty() ? "" : ", ", empty_answers_, " without an answer");
  if (!places_.empty()) why += str("; the first: ", join(places_, ", "));
  const uint64_t rows = documents + skipped;
  if (static_cast<double>(skipped) > options.max_skipped_rows * static_cast<double>(rows))
    fail(ExitCode::kUsage, "data", "wanted at most ", percent(options.max_skipped_rows),
         " of the rows left out, found ", skipped, " of ", rows, " (", why, "), encoded with '",
         options.tokenizer,
         "'; raise max_seq_length, name the model's tokenizer, repair the rows, or allow it with "
         "--max_skipped_rows ",
         std::ceil(100 * static_cast<double>(skipped) / static_cast<double>(rows)) / 100);
  log_warn(str("data: left out ", skipped, " of ", counted(rows, "row"), " (", why, ")"));
}

std::vector<std::string> describe_sets(const Json& sets, const std::string& source) {
  std::vector<std::string> lines;
  for (const Json& set : sets) {
    if (lines.size() == kMostSaid) {
      lines.push_back(str("and ", counted(sets.size() - kMostSaid, "more data set")));
      break;
    }
    const uint64_t held_out = count_at(set, "val_documents", source);
    const uint64_t tokens = count_at(set, "val_tokens", source);
    lines.push_back(str(printable(json_string(set, "name", source)), ": ",
                        counted(count_at(set, "train_documents", source), "document"),
                        " to train on; ",
                        held_out > 0 ? counted(held_out, "document") + " to validate on"
                        : tokens > 0 ? str("the last ", counted(tokens, "token"), " to validate on")
                                     : std::string("nothing to validate on"),
                        " (", printable(json_string(set, "validation", source)), ")"));
  }
  return lines;
}

}  // namespace octavo::data
