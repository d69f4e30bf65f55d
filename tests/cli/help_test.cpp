// --help fits a screen, and nothing that a verb reads is out of reach from there.

#include <algorithm>
#include <set>

#include "base/text.h"
#include "cli/program.h"
#include "config/key.h"

namespace octavo {
namespace {

constexpr size_t kLines = 40, kColumns = 100;

class Help : public Cli {
 protected:
  // Every verb, as octavo --help and octavo FAMILY --help have them.
  std::vector<std::string> all_verbs() {
    std::vector<std::string> found;
    const std::string text = run("--help").out;
    const size_t begin = text.find("verbs:\n");
    for (const std::string& name : names_in(text.substr(begin, text.find("\n\n", begin) - begin))) {
      const std::string help = run(name + " --help").out;
      if (!help.starts_with("verbs:\n")) {
        found.push_back(name);
        continue;
      }
      for (const std::string& line : split(help, '\n'))
        if (line.starts_with("  ")) {
          const std::vector<std::string> words = split(line.substr(2), ' ');
          found.push_back(words[0] + " " + words[1]);
        }
    }
    return found;
  }

  // "  name  …" of each line.
  static std::vector<std::string> names_in(const std::string& table) {
    std::vector<std::string> names;
    for (const std::string& line : split(table, '\n'))
      if (line.starts_with("  ")) names.push_back(split(line.substr(2), ' ').front());
    return names;
  }

  // "  --name …" and "  --[no_]name …"
  static std::set<std::string> keys_in(const std::string& help) {
    std::set<std::string> names;
    for (const std::string& line : split(help, '\n')) {
      if (!line.starts_with("  --")) continue;
      const std::string name = split(line.substr(4), ' ').front();
      names.insert(name.starts_with("[no_]") ? name.substr(5) : name);
    }
    return names;
  }

