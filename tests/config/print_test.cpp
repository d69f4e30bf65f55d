#include "config/print.h"

#include <nlohmann/json.hpp>
#include <random>

#include "base/file.h"
#include "config/expect_refused.h"
#include "config/key_makers.h"

namespace octavo::config {
namespace {

TEST(Print, YamlOfTheDefaultsReadsBack) {
  const Parsed parsed = parse_text(to_yaml(Settings{}), "t");
  EXPECT_EQ(parsed.settings, Settings{});
  EXPECT_EQ(parsed.origins.size(), keys().size());
}

std::string utf8(char32_t c) {
  std::string out;
  if (c < 0x80) return {static_cast<char>(c)};
  const int extra = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  constexpr unsigned kLead[] = {0, 0xc0, 0xe0, 0xf0};
  out += static_cast<char>(kLead[extra] | (c >> (6 * extra)));
  for (int i = extra - 1; i >= 0; --i) out += static_cast<char>(0x80 | ((c >> (6 * i)) & 0x3f));
  return out;
}

TEST(Print, EveryCharacterReadsBack) {
  Settings settings;
  for (char32_t c = 1; c < 0x110000; c += c < 0x3000 ? 1 : 257) {
    if (c >= 0xd800 && c < 0xe000) continue;
    settings.prompt += utf8(c);
  }
  ASSERT_TRUE(is_text(settings.prompt));
  settings.dataset = {"a, b", "[c]", "'", "\"", "#", "- x", "~", " space ", "\t"};
  EXPECT_EQ(parse_text(to_yaml(settings), "t").settings, settings);
}

TEST(Print, RandomSettingsReadBack) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 300; ++round) {
    Settings settings;
    for (const Key& key : keys()) {
      std::string value;
      if (key.type == Type::kInt)
        value = print_number(static_cast<int64_t>(random() >> (random() % 64)));
      if (key.type == Type::kReal)
        value = print_number(
            std::ldexp(static_cast<double>(random()), -static_cast<int>(random() % 90)));
      if (key.type == Type::kBool) value = random() % 2 ? "true" : "false";
      if (key.type == Type::kEnum) value = key.choices[random() % key.choices.size()];
      if (key.type == Type::kText || key.type == Type::kList)
        for (size_t i = random() % 6; i > 0; --i) value += utf8(1 + random() % 300);
      key.store(settings, std::vector{value});  // values outside the range leave the default
    }
    // No verb reads it all, so no rule refuses it.
    EXPECT_EQ(parse_text(to_yaml(settings), "t", {"none", 0}).settings, settings);
  }
}

TEST(Print, ShowNamesOrigins) {
  const std::string text = show(parse(Words{"--batch_size", "3"}));
  EXPECT_NE(text.find("batch_size:"), text.npos);
  for (const std::string& line :
       {std::string("# flag"), std::string("# default"), std::string("# model\n")})
    EXPECT_NE(text.find(line), text.npos) << line;
  // What is shown is YAML too.
  EXPECT_EQ(parse_text(text, "t").settings.batch_size, 3);
}

TEST(Print, SchemaDescribesEveryKey) {
  const nlohmann::json schema = nlohmann::json::parse(json_schema());
  EXPECT_EQ(schema["additionalProperties"], false);
  const Settings defaults;
  for (const Key& key : keys()) {
    ASSERT_TRUE(schema["properties"].contains(key.name)) << key.name;
    const nlohmann::json& entry = schema["properties"][key.name];
    EXPECT_EQ(entry["description"], key.help);
    for (const std::string& alias : key.aliases)
      EXPECT_TRUE(schema["properties"].contains(alias)) << alias;
  }
  EXPECT_EQ(schema["properties"]["batch_size"]["type"], "integer");
  EXPECT_EQ(schema["properties"]["batch_size"]["default"], defaults.batch_size);
  EXPECT_EQ(schema["properties"]["batch_size"]["minimum"], 1);
  EXPECT_EQ(schema["properties"]["learning_rate"]["default"], defaults.learning_rate);
  EXPECT_EQ(schema["properties"]["mixed_precision"]["enum"],
            nlohmann::json({"fp8", "bf16", "fp32"}));
  EXPECT_EQ(schema["properties"]["shuffle"]["default"], true);
}

TEST(Print, DocsAreNotStale) {
  const std::string docs =
      read_file(fs::path(OCTAVO_SOURCE_DIR) / "docs/reference/configuration.md", 1 << 20);
  EXPECT_EQ(docs, markdown_docs())
      << "run: build/release/bin/octavo config docs --output docs/reference/configuration.md";
}

}  // namespace
}  // namespace octavo::config
