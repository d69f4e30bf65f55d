#include "data/prepare.h"
#include "data/splits.h"

namespace octavo::data {

PrepareOptions prepare_options(const config::Settings& settings,
                               const std::vector<std::string>& inputs) {
  SplitInputs split = resolve_inputs(settings, inputs);
  PrepareOptions options;
  options.inputs = std::move(split.inputs);
  options.val_inputs = std::move(split.validation);
  options.sets = std::move(split.sets);
  options.max_skipped_rows = settings.max_skipped_rows;
  if (!settings.tokenizer.empty()) options.tokenizer = settings.tokenizer;
  options.special_tokens_in_text = settings.special_tokens_in_text;
  options.text_field = settings.text_field;
  options.prompt_field = settings.prompt_field;
  options.response_field = settings.response_field;
  options.messages_field = settings.messages_field;
  options.chat_template = settings.chat_template;
  options.train_on = settings.train_on;
  options.packing = settings.packing;
  options.max_seq_length = static_cast<uint64_t>(settings.max_seq_length);
  options.val_fraction = settings.val_fraction;
  options.shard_tokens = static_cast<uint64_t>(settings.shard_tokens);
  options.workers = static_cast<int>(settings.num_workers);
  return options;
}

}  // namespace octavo::data
