#include "train/dataset.h"

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "data/prepare.h"

namespace octavo::train {
namespace {

// The same inputs and options find the same folder again; `prepare` itself checks the contents.
fs::path cache_folder(const config::Settings& s, const std::string& tokenizer) {
  std::string identity =
      str(tokenizer, '\0', s.text_field, '\0', s.val_fraction, '\0', s.shard_tokens);
  for (const auto& input : s.dataset)
    identity += '\0' + fs::absolute(input).lexically_normal().string();
  const std::string hash = hash_bytes(std::as_bytes(std::span(identity.data(), identity.size())));
  return fs::path(s.data_cache) /
         (fs::path(s.dataset.front()).stem().string() + "-" + hash.substr(0, 12));
}

fs::path prepared_folder(const config::Settings& s) {
  if (s.dataset.empty())
    fail(ExitCode::kUsage, "train",
         "no data given; say --dataset with a prepared folder, or text or JSONL files");
  if (s.dataset.size() == 1 && fs::exists(fs::path(s.dataset.front()) / "dataset.json"))
    return s.dataset.front();
  data::PrepareOptions options;
  for (const auto& input : s.dataset) options.inputs.emplace_back(input);
  options.tokenizer = s.tokenizer.empty() ? "bytes" : s.tokenizer;
  options.output = cache_folder(s, options.tokenizer);
  options.text_field = s.text_field;
  options.val_fraction = s.val_fraction;
  options.shard_tokens = static_cast<uint64_t>(s.shard_tokens);
  options.workers = static_cast<int>(s.num_workers);
  const auto result = data::prepare(options);
  log_info(str("data: ", format_count(static_cast<double>(result.train_tokens)), " training and ",
               format_count(static_cast<double>(result.val_tokens)), " validation tokens in ",
               options.output.string(),
               result.shards_reused == result.shards ? " (prepared before)" : ""));
  return options.output;
}

}  // namespace

DataSet open_data_set(const config::Settings& settings) {
  const fs::path folder = prepared_folder(settings);
  DataSet set;
  set.train = data::TokenData::open(folder, "train");
  if (data::TokenData::has_split(folder, "val")) set.val = data::TokenData::open(folder, "val");
  if (set.val != nullptr && set.val->tokens() <= static_cast<uint64_t>(settings.max_seq_length))
    set.val = nullptr;
  set.tokenizer = settings.tokenizer.empty() ? set.train->tokenizer_name() : settings.tokenizer;
  return set;
}

}  // namespace octavo::train
