#include "cli/help.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/help.h"
#include "config/spellings.h"

namespace octavo::cli {
namespace {

// What people set first, in the order of --help. A verb that is not here reads few keys.
constexpr std::pair<std::string_view, std::string_view> kCommonKeys[] = {
    {"train",
     "model_name dataset batch_size max_steps learning_rate mixed_precision fp8_recipe resume "
     "run_name"},
    {"generate",
     "checkpoint prompt chat max_new_tokens temperature top_k top_p seed mixed_precision device"},
    {"eval",
     "checkpoint dataset val_split_name eval_task eval_data eval_limit batch_size max_seq_length "
     "mixed_precision device output json"},
    {"verify",
     "before_long_run require_gpu mixed_precision fp8_recipe fp8_backend device gpu num_gpus "
     "output json"},
    {"diagnose",
     "model_name checkpoint dataset batch_size fp8_recipe fp8_skip capture output json"},
    {"bench",
     "model_name max_seq_length batch_size fp8_recipe bench_seconds bench_steps output json"},
    {"data prepare",
     "output tokenizer dataset split_name val_fraction max_seq_length text_field prompt_field "
     "response_field chat_template packing num_workers"},
    {"plan",
     "model_name gpu num_gpus batch_size max_seq_length mixed_precision fp8_recipe sharding_mode "
     "gradient_checkpointing token_budget gpu_price dry_run output json"},
    {"compare",
     "seeds side_a side_b max_train_gap max_val_gap min_speedup max_memory_gap tail_share "
     "eval_data "
     "output json"},
    {"config",
     "model_name dataset max_seq_length batch_size max_steps learning_rate mixed_precision "
     "fp8_recipe lora_rank run_name"},
};

// Verbs of two words share a line of octavo --help.
constexpr std::pair<std::string_view, std::string_view> kFamilies[] = {
    {"data", "token shards from text, JSONL, JSON, Parquet and Arrow"},
    {"sweep", "many trials, from a W&B sweep file"},
    {"config", "check, explain and import configuration files"},
};

constexpr std::string_view kIntroduction =
    "octavo " OCTAVO_VERSION
    ": trains language models and proves that it worked.\n\n"
    "usage: octavo VERB [CONFIG.yaml] [--key value]…, or octavo --version\n"
    "       octavo VERB --help          its most used keys, and the names of the others\n"
    "       octavo VERB --help_all      every key that it reads; --help KEY: one in full\n"
    "\n"
    "verbs:\n";

constexpr std::string_view kExamples =
    "\nexamples:\n"
    "  octavo train --dataset input.txt --model_name custom --n_layer 4 --n_head 4 --n_embd 128\n"
    "  octavo train --model_name meta-llama/Llama-3.2-1B --dataset openai/gsm8k --use_fp8\n"
    "  octavo examples tinyshakespeare > my.yaml\n"
    "  octavo train my.yaml --dataset input.txt --resume latest\n"
    "  octavo launch --nproc 8 --max_restarts 3 -- train my.yaml\n"
    "  octavo generate --checkpoint best --prompt \"To be, or\"\n"
    "\nexit codes: 0 done, 1 a bug, 2 wrong use or config, 3 environment, 4 a guard or a failed "
    "check,\n"
    "5 data or checkpoint damaged, 6 compare or audit had not enough data, 75 stopped and "
    "resumable.\n";

constexpr size_t kNameColumn = 18;

std::string family_of(std::string_view verb) {
  return split(verb, ' ').front();
}

std::string table_line(std::string name, std::string_view about) {
  name = "  " + name;
  name.resize(std::max(kNameColumn, name.size()), ' ');
  // "…; how it ends" is for the verb's own help where it does not fit.
  if (kNameColumn + about.size() > config::kHelpColumns) about = about.substr(0, about.find("; "));
  return str(name, about, "\n");
}

// A line for each verb, and for each family of verbs.
std::string all_verb_lines() {
  std::string out;
  std::vector<std::string> done;
  for (const Verb& verb : verbs()) {
    const std::string family = family_of(verb.name);
    if (family == verb.name) {
      out += table_line(family, verb.about);
      continue;
    }
    if (std::ranges::find(done, family) != done.end()) continue;
    done.push_back(family);
    std::vector<std::string> words;
    for (const Verb& other : verbs())
      if (family_of(other.name) == family) words.emplace_back(other.name.substr(family.size() + 1));
    for (const auto& [name, about] : kFamilies)
      if (name == family) out += table_line(family, str(join(words, "|"), ": ", about));
  }
  return out;
}

size_t lines_of(std::string_view text) {
  return static_cast<size_t>(std::ranges::count(text, '\n'));
}

std::string heading(const Verb& verb) {
  const std::string usage = str("usage: octavo ", verb.name, " ", verb.usage);
  return config::wrapped(usage, 7) + "\n\n" + config::wrapped(verb.about, 0) + "\n" +
         (verb.own.flags.empty() ? "" : "\n" + own_flags_help(verb.own));
}

// --batch-size, no_shuffle and batch_size are the same key.
const config::Key* key_named(std::string word) {
  word.erase(0, std::min(word.size(), word.find_first_not_of('-')));
  std::ranges::replace(word, '-', '_');
  for (const std::string& name : {word, word.starts_with("no_") ? word.substr(3) : word}) {
    if (const config::Key* key = config::find_key(name)) return key;
    if (const config::Key* key = config::find_key(config::our_name(name))) return key;
  }
  return nullptr;
}

[[noreturn]] void no_such_key(const std::string& word, const std::string& all) {
  const std::vector<std::string> near = config::near_keys(word);
  const std::string hint = config::spelling_hint(word);
  fail(ExitCode::kUsage, "cli", "unknown key '", word.substr(0, 80), "'; ",
       !hint.empty()  ? hint
       : near.empty() ? "see " + all
                      : "did you mean " + join(near, ", ") + "?");
}

std::string one_key_help(const Verb& verb, const std::string& word) {
  const config::Readers reader = verb.arguments.reader;
  if (const config::Key* key = key_named(word)) {
    const bool read = (key->readers & reader) != 0;
    return config::key_help(*key) + (read ? "" : str("\n", verb.name, " does not read it.\n"));
  }
  const std::string section = config::section_help(reader, word);
  if (section.empty()) no_such_key(word, str("octavo ", verb.name, " --help_all"));
  return section;
}

std::string short_help(const Verb& verb) {
  const config::Readers reader = verb.arguments.reader;
  const std::vector<std::string> common = common_keys(verb);
  const size_t count = config::keys_of(reader).size();
  std::string out = heading(verb) + "\n" + config::common_help(common);
  const std::string others = config::other_keys(reader, common);
  const std::string more = str("\n", count - common.size(), " more keys: octavo ", verb.name,
                               " --help KEY explains one, --help_all all");
  if (lines_of(out) + lines_of(others) + 2 <= config::kHelpLines)
    return out + more + ":\n" + others;
  std::vector<std::string> names;
  for (const config::SectionInfo& section : config::sections())
    if (!config::section_help(reader, section.name).empty()) names.emplace_back(section.name);
  return out + more + ",\n" +
         config::wrapped(str("--help SECTION those of ", join(names, ", ")), 0) + ".\n";
}

}  // namespace

std::optional<HelpRequest> help_request(Args args) {
  for (size_t i = 0; i < args.size(); ++i) {
    const std::string& arg = args[i];
    if (arg == "--help_all" || arg == "--help-all") return HelpRequest{.all = true};
    if (arg.starts_with("--help=")) return HelpRequest{.word = arg.substr(7)};
    if (arg != "--help" && arg != "-h") continue;
    const std::string next = i + 1 < args.size() ? args[i + 1] : "";
    // A file is no key (octavo train --help my.yaml), and a flag's value may be a secret.
    const bool is_file = next.find_first_of("./") < next.find('=');
    return HelpRequest{.word = is_file ? "" : next.substr(0, next.find('='))};
  }
  return std::nullopt;
}

std::vector<std::string> common_keys(const Verb& verb) {
  const config::Readers reader = verb.arguments.reader;
  if (lines_of(heading(verb)) + 1 + lines_of(config::help_text(reader)) > config::kHelpLines)
    for (const auto& [name, keys] : kCommonKeys)
      if (name == verb.arguments.verb || (name == "config" && reader == config::reader::kAll))
        return split(keys, ' ');
  std::vector<std::string> names;
  for (const config::Key* key : config::keys_of(reader)) names.push_back(key->name);
  return names;
}

std::string verb_help(const Verb& verb, const HelpRequest& request) {
  if (!request.word.empty()) return one_key_help(verb, request.word);
  const config::Readers reader = verb.arguments.reader;
  const size_t count = config::keys_of(reader).size();
  if (count == 0) return heading(verb);
  if (request.all || common_keys(verb).size() == count)
    return heading(verb) + "\n" + config::help_text(reader);
  return short_help(verb);
}

std::string verb_lines(std::string_view word) {
  std::string out;
  for (const Verb& verb : verbs())
    if (family_of(verb.name) == word) out += table_line(std::string(verb.name), verb.about);
  return out;
}

std::string usage_text() {
  return std::string(kIntroduction) + all_verb_lines();
}

std::string program_help() {
  return usage_text() + std::string(kExamples);
}

std::string any_key_help(const std::string& word) {
  const config::Key* key = key_named(word);
  if (key == nullptr) no_such_key(word, "octavo --help for the verbs, or octavo VERB --help_all");
  return config::key_help(*key);
}

}  // namespace octavo::cli
