#include "config/parse.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/secrets.h"
#include "base/text.h"
#include "config/key_makers.h"
#include "config/mistakes.h"
#include "config/mixture_keys.h"
#include "config/resolve.h"
#include "config/rules.h"
#include "config/spellings.h"
#include "config/yaml.h"

namespace octavo::config {
namespace {

constexpr std::string_view kRoom = "config";

std::string shown(std::span<const std::string> values) {
  std::string text = "'" + join(values, ", ") + "'";
  if (text.size() > 80) text = text.substr(0, 77) + "…'";
  return text;
}

[[noreturn]] void unknown_key(const std::string& where, const std::string& name) {
  const std::string nearest = nearest_key(name);
  std::string hint = spelling_hint(name);
  if (hint.empty())
    hint =
        nearest.empty() ? "see octavo config show for all keys" : "did you mean " + nearest + "?";
  fail(ExitCode::kUsage, kRoom, where, "unknown key '", name.substr(0, 80), "'; ", hint);
}

// It would go into the copies of the settings that a run and its data keep.
void refuse_secret(const std::string& where, const std::string& value) {
  if (has_secret_address(value))
    fail(ExitCode::kUsage, kRoom, where,
         ": wanted no password or token in an address, found one (not shown); give it in the "
         "environment (HF_TOKEN, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY)");
}

void store(Parsed& parsed, const Key& key, std::span<const std::string> values, Origin origin) {
  const std::string where = origin.kind == Origin::Kind::kFile ? origin.text() + ": " : "--";
  const auto before = parsed.origins.find(key.name);
  if (before != parsed.origins.end() && before->second.kind == origin.kind)
    fail(ExitCode::kUsage, kRoom, where, key.name, ": wanted once, found twice (",
         before->second.text(), "); keep one of them, and note that an alias is the same key");
  if (!key.name.ends_with("prompt"))  // which may be about anything
    for (const std::string& value : values) refuse_secret(where + key.name, value);
  if (!key.store(parsed.settings, values))
    fail(ExitCode::kUsage, kRoom, where, key.name, ": wanted ", key.wanted, ", found ",
         shown(values), value_hint(key, values));
  parsed.origins.insert_or_assign(key.name, std::move(origin));
}

// use_fp4: true is fp8_recipe: nvfp4, in files too.
bool apply_fp4(Parsed& parsed, const YamlEntry& entry, const Origin& origin) {
  if (entry.name != "use_fp4" || entry.is_list || entry.values.size() != 1) return false;
  const std::optional<bool> on = parse_bool(entry.values.front());
  if (on && *on) store(parsed, *find_key("fp8_recipe"), std::vector<std::string>{"nvfp4"}, origin);
  return on.has_value();
}

// Entries of dataset with weights: the same as the flat keys (mixture_keys.h).
void apply_mixture(Parsed& parsed, const Key& key, const YamlEntry& entry, const Origin& origin) {
  if (key.name != "dataset")
    fail(ExitCode::kUsage, kRoom, origin.text(), ": ", key.name, ": wanted ", key.wanted,
         ", found a mapping in the list");
  const MixtureEntries entries = mixture_entries(entry, origin.text());
  store(parsed, key, entries.paths, origin);
  if (!entries.weights.empty())
    store(parsed, *find_key("dataset_weights"), entries.weights, origin);
  if (!entries.max_epochs.empty())
    store(parsed, *find_key("dataset_max_epochs"), entries.max_epochs, origin);
}

void apply_entry(Parsed& parsed, const YamlEntry& entry, const Origin& origin) {
  if (apply_fp4(parsed, entry, origin)) return;
  const Key* key = find_key(entry.name);
  if (key == nullptr) unknown_key(origin.text() + ": ", entry.name);
  if (entry.is_list && key->type != Type::kList)
    fail(ExitCode::kUsage, kRoom, origin.text(), ": ", key->name, ": wanted ", key->wanted,
         ", found a list");
  if (!entry.fields.empty()) return apply_mixture(parsed, *key, entry, origin);
  store(parsed, *key, entry.values, origin);
}

// The key that a mistake is about: the one that was named, or that may have been meant.
std::string meant_key(const std::string& name) {
  const std::string near = find_key(name) != nullptr ? name : nearest_key(name);
  const Key* key = find_key(near);
  return key == nullptr ? "" : key->name;
}

void apply_yaml(Parsed& parsed, std::string_view text, const std::string& source,
                Mistakes& mistakes) {
  for (const YamlEntry& entry : parse_yaml(text, source, {.item_fields = true})) {
    const Origin origin{Origin::Kind::kFile, source, entry.line};
    if (!mistakes.collect([&] { apply_entry(parsed, entry, origin); }))
      mistakes.leave_open(meant_key(entry.name));
  }
}

// The file that may have been meant by a name without its folder or its ending, or "".
std::string config_meant(const std::string& name) {
  std::error_code none;
  for (const char* const ending : {"", ".yaml", ".yml"})
    for (const char* const folder : {"", "configs/"})
      if (const std::string path = folder + name + ending;
          (path.ends_with(".yaml") || path.ends_with(".yml")) && fs::is_regular_file(path, none))
        return path;
  return "";
}

std::string read_config(const std::string& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    const std::string meant = config_meant(path);
    fail(ExitCode::kUsage, kRoom, "wanted a YAML file, found no file ", path, "; ",
         meant.empty() ? "check the path" : "did you mean " + meant + "?");
  }
  if (const uintmax_t size = fs::file_size(path, error); size > kMaxYamlBytes)
    fail(ExitCode::kUsage, kRoom, path, ": wanted at most ", kMaxYamlBytes, " bytes, found ", size,
         "; is this a configuration file?");
  return read_file(path, kMaxYamlBytes);
}

// Walks the arguments after the verb. What is wrong with one of them is collected, and the next one
// is read.
class FlagReader {
 public:
  FlagReader(std::span<const std::string> args, const Arguments& arguments, Parsed& parsed,
             Mistakes& mistakes)
      : args_(args), arguments_(arguments), parsed_(parsed), mistakes_(mistakes) {}

