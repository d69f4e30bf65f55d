// octavo completion bash|zsh|fish: a few lines of shell, which ask `octavo completion words` at
// each TAB. So the tables are the program's own and never stale. Words that are files are the
// shell's business: where we have nothing to offer, it completes files.

#include <algorithm>
#include <iostream>
#include <iterator>
#include <optional>
#include <string>

#include "base/error.h"
#include "base/text.h"
#include "cli/examples.h"
#include "cli/verbs.h"
#include "config/help.h"
#include "config/names.h"
#include "model_config/presets.h"
#include "plan/gpu.h"

namespace octavo::cli {
namespace {

constexpr size_t kMaxInput = size_t{1} << 20;

// The words are read from standard input, one a line, because the command line's own --help would
// be answered otherwise. A line of the answer: the word, and after a tab what it means.
constexpr std::string_view kBash =
    R"sh(# octavo completion for bash: source <(octavo completion bash)
_octavo() {
  local line
  COMPREPLY=()
  while IFS= read -r line; do
    COMPREPLY+=("${line%%$'\t'*}")
  done < <(printf '%s\n' "${COMP_WORDS[@]:1:COMP_CWORD}" | "${COMP_WORDS[0]}" completion words 2>/dev/null)
  if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *, ]]; then compopt -o nospace; fi
}
complete -o default -F _octavo octavo
)sh";

constexpr std::string_view kZsh = R"sh(#compdef octavo
# octavo completion for zsh: source <(octavo completion zsh)
_octavo() {
  local line
  local -a found shown
  while IFS= read -r line; do
    found+=("${line%%$'\t'*}")
    shown+=("${line/$'\t'/  -- }")
  done < <(printf '%s\n' "${(@)words[2,CURRENT]}" | "${words[1]}" completion words 2>/dev/null)
  if (( ${#found} )); then compadd -l -d shown -a found; else _files; fi
}
# In a folder of $fpath this file is the function's first call.
if [[ ${funcstack[1]} == _octavo ]]; then _octavo "$@"; else compdef _octavo octavo; fi
)sh";

constexpr std::string_view kFish =
    R"sh(# octavo completion for fish: octavo completion fish | source
function __octavo_words
  set -l before (commandline -opc)
  set -l typed (commandline -ct)
  test -n "$typed"; or set typed ""
  printf '%s\n' $before[2..-1] $typed | command octavo completion words 2>/dev/null
end
complete -c octavo -f -a '(__octavo_words)'
complete -c octavo -n 'test -z "$(__octavo_words)"' -F
)sh";

struct Candidate {
  std::string word, about;
};
using Candidates = std::vector<Candidate>;

void offer(Candidates& found, std::string_view typed, std::string word, std::string_view about) {
  if (!std::string_view(word).starts_with(typed)) return;
  const auto same = [&](const Candidate& other) { return other.word == word; };
  if (std::none_of(found.begin(), found.end(), same))
    found.push_back({std::move(word), config::first_sentence(about)});
}

// "list|verify|export [FOLDER]" starts with words; "[CONFIG.yaml]…" and "FOLDER" do not.
std::vector<std::string> words_of_usage(std::string_view usage) {
  const std::string first = split(usage, ' ').front();
  const bool plain = std::all_of(first.begin(), first.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || c == '|' || c == '_';
  });
  return plain && first.find('|') != first.npos ? split(first, '|') : std::vector<std::string>{};
}

Candidates first_words(std::string_view typed) {
  Candidates found;
  for (const Verb& verb : verbs()) {
    const size_t space = verb.name.find(' ');
    const bool one_word = space == verb.name.npos;
    offer(found, typed, std::string(verb.name.substr(0, space)),
          one_word ? std::string(verb.about) : "such as " + std::string(verb.name));
  }
  offer(found, typed, "--help", "all verbs");
  offer(found, typed, "--version", "of the program");
  return found;
}

Candidates second_words(const std::string& first, std::string_view typed) {
  Candidates found;
  for (const Verb& verb : verbs())
    if (verb.name.starts_with(first + " "))
      offer(found, typed, std::string(verb.name.substr(first.size() + 1)), verb.about);
  return found;
}

// The flags that the verb reads. Aliases, and --no_key of what is off anyway, only for who types
// them.
Candidates flags(const Verb& verb, std::string_view typed) {
  Candidates found;
  const config::Settings defaults;
  for (const config::Key& key : config::keys()) {
    if (!(key.readers & verb.arguments.reader)) continue;
    offer(found, typed, "--" + key.name, key.help);
    const bool on = key.type == config::Type::kBool && key.text(defaults) == "true";
    if (on || (key.type == config::Type::kBool && typed.starts_with("--no_")))
      offer(found, typed, "--no_" + key.name, "not: " + key.help);
  }
  for (const OwnFlag& flag : verb.own.flags) offer(found, typed, str("--", flag.name), flag.about);
  offer(found, typed, "--help", "the most used keys of " + std::string(verb.name));
  offer(found, typed, "--help_all", "the keys that " + std::string(verb.name) + " reads");
  if (!found.empty()) return found;
  for (const config::Key& key : config::keys())
    for (const std::string& alias : key.aliases)
      if (key.readers & verb.arguments.reader) offer(found, typed, "--" + alias, key.help);
  return found;
}

