#include "data/prepare_plan.h"

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace octavo::data {

Inputs find_inputs(const PrepareOptions& options, const tokenizer::Tokenizer& tokenizer) {
  Inputs inputs;
  const size_t first_val = list_set_sources(options, inputs.sources);
  if (first_val == 0)
    fail(ExitCode::kUsage, "data", "wanted text or rows (JSONL, JSON), found none in ",
         options.inputs.size(), " inputs; name files or folders with text");
  const auto middle = inputs.sources.begin() + static_cast<std::ptrdiff_t>(first_val);
  std::vector<Source> validation(middle, inputs.sources.end());
  inputs.sources.erase(middle, inputs.sources.end());
  inputs.rows = plan_rows(options, tokenizer, inputs.sources);
  if (inputs.rows.format.has_answers()) {
    drop_texts(inputs.sources);
    drop_texts(validation);
  }
  inputs.first_val = inputs.sources.size();
  for (Source& source : validation) inputs.sources.push_back(std::move(source));
  // What will be left out is not read for its hash again.
  if (options.known_files > 0) hash_sources(inputs.sources, options.known_list, 0, true);
  return inputs;
}

namespace {

// Ids that earlier versions made otherwise: a data set of theirs is found again only where its ids
// are the same.
void note_documents(const PrepareOptions& options, const tokenizer::Tokenizer& tokenizer,
                    const Inputs& inputs, Json& json) {
  const bool text = !inputs.rows.format.has_answers();
  const bool begins = inputs.rows.chat_template == ChatTemplate::kAlpaca ||
                      inputs.rows.chat_template == ChatTemplate::kNone;
  if (!tokenizer.begin_ids().empty() && text) json["begin_ids"] = tokenizer.begin_ids();
  if (!tokenizer.end_ids().empty() && (text || begins)) json["end_ids"] = tokenizer.end_ids();
  if (text && !tokenizer.special_tokens().empty() && !options.special_tokens_in_text)
    json["special_tokens"] = "text";
}

// Of each data set its training files, and whether it has others to validate on.
Json held_out(const PrepareOptions& options, const Inputs& inputs) {
  Json sets = Json::array();
  for (const InputSet& set : sets_of(options)) sets.push_back({0, set.val_inputs > 0});
  for (size_t i = 0; i < inputs.first_val; ++i) {
    Json& files = sets[inputs.sources[i].set][0];
    files = files.get<uint64_t>() + 1;
  }
  return sets;
}

// What the token stream and its cutting into shards depend on.
Json plan_options(const PrepareOptions& options, const tokenizer::Tokenizer& tokenizer,
                  const Inputs& inputs) {
  Json json = {{"text_field", options.text_field},
               {"val_fraction", options.val_fraction},
               {"shard_tokens", options.shard_tokens}};
  if (inputs.first_val < inputs.sources.size())
    json["val_files"] = inputs.sources.size() - inputs.first_val;
  note_documents(options, tokenizer, inputs, json);
  if (options.deduplicate) json["deduplicate"] = true;
  if (options.after_end) json["after_end"] = true;
  if (holds_out_by_set(options)) json["held_out"] = held_out(options, inputs);
  if (!inputs.rows.format.has_answers()) return json;
  json.erase("text_field");
  json["rows"] = inputs.rows.format.name;
  json["chat_template"] = stored_name(inputs.rows.chat_template);
  if (inputs.rows.own) json["own_template"] = inputs.rows.own->fingerprint();
  json["train_on"] = name_of(options.train_on);
  json["packing"] = options.packing;
  json["sample_length"] = options.max_seq_length;
  return json;
}

}  // namespace

DatasetIndex make_index(const PrepareOptions& options, const tokenizer::Tokenizer& tokenizer,
                        const Inputs& inputs) {
  const std::vector<Source>& sources = inputs.sources;
  DatasetIndex index;
  index.tokenizer_name = tokenizer.name();
  index.kind = {static_cast<uint64_t>(tokenizer.vocab_size()), tokenizer.fingerprint(),
                inputs.rows.format.has_answers() ? options.max_seq_length : 0};
  index.options = plan_options(options, tokenizer, inputs);
  index.source_files = sources.size();
  index.source_bytes = source_begins(sources).back();
  index.sources_fingerprint = sources_fingerprint(sources);
  const std::string plan =
      str(index.kind.tokenizer_fingerprint, ' ', index.kind.vocab_size, ' ',
          tokenizer.end_of_document(), ' ', index.options.dump(), ' ', index.sources_fingerprint);
  index.plan = hash_text(plan);
  return index;
}

namespace {

[[noreturn]] void refuse_other(const fs::path& folder, const DatasetIndex& found,
                               const DatasetIndex& wanted) {
  const bool same_tokenizer = found.kind.tokenizer_fingerprint == wanted.kind.tokenizer_fingerprint;
  fail(ExitCode::kUsage, "data", folder.string(), " holds a data set of ",
       !same_tokenizer                   ? str("another tokenizer (", found.tokenizer_name, ")")
       : found.options != wanted.options ? std::string("other options or inputs")
                                         : "other inputs, or of these before they changed",
       "; delete the folder to prepare it anew",
       same_tokenizer ? ", or name it as dataset in place of the inputs to train on it as it is"
                      : "",
       "; data prepare can take another --output too");
}

}  // namespace

std::optional<DatasetIndex> find_finished(const fs::path& folder, const DatasetIndex& wanted) {
  if (!fs::exists(folder / kIndexName)) return std::nullopt;
  DatasetIndex index;
  try {
    index = read_index(folder);
  } catch (const Error& error) {
    fail(error.code(), "data",
         "the output folder holds a data set that cannot be read: ", error.what(), "; delete ",
         folder.string(), " to prepare it anew");
  }
  if (index.plan != wanted.plan) refuse_other(folder, index, wanted);
  for (const auto& [name, split] : index.splits)
    for (const ShardInfo& shard : split.shards)
      if (!shard_is_intact(folder, shard)) {
        log_warn(str("data: ", shard.name, " is missing or damaged: preparing all shards again"));
        fs::remove(folder / kIndexName);
        return std::nullopt;
      }
  return index;
}

void remove_leftovers(const fs::path& folder, const std::set<std::string>& kept) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    const bool ours = name.starts_with("train-") || name.starts_with("val-") ||
                      name.starts_with(kIndexName) || name.starts_with(kSourcesName);
    const bool temporary = name.ends_with(".tmp") || name.find(".tmp-") != std::string::npos;
    const bool stray = name.ends_with(".tok") && !kept.contains(name);
    if (ours && (temporary || stray)) fs::remove(entry.path());
  }
}

