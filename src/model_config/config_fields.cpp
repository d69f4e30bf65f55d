#include "model_config/config_fields.h"

#include <algorithm>
#include <cmath>

namespace octavo::model_config {

ConfigFields::ConfigFields(const Json& object, std::string source, std::string architecture,
                           std::optional<Error>* refusal)
    : object_(object),
      source_(std::move(source)),
      architecture_(std::move(architecture)),
      refusal_(refusal) {
  if (!object.is_object())
    fail(ExitCode::kDamaged, "model_config", source_, ": wanted a JSON object, found ",
         object.type_name());
}

const Json* ConfigFields::find(const char* name) {
  known_.insert(name);
  return has(name) ? &object_.at(name) : nullptr;
}

bool ConfigFields::has(const char* name) const {
  const auto found = object_.find(name);
  return found != object_.end() && !found->is_null();
}

int64_t ConfigFields::count(const char* name, int64_t max) {
  known_.insert(name);
  const int64_t value = json_int(object_, name, source_);
  if (value < 1 || value > max)
    fail(ExitCode::kDamaged, "model_config", source_, ": '", name, "' wanted in 1..", max,
         ", found ", value);
  return value;
}

int64_t ConfigFields::count_or(const char* name, int64_t max, int64_t missing) {
  return find(name) == nullptr ? missing : count(name, max);
}

int64_t ConfigFields::count_to_run(const char* name, int64_t max) {
  if (has(name) || refusal_ == nullptr) return count(name, max);
  known_.insert(name);
  refuse_with(Error(ExitCode::kDamaged, "model_config",
                    str(source_, ": wanted the field '", name, "', found none")));
  return 0;
}

double ConfigFields::real_or(const char* name, double missing) {
  const Json* value = find(name);
  if (value == nullptr) return missing;
  if (!value->is_number() || !std::isfinite(value->get<double>()))
    fail(ExitCode::kDamaged, "model_config", source_, ": '", name, "' wanted as a number, found ",
         value->dump());
  return value->get<double>();
}

bool ConfigFields::flag_or(const char* name, bool missing) {
  const Json* value = find(name);
  if (value == nullptr) return missing;
  if (!value->is_boolean())
    fail(ExitCode::kDamaged, "model_config", source_, ": '", name,
         "' wanted as true or false, found ", value->dump());
  return value->get<bool>();
}

std::string ConfigFields::text_or(const char* name, const std::string& missing) {
  return find(name) == nullptr ? missing : json_string(object_, name, source_);
}

const Json& ConfigFields::object_or_empty(const char* name) {
  static const Json empty = Json::object();
  const Json* value = find(name);
  return value == nullptr ? empty : *value;
}

void ConfigFields::must_be(const char* name, std::initializer_list<Json> implemented) {
  const Json* value = find(name);
  if (value != nullptr && std::ranges::find(implemented, *value) == implemented.end()) refuse(name);
}

void ConfigFields::harmless(std::initializer_list<const char*> names) {
  known_.insert(names.begin(), names.end());
}

void ConfigFields::pass_general() {
  must_be("is_encoder_decoder", {false});
  must_be("tie_encoder_decoder", {false});
  must_be("add_cross_attention", {false});
  must_be("is_causal", {true});
  must_be("pruned_heads", {Json::object()});
  // What it is, and who wrote it.
  harmless({"architectures", "model_type", "transformers_version", "_name_or_path", "name_or_path",
            "torch_dtype", "dtype", "use_bfloat16", "initializer_range", "transformers.js_config",
            "unsloth_fixed", "unsloth_version", "tokenizer_class", "prefix"});
  // How transformers runs it.
  harmless({"use_cache", "output_past", "output_attentions", "output_hidden_states", "return_dict",
            "return_dict_in_generate", "output_scores", "torchscript", "tf_legacy_loss",
            "gradient_checkpointing", "_attn_implementation", "_attn_implementation_autoset",
            "attn_implementation", "_flash_attn_2_enabled", "chunk_size_feed_forward",
            "is_decoder"});
  // Heads of other tasks.
  harmless({"id2label", "label2id", "num_labels", "_num_labels", "problem_type", "finetuning_task",
            "task_specific_params"});
  // Tokens and generation, for generation_config.json since transformers 4.26.
  harmless({"bos_token_id",
            "eos_token_id",
            "pad_token_id",
            "unk_token_id",
            "sep_token_id",
            "decoder_start_token_id",
            "forced_bos_token_id",
            "forced_eos_token_id",
            "max_length",
            "min_length",
            "do_sample",
            "early_stopping",
            "num_beams",
            "num_beam_groups",
            "diversity_penalty",
            "temperature",
            "top_k",
            "top_p",
            "typical_p",
            "repetition_penalty",
            "length_penalty",
            "no_repeat_ngram_size",
            "encoder_no_repeat_ngram_size",
            "bad_words_ids",
            "num_return_sequences",
            "remove_invalid_values",
            "exponential_decay_length_penalty",
            "suppress_tokens",
            "begin_suppress_tokens"});
}

void ConfigFields::refuse_with(const Error& error) const {
  if (refusal_ == nullptr) throw error;
  if (!refusal_->has_value()) refusal_->emplace(error);
}

void ConfigFields::refuse(const std::string& name) const {
  refuse_with(Error(
      ExitCode::kUsage, "model_config",
      str(source_, ": '", name, "': ", object_.contains(name) ? object_.at(name).dump() : "null",
          " is not implemented for ", architecture_,
          " and may change its mathematics; remove the field if it has no effect")));
}

void ConfigFields::refuse_rest() const {
  for (const auto& [name, value] : object_.items())
    if (!known_.contains(name) && !value.is_null()) refuse(name);
}

}  // namespace octavo::model_config