  void read_all() {
    for (; at_ < args_.size(); ++at_) mistakes_.collect([&] { read_one(args_[at_]); });
  }

 private:
  void read_one(const std::string& arg) {
    if (arg.starts_with("--") && arg.size() > 2) return read_named(arg.substr(2));
    if (arg.starts_with("-") && arg.size() > 1) {
      skip_value();
      fail(ExitCode::kUsage, kRoom, "wanted --key value, found '", arg, "'; see --help");
    }
    read_positional(arg);
  }

  void read_named(const std::string& flag) {
    const size_t equals = flag.find('=');
    std::string name = flag.substr(0, equals);
    std::replace(name.begin(), name.end(), '-', '_');
    const size_t begin = at_;
    try {
      read_flag(flag, name, equals);
    } catch (const Error&) {
      mistakes_.leave_open(meant_key(name));
      if (at_ == begin && equals == flag.npos) skip_value();
      throw;
    }
  }

  // The value of a flag that was not understood is no mistake of its own.
  void skip_value() {
    if (at_ + 1 == args_.size()) return;
    const std::string& next = args_[at_ + 1];
    const bool number = next.size() > 1 && next[0] == '-' && next[1] >= '0' && next[1] <= '9';
    const bool file = next.ends_with(".yaml") || next.ends_with(".yml");
    if ((!next.starts_with('-') || number) && !(file && parsed_.config_file.empty())) ++at_;
  }

  void read_flag(const std::string& flag, const std::string& name, size_t equals) {
    const Key* key = find_key(name);
    if (key == nullptr && name.starts_with("no_"))
      return read_negation(name.substr(3), equals != flag.npos);
    if (key == nullptr) unknown_key("", name);
    check_reader(*key);
    std::string value;
    if (equals != flag.npos)
      value = flag.substr(equals + 1);
    else
      value = key->type == Type::kBool ? bool_value() : next_value(*key);
    const std::vector<std::string> values =
        key->type == Type::kList ? split(value, ',') : std::vector{value};
    store(parsed_, *key, values, {Origin::Kind::kFlag, "", 0});
  }

  void read_negation(const std::string& name, bool has_value) {
    const Key* key = find_key(name);
    if (key == nullptr || key->type != Type::kBool) unknown_key("", "no_" + name);
    check_reader(*key);
    if (has_value)
      fail(ExitCode::kUsage, kRoom, "--no_", name, ": wanted no value, found one; write --", name,
           "=…");
    store(parsed_, *key, std::vector<std::string>{"false"}, {Origin::Kind::kFlag, "", 0});
  }

  // `--shuffle` alone is true; a following true or false belongs to it.
  std::string bool_value() {
    if (at_ + 1 < args_.size() && parse_bool(args_[at_ + 1])) return args_[++at_];
    return "true";
  }

  std::string next_value(const Key& key) {
    if (at_ + 1 == args_.size())
      fail(ExitCode::kUsage, kRoom, "--", key.name, ": wanted ", key.wanted, ", found nothing");
    const std::string& value = args_[at_ + 1];
    if (value.starts_with("--"))
      fail(ExitCode::kUsage, kRoom, "--", key.name, ": wanted ", key.wanted, ", found the flag ",
           value, "; ",
           key.name == "resume" ? "write --resume latest"
                                : str("if it is the value, write --", key.name, "=", value));
    ++at_;
    return value;
  }