  void expect_screen(const std::string& words) {
    const Outcome outcome = run(words);
    EXPECT_EQ(outcome.code, 0) << words << outcome.err;
    EXPECT_LE(std::ranges::count(outcome.out, '\n'), static_cast<int64_t>(kLines)) << outcome.out;
    for (const std::string& line : split(outcome.out, '\n')) {
      const auto letters = std::ranges::count_if(
          line, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
      EXPECT_LE(letters, static_cast<int64_t>(kColumns)) << words << ": " << line;
    }
  }
};

TEST_F(Help, OfEveryVerbFitsAScreen) {
  expect_screen("--help");
  const std::vector<std::string> verbs = all_verbs();
  EXPECT_GE(verbs.size(), 26u);
  for (const char* verb : {"train", "data prepare", "sweep schema", "config docs", "examples"})
    EXPECT_EQ(std::ranges::count(verbs, verb), 1) << verb;
  for (const std::string& verb : verbs) {
    expect_screen(verb + " --help");
    EXPECT_TRUE(run(verb + " -h").out.starts_with("usage: octavo " + verb + " ")) << verb;
  }
}

// About a dozen with a sentence, and the names of the rest.
TEST_F(Help, NamesEveryKeyThatTheVerbReads) {
  for (const std::string& verb : all_verbs()) {
    const std::string shown = run(verb + " --help").out;
    const std::set<std::string> explained = keys_in(shown),
                                all = keys_in(run(verb + " --help_all").out);
    EXPECT_TRUE(std::ranges::includes(all, explained)) << verb;
    if (all.size() > explained.size())
      EXPECT_TRUE(explained.size() >= 8 && explained.size() <= 16) << verb << explained.size();
    if (shown.find("--help SECTION") != shown.npos) continue;  // too many: OfASection
    std::string words = shown;
    std::ranges::replace(words, '\n', ' ');
    const std::vector<std::string> named = split(words, ' ');
    for (const std::string& key : all)
      EXPECT_TRUE(explained.contains(key) || std::ranges::count(named, key) > 0)
          << "octavo " << verb << " --help does not name " << key;
  }
}

TEST_F(Help, AllHasEveryKeyOfTheTable) {
  std::set<std::string> train, all;
  for (const config::Key& key : config::keys()) {
    all.insert(key.name);
    if (key.readers & config::reader::kTrain) train.insert(key.name);
  }
  EXPECT_EQ(keys_in(run("train --help_all").out), train);
  EXPECT_EQ(keys_in(run("train --help-all c.yaml").out), train);
  EXPECT_EQ(keys_in(run("config show --help_all").out), all);
}

TEST_F(Help, EveryKeyIsExplained) {
  for (const config::Key& key : config::keys()) {
    const Outcome outcome = run("--help " + key.name);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_TRUE(outcome.out.starts_with("--")) << outcome.out;
    std::string text = outcome.out;
    std::ranges::replace(text, '\n', ' ');
    while (text.find("  ") != text.npos) text.replace(text.find("  "), 2, " ");
    for (const std::string& part :
         {key.help, " values " + key.wanted, std::string(" default "), " YAML " + key.name + ": ",
          " read by " + std::string(config::reader_names(key.readers).front())})
      EXPECT_NE(text.find(part), text.npos) << key.name << " lacks: " << part;
    for (const std::string& alias : key.aliases)
      EXPECT_EQ(run("--help " + alias).out, outcome.out) << alias;
  }
}

TEST_F(Help, OfAKeyThroughItsVerb) {
  const std::string text = run("--help learning_rate").out;
  for (const char* words :
       {"train --help learning_rate", "train --help=learning_rate", "train --help --learning-rate",
        "train c.yaml --batch_size 3 --help learning_rate", "schedule -h max_lr",
        "--help=learning_rate", "help learning_rate"})
    EXPECT_EQ(run(words).out, text) << words;
  EXPECT_EQ(run("train --help no_shuffle").out, run("--help shuffle").out);
  const Outcome other = run("train --help prompt");
  EXPECT_EQ(other.code, 0);
  EXPECT_NE(other.out.find("\ntrain does not read it.\n"), std::string::npos) << other.out;
  // Rules that a key is part of.
  EXPECT_NE(run("--help warmup_steps").out.find("(warmup_fits)"), std::string::npos);
}

TEST_F(Help, OfASection) {
  const std::string text = run("train --help lora").out;
  EXPECT_TRUE(text.starts_with("lora: ")) << text;
  EXPECT_EQ(keys_in(text), (std::set<std::string>{"lora_rank", "lora_alpha", "lora_dropout",
                                                  "lora_target_modules", "lora_base"}));
  for (const config::SectionInfo& section : config::sections())
    EXPECT_EQ(config::find_key(section.name), nullptr) << section.name;
  const std::string show = run("config show --help").out;
  for (const config::SectionInfo& section : config::sections())
    EXPECT_NE(show.find(std::string(section.name)), show.npos) << section.name;
}

TEST_F(Help, UnknownKeysNameTheNearest) {
  expect_refused("train --help batchsize", 2, "unknown key 'batchsize'; did you mean batch_size");
  expect_refused("train --help amax", 2, "fp8_amax_history");
  expect_refused("--help amax", 2, "fp8_amax_history");
  EXPECT_EQ(run("train --help --hf_token=hf_secret").err.find("hf_secret"), std::string::npos);
  expect_refused("train --help qqqqqqqqqqqq", 2, "see octavo train --help_all");
  expect_refused("--help qqqqqqqqqqqq", 2, "see octavo --help");
}

TEST_F(Help, OfVerbsAndCommandsBehindDashes) {
  const std::string train = run("train --help").out;
  EXPECT_EQ(run("--help train").out, train);
  EXPECT_EQ(run("help train").out, train);
  EXPECT_EQ(run("train --help config.yaml").out, train);  // a file is no key
  EXPECT_EQ(run("launch --nproc 2 -- train --help").out, train);
  EXPECT_EQ(run("launch --help").out, run("launch --help -- train").out);
  EXPECT_EQ(run("--help data prepare").out, run("data prepare --help").out);
  EXPECT_NE(run("data --help").out.find("data inspect"), std::string::npos);
}

}  // namespace
}  // namespace octavo
