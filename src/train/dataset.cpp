#include "train/dataset.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"
#include "config/mixture_keys.h"
#include "data/dataset_index.h"
#include "data/default_tokenizer.h"
#include "data/input_sets.h"
#include "data/mixed_tokens.h"
#include "data/own_template.h"
#include "data/prepare.h"
#include "hub/hub.h"

namespace octavo::train {
namespace {

// The same inputs and options find the same folder again; `prepare` itself checks the contents.
fs::path cache_folder(const config::Settings& s, const data::PrepareOptions& options) {
  std::string identity =
      str(options.tokenizer, '\0', s.text_field, '\0', s.val_fraction, '\0', s.shard_tokens);
  const auto whole = [](const fs::path& input) {
    const bool address = input.string().find("://") != std::string::npos;
    return address ? input.string() : fs::absolute(input).lexically_normal().string();
  };
  const bool packs = data::will_pack(options);
  // Other ids than in folders of earlier versions.
  if (!packs && options.tokenizer != "bytes")
    identity += str('\0', "documents 2 ", s.special_tokens_in_text);
  if (data::holds_out_by_set(options))
    for (const data::InputSet& set : options.sets)
      identity += str('\0', "set ", set.inputs, ' ', set.val_inputs);
  for (const auto& input : options.inputs) identity += '\0' + whole(input);
  for (const auto& input : options.val_inputs) identity += str('\0', "validation ", whole(input));
  if (packs)
    identity += str('\0', s.prompt_field, '\0', s.response_field, '\0', s.messages_field, '\0',
                    name_of(s.chat_template), ' ', name_of(s.train_on), ' ', s.packing, ' ',
                    s.max_seq_length);
  if (packs && s.chat_template == config::ChatTemplate::kAuto)
    if (const std::string own = data::OwnTemplate::fingerprint_beside(options.tokenizer);
        !own.empty())
      identity += str('\0', "own template ", own);
  const std::string hash = hash_bytes(std::as_bytes(std::span(identity.data(), identity.size())));
  return fs::path(s.data_cache) /
         (fs::path(s.dataset.front()).stem().string() + "-" + hash.substr(0, 12));
}

// Files without weights are one data set, and prepared ones cannot be joined.
void refuse_prepared_in_list(const config::Settings& s) {
  if (s.dataset.size() < 2) return;
  std::vector<std::string> prepared;
  for (const std::string& path : s.dataset)
    if (data::has_index(path)) prepared.push_back(path);
  if (prepared.empty()) return;
  fail(ExitCode::kUsage, "train", "dataset: wanted texts or one prepared folder, found ",
       s.dataset.size(), " entries: ", join(prepared, " and "),
       prepared.size() == 1 ? " is" : " are",
       " prepared; give dataset_weights (docs/how-to/mixtures.md)");
}

// The settings of each source of a mixture: as if it were alone. Of other data: the settings.
std::vector<config::Settings> source_settings(const config::Settings& s) {
  if (!config::is_mixture(s)) {
    refuse_prepared_in_list(s);
    return {s};
  }
  std::vector<config::Settings> all;
  for (const std::string& path : s.dataset) {
    config::Settings& one = all.emplace_back(s);
    one.dataset = {path};
    one.dataset_weights.clear();
    one.dataset_max_epochs.clear();
    one.mixture_schedule.clear();
  }
  return all;
}

bool is_prepared_folder(const config::Settings& s) {
  return s.dataset.size() == 1 && data::has_index(s.dataset.front());
}

// Of prepared data at s3://, for all ranks of a machine.
data::LocalCache local_cache(const config::Settings& s) {
  return {fs::path(s.data_cache) / "parts", static_cast<uint64_t>(1e9 * s.data_cache_gb)};
}

[[noreturn]] void fail_without_data(const config::Settings& s) {
  if (!s.resume.empty())
    fail(ExitCode::kUsage, "train",
         "no data given; a checkpoint has weights and position, not the data: resume with the "
         "file or the flags of its run, such as octavo train configs/gpt2_fp8.yaml --resume ",
         s.resume, " (what the run was given is in config.yaml of its folder in ", s.runs_dir, ")");
  fail(ExitCode::kUsage, "train",
       "no data given; name some with --dataset (a file, a folder, or a name that octavo names "
       "lists, such as fineweb-edu), or take an example that has data: octavo train "
       "configs/gpt2_fp8.yaml (in a checkout configs/quickstart.yaml needs no network), or where "
       "there "
       "is no configs/ octavo examples gpt2_fp8 > my.yaml");
}

fs::path prepared_folder(const config::Settings& s) {
  if (is_prepared_folder(s)) return s.dataset.front();
  data::PrepareOptions options = data::prepare_options(s, s.dataset);
  options.output = cache_folder(s, options);
  const auto result = data::prepare(options);
  log_info(str("data: ", format_count(static_cast<double>(result.train_tokens)), " training and ",
               format_count(static_cast<double>(result.val_tokens)), " validation tokens in ",
               options.output.string(),
               result.shards_reused == result.shards ? " (prepared before)" : ""));
  return options.output;
}

}  // namespace

std::vector<DataPosition> data_positions(const config::Settings& settings) {
  std::vector<DataPosition> found;
  for (const config::Settings& s : source_settings(settings)) {
    if (is_prepared_folder(s)) {
      found.push_back({s.dataset.front(), true});
      continue;
    }
    const fs::path folder = cache_folder(s, data::prepare_options(s, s.dataset));
    found.push_back({folder, fs::exists(folder / "dataset.json")});
  }
  return found;
}

void settle_tokenizer(config::Settings& resolved) {
  if (resolved.dataset.empty()) return;
  resolved.tokenizer = hub::resolve_tokenizer(resolved.tokenizer, resolved);
  if (!resolved.tokenizer.empty()) return;
  const std::vector<config::Settings> sources = source_settings(resolved);
  const auto prepared = std::ranges::find_if(sources, is_prepared_folder);
  if (prepared == sources.end()) {
    resolved.tokenizer = data::default_tokenizer(resolved);
    return;
  }
  const std::string& folder = prepared->dataset.front();
  const std::string made_with = data::TokenData::open(folder, "train")->tokenizer_name();
  if (made_with == "bytes" && resolved.model_name != "custom")
    fail(ExitCode::kUsage, "train", "wanted data of the tokenizer of ", resolved.model_name,
         ", found bytes in ", folder,
         "; prepare it with --tokenizer PATH (the model's tokenizer.json), or give --tokenizer "
         "bytes when the model is meant to learn bytes");
  log_info(str("tokenizer: ", made_with, ", of the prepared data"));
  // The other sources of a mixture are prepared with it.
  if (!std::ranges::all_of(sources, is_prepared_folder)) resolved.tokenizer = made_with;
}

namespace {

data::TokenData::Splits open_mixture(const config::Settings& s,
                                     const std::vector<fs::path>& folders) {
  const std::vector<std::string> names = data::source_names(s.dataset);
  std::vector<data::MixedTokens::Source> train, val;
  for (size_t k = 0; k < folders.size(); ++k) {
    auto [its_train, its_val] = data::TokenData::open_splits(folders[k], local_cache(s));
    train.push_back({s.dataset[k], names[k], std::move(its_train)});
    if (its_val == nullptr) continue;
    if (data::sample_count(*its_val, s.max_seq_length) == 0) {
      log_warn(str("data: the validation split of ", s.dataset[k], " has ", its_val->tokens(),
                   " tokens, less than one sample of max_seq_length ", s.max_seq_length,
                   ": it is not in the evaluation"));
      continue;
    }
    val.push_back({s.dataset[k], names[k], std::move(its_val)});
  }
  const auto mixed = [&](std::vector<data::MixedTokens::Source> sources) {
    return sources.empty()
               ? nullptr
               : std::make_shared<data::MixedTokens>(std::move(sources), s.max_seq_length);
  };
  return {mixed(std::move(train)), mixed(std::move(val))};
}

}  // namespace

DataSet open_prepared(const config::Settings& settings, const std::vector<fs::path>& folders) {
  auto [train, val] = config::is_mixture(settings)
                          ? open_mixture(settings, folders)
                          : data::TokenData::open_splits(folders.front(), local_cache(settings));
  std::string tokenizer = settings.tokenizer.empty() ? train->tokenizer_name() : settings.tokenizer;
  return {std::move(train), std::move(val), std::move(tokenizer)};
}

DataSet open_data_set(const config::Settings& settings) {
  std::vector<fs::path> folders;
  if (settings.dataset.empty()) fail_without_data(settings);
  for (const config::Settings& source : source_settings(settings))
    folders.push_back(prepared_folder(source));
  DataSet set = open_prepared(settings, folders);
  if (set.val != nullptr && data::sample_count(*set.val, settings.max_seq_length) == 0) {
    log_warn(str("data: the validation split has ", set.val->tokens(),
                 " tokens, less than one sample of max_seq_length ", settings.max_seq_length,
                 ": no evaluation"));
    set.val = nullptr;
  }
  return set;
}

}  // namespace octavo::train