EncodeContext make_context(const PrepareOptions& options, const tokenizer::Tokenizer& tokenizer,
                           const Inputs& inputs) {
  EncodeContext context{.tokenizer = tokenizer,
                        .sources = inputs.sources,
                        .begins = source_begins(inputs.sources),
                        .format = inputs.rows.format,
                        .chat_template = inputs.rows.chat_template,
                        .own = inputs.rows.own,
                        .loss_on_all = options.train_on == config::TrainOn::kAll,
                        .special_in_text = options.special_tokens_in_text,
                        .sample_length = options.max_seq_length,
                        .after_end = options.after_end};
  context.last_end = last_document_end(inputs.sources, context.begins, 0, inputs.sources.size());
  context.cuts = validation_cuts(options, inputs.sources, context.begins, inputs.first_val);
  return context;
}

void finish_index(const PrepareOptions& options, const Tally& tally, DatasetIndex& index) {
  tally.check(options);
  if (index.splits.empty())
    fail(ExitCode::kUsage, "data", "wanted text, found no token in ", index.source_files,
         " files; check the inputs and text_field");
  for (const char* split : {"train", "val"})
    if (!index.splits.contains(split) && (options.val_fraction > 0 || split[0] == 't'))
      log_warn(str("data: the split '", split, "' is empty: too little text for val_fraction ",
                   options.val_fraction));
  index.sets = tally.to_json().at("sets");
  index.duplicates = tally.duplicates();
  for (const std::string& line : describe_sets(index.sets, kIndexName)) log_info("data: " + line);
  write_index(options.output, index);
}

PrepareResult describe_finished(const PrepareOptions& options, const DatasetIndex& index) {
  log_info(str("data: ", options.output.string(), " is already prepared"));
  for (const std::string& line : describe_sets(index.sets, kIndexName)) log_info("data: " + line);
  PrepareResult result = summarise(index);
  result.shards_reused = result.shards;
  return result;
}

PrepareResult summarise(const DatasetIndex& index) {
  PrepareResult result;
  result.bytes = index.source_bytes;
  result.duplicates = index.duplicates;
  result.sample_length = index.kind.sample_length;
  for (const auto& [name, split] : index.splits) {
    (name == "train" ? result.train_tokens : result.val_tokens) = split.tokens();
    result.documents += split.documents();
    result.shards += static_cast<int>(split.shards.size());
    for (const ShardInfo& shard : split.shards) {
      result.loss_tokens += shard.loss_tokens;
      result.padding_tokens += shard.padding;
    }
  }
  return result;
}

}  // namespace octavo::data
