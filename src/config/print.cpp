#include "config/print.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "config/rules.h"

namespace octavo::config {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kColumns = 100;

// `text` broken at spaces; every line after the first starts with `indent` spaces.
std::string wrapped(std::string_view text, size_t indent) {
  std::string out;
  size_t column = indent;
  for (const std::string& word : split(text, ' ')) {
    if (column > indent && column + 1 + word.size() > kColumns) {
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

std::string padded(std::string text, size_t width) {
  text.resize(std::max(width, text.size()), ' ');
  return text;
}

std::string range_text(const Key& key) {
  return key.minimum.empty() ? key.type_name()
                             : key.type_name() + " " + key.minimum + "…" + key.maximum;
}

// "  --max_steps <integer>", "  --[no_]shuffle"
std::string flag_text(const Key& key) {
  if (key.type == Type::kBool) return "  --[no_]" + key.name;
  return "  --" + key.name + " <" + (key.type == Type::kEnum ? "word" : key.type_name()) + ">";
}

std::string about_text(const Key& key) {
  std::string about = key.help;
  if (key.type == Type::kEnum) about += " One of " + join(key.choices, ", ") + ".";
  if (!key.aliases.empty()) about += " Also --" + join(key.aliases, ", --") + ".";
  const std::string value = key.text(Settings{});
  const bool empty = value == "\"\"" || value == "[]";
  return empty ? about : about + " [" + value + "]";
}

// Characters that a table cell of Markdown would take as its own.
std::string cell(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '|')
      out += "\\|";
    else
      out += c;
  }
  return out;
}

std::string joined_names(const std::vector<std::string_view>& names) {
  const std::vector<std::string> texts(names.begin(), names.end());
  return join(texts, ", ");
}

Json schema_type(const Key& key) {
  switch (key.type) {
    case Type::kInt:
      return {{"type", "integer"}};
    case Type::kReal:
      return {{"type", "number"}};
    case Type::kBool:
      return {{"type", "boolean"}};
    case Type::kText:
      return {{"type", "string"}};
    case Type::kList:
      return {{"type", Json::array({"array", "string"})},
              {"items", {{"type", "string"}, {"minLength", 1}}}};
    case Type::kEnum:
      break;
  }
  return {{"type", "string"}, {"enum", key.choices}};
}

Json key_schema(const Key& key) {
  const Settings defaults;
  Json schema = schema_type(key);
  if (!key.minimum.empty()) {
    schema["minimum"] = Json::parse(key.minimum);
    schema["maximum"] = Json::parse(key.maximum);
  }
  const bool quoted = key.type != Type::kEnum;
  schema["default"] = quoted ? Json::parse(key.text(defaults)) : Json(key.text(defaults));
  schema["description"] = key.help;
  return schema;
}

}  // namespace

std::string to_yaml(const Settings& settings) {
  std::string out;
  for (const SectionInfo& section : sections()) {
    out += str(out.empty() ? "" : "\n", "# ", section.name, "\n");
    for (const Key& key : keys())
      if (key.section == section.section) out += str(key.name, ": ", key.text(settings), "\n");
  }
  return out;
}

std::string help_text(Readers reader) {
  constexpr size_t kIndent = 38;
  std::string out;
  for (const SectionInfo& section : sections()) {
    std::string lines;
    for (const Key& key : keys()) {
      if (key.section != section.section || !(key.readers & reader)) continue;
      const std::string flag = flag_text(key);
      const bool fits = flag.size() < kIndent;
      lines += fits ? padded(flag, kIndent) : flag + "\n" + std::string(kIndent, ' ');
      lines += wrapped(about_text(key), kIndent) + "\n";
    }
    if (!lines.empty())
      out += str(out.empty() ? "" : "\n", section.name, ": ", section.about, "\n", lines);
  }
  return out;
}

std::string show(const Parsed& parsed) {
  size_t name_width = 0, value_width = 0;
  for (const Key& key : keys()) {
    name_width = std::max(name_width, key.name.size());
    value_width = std::max(value_width, std::min<size_t>(40, key.text(parsed.settings).size()));
  }
  std::string out;
  for (const SectionInfo& section : sections()) {
    out += str("# ", section.name, "\n");
    for (const Key& key : keys()) {
      if (key.section != section.section) continue;
      out += str(padded(key.name + ":", name_width + 2),
                 padded(key.text(parsed.settings), value_width), "  # ", parsed.source_of(key.name),
                 "\n");
    }
  }
  return out;
}

std::string json_schema() {
  Json properties = Json::object();
  for (const Key& key : keys()) {
    properties[key.name] = key_schema(key);
    for (const std::string& alias : key.aliases) {
      properties[alias] = key_schema(key);
      properties[alias]["description"] = "The same key as " + key.name + ".";
    }
  }
  const Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                       {"title", "octavo configuration"},
                       {"type", "object"},
                       {"additionalProperties", false},
                       {"properties", properties}};
  return schema.dump(2) + "\n";
}

std::string markdown_docs() {
  const Settings defaults;
  std::string out =
      "# Configuration\n\n"
      "Generated by `octavo config docs --output docs/reference/configuration.md` from the table "
      "in "
      "`src/config/key_table.cpp`; a test fails when it is stale.\n\n"
      "`octavo VERB [CONFIG.yaml] [--key value]…`: the keys are the same in the YAML file and as "
      "flags, and a flag beats the file, also where the file says it by another key. `--key=value` "
      "works too; a true/false key is set by "
      "`--key` "
      "and cleared by `--no_key`. The file is flat (`key: value` lines, at most 1 MiB, no anchors, "
      "aliases or tags) and may hold keys of every verb; a flag that the verb does not read is "
      "refused. `octavo config show` prints every value and where it came from, `octavo config "
      "check` looks for mistakes, and `octavo config schema` prints a JSON schema for editors.\n";
  for (const SectionInfo& section : sections()) {
    out += str("\n## ", section.name, "\n\n", section.about,
               "\n\n| key | values | default | meaning | read by |\n", "|---|---|---|---|---|\n");
    for (const Key& key : keys()) {
      if (key.section != section.section) continue;
      const std::string also =
          key.aliases.empty() ? "" : " (also `" + join(key.aliases, "`, `") + "`)";
      out +=
          str("| `", key.name, "`", also, " | ", cell(range_text(key)), " | `", key.text(defaults),
              "` | ", cell(key.help), " | ", joined_names(reader_names(key.readers)), " |\n");
    }
  }
  out += "\n## Contradictions\n\nRefused, with exit code 2:\n\n";
  for (const Rule& rule : rules()) out += str("- `", rule.name, "`: ", rule.reason, ".\n");
  return out;
}

}  // namespace octavo::config
