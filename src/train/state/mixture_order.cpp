#include "train/state/mixture_order.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"
#include "base/log.h"
#include "base/printed.h"
#include "base/text.h"
#include "config/mixture_keys.h"
#include "train/run_schedule.h"
#include "train/state/data_order.h"

namespace octavo::train {
namespace {

constexpr int64_t kMixtureVersion = 1;

using data::MixtureChange;

// What the settings ask for, from the run's first sample to its last.
std::vector<MixtureChange> asked_changes(const config::Settings& s, int ranks,
                                         const data::MixedTokens& train, const Progress& progress) {
  MixtureChange first;
  first.weights = s.dataset_weights;
  for (size_t k = 0; k < train.sources().size(); ++k) {
    if (s.dataset_weights.empty())  // by size
      first.weights.push_back(static_cast<double>(train.samples(k)));
    first.max_epochs.push_back(
        s.dataset_max_epochs.empty() ? 0 : static_cast<uint64_t>(s.dataset_max_epochs[k]));
  }
  std::vector<MixtureChange> changes = {first};
  const double all =
      static_cast<double>(s.max_steps) * static_cast<double>(samples_per_step(s, ranks));
  const auto schedule = config::scheduled_weights(s.mixture_schedule);
  OCTAVO_ASSERT(schedule.has_value());  // the settings were checked
  for (const config::ScheduledWeights& later : *schedule) {
    const uint64_t at = schedule_position(later.at * all, s, ranks, progress);
    if (at == changes.back().at) changes.pop_back();  // a run of few samples
    changes.push_back({.at = at, .weights = later.weights, .max_epochs = first.max_epochs});
  }
  return changes;
}

// Blocks for the samples that a source has in a step.
data::Order source_order(const config::Settings& s, int ranks, const data::TokenData& source,
                         double share) {
  if (!s.shuffle) return {};
  const double of_step = share * static_cast<double>(samples_per_step(s, ranks));
  return data::order_for(source, s.max_seq_length,
                         std::max<uint64_t>(1, static_cast<uint64_t>(std::llround(of_step))));
}

double listed_number(const Json& list, size_t index, const std::string& source) {
  if (!list.at(index).is_number())
    fail(ExitCode::kDamaged, "train", source, ": data_mixture: wanted numbers, found ",
         list.at(index).type_name(), "; resume from another checkpoint");
  return list.at(index).get<double>();
}

MixtureChange change_from_json(const Json& object, const std::string& source) {
  MixtureChange change;
  const int64_t at = json_int(object, "at", source);
  const Json& weights = json_field(object, "weights", Json::value_t::array, source);
  const Json& epochs = json_field(object, "max_epochs", Json::value_t::array, source);
  for (size_t i = 0; i < weights.size(); ++i)
    change.weights.push_back(listed_number(weights, i, source));
  for (size_t i = 0; i < epochs.size(); ++i) {
    const double most = listed_number(epochs, i, source);
    if (!(most >= 0 && most <= 0x1p53) || at < 0)
      fail(ExitCode::kDamaged, "train", source, ": data_mixture: wanted numbers from 0, found ",
           most, " and ", at, "; resume from another checkpoint");
    change.max_epochs.push_back(static_cast<uint64_t>(most));
  }
  change.at = static_cast<uint64_t>(at);
  return change;
}

std::vector<MixtureChange> saved_changes(const Json& saved, size_t sources,
                                         const std::string& source) {
  if (const int64_t version = json_int(saved, "version", source); version != kMixtureVersion)
    fail(ExitCode::kUsage, "train", source, ": data_mixture: wanted version ", kMixtureVersion,
         ", found ", version, "; resume with the version of octavo that wrote the checkpoint");
  std::vector<MixtureChange> changes;
  for (const Json& change : json_field(saved, "changes", Json::value_t::array, source))
    changes.push_back(change_from_json(change, source));
  if (const std::string problem = data::problem_of(changes, sources); !problem.empty())
    fail(ExitCode::kDamaged, "train", source, ": data_mixture: ", problem,
         "; resume from another checkpoint");
  return changes;
}

std::string shares_text(const data::MixedTokens& train, const data::Parts& parts) {
  std::vector<std::string> texts;
  for (size_t k = 0; k < parts.of.size(); ++k)
    if (parts.of[k] > 0)
      texts.push_back(train.sources()[k].name +
                      printed(" %.4g%%", 100.0 * parts.of[k] / static_cast<double>(parts.sum)));
  return join(texts, ", ");
}

// The change that holds at a position.
const MixtureChange& change_at(const std::vector<MixtureChange>& changes, uint64_t position) {
  const auto after = std::ranges::upper_bound(changes, position, {}, &MixtureChange::at);
  return *(after - 1);
}

// What was until `position`, then what is asked for now.
std::vector<MixtureChange> joined_changes(std::vector<MixtureChange> saved,
                                          const std::vector<MixtureChange>& asked,
                                          uint64_t position) {
  MixtureChange now = change_at(asked, position);
  std::erase_if(saved, [&](const MixtureChange& change) { return change.at > position; });
  if (now.weights != saved.back().weights || now.max_epochs != saved.back().max_epochs) {
    if (saved.back().at == position) saved.pop_back();
    now.at = position;
    saved.push_back(now);
    if (position > 0)
      log_warn(
          str("resume: the weights or max_epochs of dataset are others than the checkpoint's: "
              "they hold from sample ",
              position, " on; sources stay where they are in their own orders"));
  }
  for (const MixtureChange& change : asked)
    if (change.at > position) saved.push_back(change);
  return saved;
}

}  // namespace

std::shared_ptr<const data::Mixture> new_mixture(const config::Settings& s, int ranks,
                                                 const data::MixedTokens& train) {
  std::vector<MixtureChange> changes = asked_changes(s, ranks, train, {});
  // A source may come later only: its order is for the most that it ever has.
  std::vector<data::Mixture::Source> sources;
  for (size_t k = 0; k < train.sources().size(); ++k) {
    double share = 0;
    for (const MixtureChange& change : changes)
      share = std::max(share, change.weights[k] / std::accumulate(change.weights.begin(),
                                                                  change.weights.end(), 0.0));
    sources.push_back({train.samples(k), source_order(s, ranks, *train.sources()[k].data, share)});
  }
  return std::make_shared<const data::Mixture>(std::move(sources), std::move(changes));
}

std::shared_ptr<const data::Mixture> resumed_mixture(const config::Settings& s, int ranks,
                                                     const data::MixedTokens& train,
                                                     const Progress& progress, const Json& extra,
                                                     const std::string& source) {
  const Json& saved = json_field(extra, "data_mixture", Json::value_t::object, source);
  const size_t count = train.sources().size();
  std::vector<MixtureChange> then = saved_changes(saved, count, source);
  const Json& orders = json_field(saved, "orders", Json::value_t::array, source);
  if (orders.size() != count)
    fail(ExitCode::kDamaged, "train", source, ": data_mixture: wanted ", count, " orders, found ",
         orders.size(), "; resume from another checkpoint");
  std::vector<data::Mixture::Source> sources;
  for (size_t k = 0; k < count; ++k)
    sources.push_back({train.samples(k), saved_order({{"data_order", orders[k]}}, source)});
  return std::make_shared<const data::Mixture>(
      std::move(sources), joined_changes(std::move(then), asked_changes(s, ranks, train, progress),
                                         progress.position.samples));
}

Json mixture_json(const data::Mixture& mixture) {
  Json changes = Json::array(), orders = Json::array();
  for (const MixtureChange& change : mixture.changes())
    changes.push_back(
        {{"at", change.at}, {"weights", change.weights}, {"max_epochs", change.max_epochs}});
  for (const data::Mixture::Source& source : mixture.sources())
    orders.push_back(order_json(source.order));
  return {
      {"version", kMixtureVersion}, {"changes", std::move(changes)}, {"orders", std::move(orders)}};
}

std::string describe_shares(const data::MixedTokens& train, const data::Mixture& mixture,
                            uint64_t position) {
  const data::Parts& parts = mixture.phase_of(position).parts;
  std::vector<std::string> epochs;
  for (size_t k = 0; k < train.sources().size(); ++k)
    epochs.push_back(str(train.sources()[k].name, " ", train.samples(k)));
  return str("mixture: ", shares_text(train, parts), " of the samples",
             parts.exact ? "" : str(" (rounded to 1/", data::kLongestPeriod, ")"),
             "; samples in an epoch: ", join(epochs, ", "));
}

std::vector<std::string> describe_changes(const data::MixedTokens& train,
                                          const data::Mixture& mixture, uint64_t from,
                                          uint64_t to) {
  std::vector<std::string> lines;
  for (const data::Mixture::Phase& phase : mixture.phases()) {
    if (phase.begin <= from || phase.begin > to) continue;
    std::vector<std::string> left;
    for (const size_t k : phase.left)
      left.push_back(str(train.sources()[k].name, " leaves, used up after ",
                         phase.counts[k] / train.samples(k), " epochs (max_epochs)"));
    lines.push_back(str("mixture: after sample ", phase.begin, " ",
                        left.empty() ? "the weights change" : join(left, ", "), "; from there ",
                        shares_text(train, phase.parts)));
  }
  return lines;
}

std::vector<std::string> describe_orders(const data::MixedTokens& train,
                                         const data::Mixture& mixture, int64_t length) {
  std::map<std::string, std::vector<std::string>> names;  // of sources with the same numbers
  for (size_t k = 0; k < train.sources().size(); ++k) {
    const data::MixedTokens::Source& source = train.sources()[k];
    if (const std::string text = describe_order(mixture.sources()[k].order, length, *source.data);
        !text.empty())
      names[text].push_back(source.name);
  }
  std::vector<std::string> lines;
  for (const auto& [text, of] : names)
    lines.push_back(str("shuffle: ", join(of, ", "), ": ", text));
  return lines;
}

std::vector<monitor::SourceUse> source_uses(const data::MixedTokens& train,
                                            const data::Position& position, int64_t length) {
  std::vector<monitor::SourceUse> uses;
  for (size_t k = 0; k < train.sources().size(); ++k) {
    const uint64_t taken = position.mixture->count(k, position.samples);
    uses.push_back({.name = train.sources()[k].name,
                    .tokens = taken * static_cast<uint64_t>(length),
                    .epochs = static_cast<double>(taken) / static_cast<double>(train.samples(k))});
  }
  return uses;
}

Json sources_receipt(const data::MixedTokens& train, const data::Position& position,
                     int64_t length) {
  Json rows = Json::array();
  if (position.mixture == nullptr) return rows;
  const data::Parts& parts =
      position.mixture->phase_of(position.samples > 0 ? position.samples - 1 : 0).parts;
  const std::vector<monitor::SourceUse> uses = source_uses(train, position, length);
  for (size_t k = 0; k < uses.size(); ++k) {
    const uint64_t most = position.mixture->changes().back().max_epochs[k];
    rows.push_back({{"path", train.sources()[k].path},
                    {"name", uses[k].name},
                    {"fingerprint", train.sources()[k].data->fingerprint()},
                    {"share", parts.of[k] / static_cast<double>(parts.sum)},
                    {"max_epochs", most == 0 ? Json() : Json(most)},
                    {"samples_per_epoch", train.samples(k)},
                    {"samples", position.mixture->count(k, position.samples)},
                    {"tokens", uses[k].tokens},
                    {"epochs", uses[k].epochs}});
  }
  return rows;
}

}  // namespace octavo::train
