#include "config/help.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "config/rules.h"

namespace octavo::config {
namespace {

constexpr size_t kMostNear = 8;

std::string in_column(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

// "  --max_steps <integer>", "  --[no_]shuffle"
std::string flag_text(const Key& key) {
  if (key.type == Type::kBool) return "  --[no_]" + key.name;
  return "  --" + key.name + " <" + (key.type == Type::kEnum ? "word" : key.type_name()) + ">";
}

// "  --max_steps N": leaves more of a line to the sentence.
std::string short_flag_text(const Key& key) {
  switch (key.type) {
    case Type::kBool:
      return "  --[no_]" + key.name;
    case Type::kInt:
    case Type::kReal:
      return "  --" + key.name + " N";
    case Type::kText:
      return "  --" + key.name + " TEXT";
    case Type::kList:
      return "  --" + key.name + " A,B";
    case Type::kEnum:
      break;
  }
  return "  --" + key.name + " WORD";
}

std::string default_text(const Key& key) {
  const std::string value = key.text(Settings{});
  return value == "\"\"" || value == "[]" ? "" : value;
}

std::string with_default(const Key& key, const std::string& about) {
  const std::string value = default_text(key);
  return value.empty() ? about : about + " [" + value + "]";
}

std::string about_text(const Key& key) {
  std::string about = key.help;
  if (key.type == Type::kEnum) about += " One of " + join(key.choices, ", ") + ".";
  if (!key.aliases.empty()) about += " Also --" + join(key.aliases, ", --") + ".";
  return with_default(key, about);
}

// A sentence; also what the default means ("0: never.") where that fits into one line.
std::string short_about_text(const Key& key, size_t indent) {
  const std::string first = first_sentence(key.help);
  std::string about = first;
  if (key.type == Type::kEnum) about += " (" + join(key.choices, ", ") + ")";
  about += ".";
  const std::string usual = default_text(key).empty() ? "Empty" : default_text(key);
  const std::string rest = key.help.substr(std::min(key.help.size(), first.size() + 2));
  if (!rest.starts_with(usual + ": ")) return with_default(key, about);
  const std::string longer = with_default(key, about + " " + first_sentence(rest) + ".");
  return indent + longer.size() <= kHelpColumns ? longer : with_default(key, about);
}

std::string key_lines(Readers reader, Section section) {
  constexpr size_t kIndent = 38;
  std::string lines;
  for (const Key* key : keys_of(reader)) {
    if (key->section != section) continue;
    const std::string flag = flag_text(*key);
    const bool fits = flag.size() < kIndent;
    lines += fits ? in_column(flag, kIndent) : flag + "\n" + std::string(kIndent, ' ');
    lines += wrapped(about_text(*key), kIndent) + "\n";
  }
  return lines;
}

const SectionInfo& section_of(const Key& key) {
  return *std::ranges::find(sections(), key.section, &SectionInfo::section);
}

}  // namespace

std::string wrapped(std::string_view text, size_t indent) {
  std::string out;
  size_t column = indent;
  for (const std::string& word : split(text, ' ')) {
    if (column > indent && column + 1 + word.size() > kHelpColumns) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += " ";
      ++column;
    }
    out += word;
    column += word.size();
  }
  return out;
}

std::string first_sentence(std::string_view text) {
  const size_t end = std::min(text.find(". "), text.find('\n'));
  std::string sentence(text.substr(0, end));
  while (sentence.ends_with('.')) sentence.pop_back();
  return sentence;
}

std::string help_text(Readers reader) {
  std::string out;
  for (const SectionInfo& section : sections()) {
    const std::string part = section_help(reader, section.name);
    if (!part.empty()) out += (out.empty() ? "" : "\n") + part;
  }
  return out;
}

std::string section_help(Readers reader, std::string_view section) {
  for (const SectionInfo& info : sections()) {
    if (info.name != section) continue;
    const std::string lines = key_lines(reader, info.section);
    return lines.empty() ? "" : str(info.name, ": ", info.about, "\n", lines);
  }
  return "";
}

std::string common_help(std::span<const std::string> names) {
  size_t indent = 0;
  for (const std::string& name : names)
    indent = std::max(indent, short_flag_text(*find_key(name)).size() + 2);
  std::string out;
  for (const std::string& name : names) {
    const Key& key = *find_key(name);
    out += in_column(short_flag_text(key), indent) +
           wrapped(short_about_text(key, indent), indent) + "\n";
  }
  return out;
}

std::string other_keys(Readers reader, std::span<const std::string> names) {
  constexpr size_t kIndent = 15;
  std::string out;
  for (const SectionInfo& section : sections()) {
    std::vector<std::string> others;
    for (const Key* key : keys_of(reader))
      if (key->section == section.section && std::ranges::find(names, key->name) == names.end())
        others.push_back(key->name);
    if (!others.empty())
      out += in_column("  " + std::string(section.name), kIndent) +
             wrapped(join(others, " "), kIndent) + "\n";
  }
  return out;
}

std::string key_help(const Key& key) {
  constexpr size_t kIndent = 12;
  std::string out = flag_text(key).substr(2) + "\n\n  " + wrapped(key.help, 2) + "\n\n";
  const auto row = [&](const std::string& name, const std::string& text) {
    out += in_column("  " + name, kIndent) + wrapped(text, kIndent) + "\n";
  };
  row("values", key.wanted);
  row("default", default_text(key).empty() ? "empty" : default_text(key));
  if (!key.aliases.empty()) row("also", join(key.aliases, ", "));
  if (key.type == Type::kBool)
    row("flag", "--" + key.name + " for true, --no_" + key.name + " for false");
  else if (key.type == Type::kList)
    row("flag", "--" + key.name + (key.numbers ? " 7,3" : " a,b"));
  const std::string value = default_text(key).empty() ? "…" : default_text(key);
  row("YAML", key.name + ": " +
                  (key.type != Type::kList ? value
                   : key.numbers           ? "[7, 3]"
                                           : "[a, b]"));
  row("section", str(section_of(key).name, ": ", section_of(key).about));
  const std::vector<std::string_view> readers = reader_names(key.readers);
  row("read by", join(std::vector<std::string>(readers.begin(), readers.end()), ", "));
  for (const Rule& rule : rules())
    if (std::ranges::count(split(rule.keys, ' '), key.name) > 0)
      row("rule", str(rule.reason, " (", rule.name, ")"));
  return out;
}

std::vector<std::string> near_keys(std::string_view name) {
  std::vector<std::string> near;
  const auto add = [&](const std::string& other) {
    if (!other.empty() && near.size() < kMostNear && std::ranges::find(near, other) == near.end())
      near.push_back(other);
  };
  add(nearest_key(name));
  if (name.size() < 3) return near;  // a part of too many
  for (const Key& key : keys()) {
    if (key.name.find(name) != key.name.npos) add(key.name);
    for (const std::string& alias : key.aliases)
      if (alias.find(name) != alias.npos) add(alias);
  }
  return near;
}

std::vector<const Key*> keys_of(Readers reader) {
  std::vector<const Key*> found;
  for (const Key& key : keys())
    if (key.readers & reader) found.push_back(&key);
  return found;
}

}  // namespace octavo::config