  void check_reader(const Key& key) const {
    if (key.readers & arguments_.reader) return;
    std::vector<std::string> names;
    for (std::string_view name : reader_names(key.readers)) names.emplace_back(name);
    const std::string starts = arguments_.verb.starts_with("sweep") ? "the trials"
                               : arguments_.verb == "launch"        ? "the ranks"
                                                                    : "";
    const bool is_theirs = !starts.empty() && (key.readers & reader::kTrain);
    fail(ExitCode::kUsage, kRoom, "--", key.name, ": not read by ", arguments_.verb, ", only by ",
         join(names, ", "), "; leave it out, or ",
         is_theirs ? str("give it to ", starts, ", after --") : "type octavo " + names.front());
  }

  void read_positional(const std::string& arg) {
    refuse_secret(std::string(arguments_.verb), arg);
    const bool yaml = arg.ends_with(".yaml") || arg.ends_with(".yml");
    if (yaml && arguments_.takes_config && parsed_.config_file.empty()) {
      parsed_.config_file = arg;
    } else if (parsed_.positionals.size() < arguments_.max_positionals) {
      parsed_.positionals.push_back(arg);
    } else {
      const std::string meant = arguments_.takes_config ? config_meant(arg) : "";
      fail(ExitCode::kUsage, kRoom, "wanted [CONFIG.yaml] and --key value, found '", arg, "'; ",
           meant.empty() ? str("see octavo ", arguments_.verb, " --help")
                         : "did you mean " + meant + "?");
    }
  }

  std::span<const std::string> args_;
  const Arguments& arguments_;
  Parsed& parsed_;
  Mistakes& mistakes_;
  size_t at_ = 0;
};

void collect_contradictions(const Parsed& parsed, Readers readers, Mistakes& mistakes) {
  for (std::string& line : contradictions(parsed.settings, readers, mistakes.open_keys()))
    mistakes.add(std::move(line));
  if (readers & reader::kTrain)
    for (const std::string& line : parsed.conflicts) mistakes.add(line);
}

// Weights belong to the entries that they were written for.
void forget_mixture(Parsed& parsed, const Parsed& flags) {
  if (!flags.given("dataset")) return;
  for (const char* name : {"dataset_weights", "dataset_max_epochs", "mixture_schedule"})
    if (parsed.given(name) && !flags.given(name)) {
      const Key& key = *find_key(name);
      key.store(parsed.settings, key.load({}));
      parsed.notes.push_back(str(name, " of ", parsed.origin_of(name).text(),
                                 ": left out, since --dataset names other data"));
      parsed.origins.erase(name);
    }
}

Parsed resolved(const Parsed& file, const Parsed& flags, const Arguments& arguments,
                Mistakes& mistakes) {
  Parsed parsed = file;
  forget_mixture(parsed, flags);
  for (const auto& [name, origin] : flags.origins) {
    if (origin.kind != Origin::Kind::kFlag) continue;
    const Key* key = find_key(name);
    store(parsed, *key, key->load(flags.settings), origin);
  }
  resolve(parsed, file, arguments.reader);
  collect_contradictions(parsed, arguments.reader, mistakes);
  return parsed;
}

}  // namespace

std::string Origin::text() const {
  switch (kind) {
    case Kind::kDefault:
      return "default";
    case Kind::kFile:
      return str(file, ":", line);
    case Kind::kFlag:
      break;
  }
  return "flag";
}

Origin Parsed::origin_of(const std::string& name) const {
  const auto found = origins.find(name);
  return found == origins.end() ? Origin{} : found->second;
}

std::string Parsed::source_of(const std::string& name) const {
  const auto found = derived.find(name);
  return found == derived.end() ? origin_of(name).text() : found->second;
}

Parsed with_flags(const Parsed& file, const Parsed& flags, const Arguments& arguments) {
  Mistakes mistakes;
  Parsed parsed = resolved(file, flags, arguments, mistakes);
  mistakes.refuse();
  return parsed;
}

Parsed parse(std::span<const std::string> words, const Arguments& arguments) {
  const std::vector<std::string> args = in_our_words(words, arguments);
  Parsed flags, file;
  Mistakes mistakes;
  FlagReader(args, arguments, flags, mistakes).read_all();
  // The file was named among the flags: read it first, then let the flags win.
  const bool readable = mistakes.collect([&] {
    if (!flags.config_file.empty())
      apply_yaml(file, read_config(flags.config_file), flags.config_file, mistakes);
  });
  if (!readable) mistakes.refuse();  // without it nothing is known about the rest
  Parsed parsed = resolved(file, flags, arguments, mistakes);
  mistakes.refuse();
  parsed.positionals = std::move(flags.positionals);
  parsed.config_file = std::move(flags.config_file);
  return parsed;
}

Parsed parse_text(std::string_view yaml, const std::string& source, const Arguments& arguments) {
  Parsed parsed;
  Mistakes mistakes;
  mistakes.collect([&] { apply_yaml(parsed, yaml, source, mistakes); });
  collect_contradictions(parsed, arguments.reader, mistakes);
  mistakes.refuse();
  return parsed;
}

}  // namespace octavo::config
