#include "train/dataset.h"

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/progress.h"
#include "data/default_tokenizer.h"
#include "data/input_sets.h"
#include "data/own_template.h"
#include "data/prepare.h"

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

bool is_prepared_folder(const config::Settings& s) {
  return s.dataset.size() == 1 && fs::exists(fs::path(s.dataset.front()) / "dataset.json");
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
  if (s.dataset.empty()) fail_without_data(s);
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

DataPosition data_position(const config::Settings& settings) {
  if (is_prepared_folder(settings)) return {settings.dataset.front(), true};
  const fs::path folder = cache_folder(settings, data::prepare_options(settings, settings.dataset));
  return {folder, fs::exists(folder / "dataset.json")};
}

void settle_tokenizer(config::Settings& resolved) {
  if (!resolved.tokenizer.empty() || resolved.dataset.empty()) return;
  if (!is_prepared_folder(resolved)) {
    resolved.tokenizer = data::default_tokenizer(resolved);
    return;
  }
  const std::string& folder = resolved.dataset.front();
  const std::string made_with = data::TokenData::open(folder, "train")->tokenizer_name();
  if (made_with == "bytes" && resolved.model_name != "custom")
    fail(ExitCode::kUsage, "train", "wanted data of the tokenizer of ", resolved.model_name,
         ", found bytes in ", folder,
         "; prepare it with --tokenizer PATH (the model's tokenizer.json), or give --tokenizer "
         "bytes when the model is meant to learn bytes");
  log_info(str("tokenizer: ", made_with, ", of the prepared data"));
}

DataSet open_data_set(const config::Settings& settings) {
  const fs::path folder = prepared_folder(settings);
  DataSet set;
  set.train = data::TokenData::open(folder, "train");
  if (data::TokenData::has_split(folder, "val")) set.val = data::TokenData::open(folder, "val");
  if (set.val != nullptr && data::sample_count(*set.val, settings.max_seq_length) == 0) {
    log_warn(str("data: the validation split has ", set.val->tokens(),
                 " tokens, less than one sample of max_seq_length ", settings.max_seq_length,
                 ": no evaluation"));
    set.val = nullptr;
  }
  set.tokenizer = settings.tokenizer.empty() ? set.train->tokenizer_name() : settings.tokenizer;
  return set;
}

}  // namespace octavo::train