// What is known by name. A file may be meant as well: then the shell has the word.
void offer_names(Candidates& found, const config::Key& key, std::string_view typed) {
  if (key.name == "gpu")
    for (const plan::Gpu& gpu : plan::gpus()) offer(found, typed, std::string(gpu.name), gpu.title);
  if (key.name == "model_name")
    for (const std::string_view hub : model_config::published_names())
      offer(found, typed, model_config::published(hub)->name, hub);
  if (key.name == "dataset" && !typed.empty())
    for (const config::DatasetName& known : config::dataset_names())
      offer(found, typed, std::string(known.name), known.about);
}

// The choices of a key, after what the shell takes for a part of the same word ("--key=").
Candidates values(const config::Key& key, std::string_view typed, const std::string& before) {
  Candidates found;
  for (const std::string& choice : key.choices) offer(found, typed, choice, "");
  offer_names(found, key, typed);
  if (key.type == config::Type::kBool)
    for (const char* word : {"true", "false"}) offer(found, typed, word, "");
  for (Candidate& candidate : found) candidate.word = before + candidate.word;
  return found;
}

const config::Key* key_of_flag(std::string_view word) {
  if (!word.starts_with("--")) return nullptr;
  std::string name(word.substr(2));
  std::replace(name.begin(), name.end(), '-', '_');
  return config::find_key(name);
}

// What may follow `words` of a verb, the last of which is being typed. bash gives "--key=value" as
// three words.
Candidates after_verb(const Verb& verb, Args words) {
  const std::string& typed = words.back();
  const size_t count = words.size();
  if (const size_t equals = typed.find('='); typed.starts_with("--") && equals != typed.npos) {
    const config::Key* key = key_of_flag(std::string_view(typed).substr(0, equals));
    if (key == nullptr) return {};
    return values(*key, std::string_view(typed).substr(equals + 1), typed.substr(0, equals + 1));
  }
  if (typed == "=" && count > 1)
    if (const config::Key* key = key_of_flag(words[count - 2])) return values(*key, "", "");
  if (count > 2 && words[count - 2] == "=")
    if (const config::Key* key = key_of_flag(words[count - 3])) return values(*key, typed, "");
  if (typed.starts_with("-")) return flags(verb, typed);
  Candidates found;
  for (const OwnFlag& flag : verb.own.flags)
    if (count > 1 && words[count - 2] == str("--", flag.name) &&
        flag.value.find('|') != flag.value.npos) {
      for (std::string& choice : split(flag.value, '|')) offer(found, typed, std::move(choice), "");
      return found;
    }
  if (count > 1 && words[count - 2] == "--help") {
    for (const config::Key* key : config::keys_of(verb.arguments.reader))
      offer(found, typed, key->name, key->help);
    return found;
  }
  if (count > 1)
    if (const config::Key* key = key_of_flag(words[count - 2]);
        key != nullptr && key->type != config::Type::kBool)
      return values(*key, typed, "");
  if (count == 1)
    for (std::string& word : words_of_usage(verb.usage)) offer(found, typed, std::move(word), "");
  if (count == 1 && verb.name == "examples")
    for (const Example& example : example_files())
      offer(found, typed, std::string(example.name), "");
  return found;
}

Candidates candidates(Args words) {
  // launch [--key value]… -- train …: the second part is a command of its own.
  if (const auto dashes = std::find(words.begin(), words.end(), "--");
      dashes != words.end() && dashes + 1 != words.end())
    return candidates({dashes + 1, words.end()});
  if (words.size() == 1) return first_words(words[0]);
  for (const Verb& verb : verbs()) {
    if (verb.name == words[0]) return after_verb(verb, words.subspan(1));
    if (words.size() > 2 && verb.name == words[0] + " " + words[1])
      return after_verb(verb, words.subspan(2));
  }
  return words.size() == 2 ? second_words(words[0], words[1]) : Candidates{};
}

int print_words() {
  std::string input;
  for (std::istreambuf_iterator<char> at(std::cin), end; at != end && input.size() < kMaxInput;
       ++at)
    input += *at;
  if (input.ends_with('\n')) input.pop_back();
  for (const Candidate& candidate : candidates(split(input, '\n')))
    std::cout << candidate.word << (candidate.about.empty() ? "" : "\t") << candidate.about << "\n";
  return 0;
}

}  // namespace

int completion(const Verb& verb, Args args) {
  const config::Parsed parsed = config::parse(args, verb.arguments);
  const std::string shell = parsed.positionals.empty() ? "" : parsed.positionals.front();
  if (shell == "words") return print_words();
  for (const auto& [name, script] : {std::pair{"bash", kBash}, {"zsh", kZsh}, {"fish", kFish}}) {
    if (shell != name) continue;
    std::cout << script;
    return 0;
  }
  fail(ExitCode::kUsage, "cli", "completion: wanted bash, zsh or fish, found ",
       shell.empty() ? "nothing" : "'" + shell + "'",
       "; for example: source <(octavo completion bash)");
}

}  // namespace octavo::cli
