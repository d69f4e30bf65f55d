// The broken configurations of the guides: each is refused or repaired, with the reason.

#include <fstream>
#include <random>
#include <set>

#include "base/file.h"
#include "base/text.h"
#include "config/expect_refused.h"
#include "migrate/import.h"
#include "scratch.h"

namespace octavo::migrate {
namespace {

struct Expected {
  std::vector<std::string> files;
  std::string verdict, id, reason;
};

const fs::path& broken_folder() {
  static const fs::path folder = fs::path(OCTAVO_SOURCE_DIR) / "tests/migrate/broken_configs";
  return folder;
}

std::vector<Expected> expectations() {
  std::vector<Expected> all;
  for (const std::string& line : split(read_file(broken_folder() / "EXPECTED", 1 << 16), '\n')) {
    if (line.empty() || line.starts_with('#')) continue;
    const std::vector<std::string> cells = split(line, '|');
    EXPECT_EQ(cells.size(), 4u) << line;
    all.push_back({split(trim(cells.at(0)), ' '), std::string(trim(cells.at(1))),
                   std::string(trim(cells.at(2))), std::string(trim(cells.at(3)))});
  }
  return all;
}

void expect_finding(const Import& import, const Expected& expected) {
  const bool refused = expected.verdict == "refused";
  const auto verdict = refused ? Finding::Verdict::kRefused : Finding::Verdict::kRepaired;
  for (const Finding& found : import.findings) {
    if (found.id != expected.id) continue;
    EXPECT_EQ(found.verdict, verdict) << expected.id;
    EXPECT_FALSE(found.cost.empty() || found.done.empty()) << expected.id;
    EXPECT_NE((found.problem + found.cost + found.done).find(expected.reason), std::string::npos)
        << expected.id << ": " << found.problem << "; " << found.cost;
    return;
  }
  ADD_FAILURE() << "no finding " << expected.id << " in\n" << import_text(import);
}

TEST(BrokenConfigs, EachIsRefusedOrRepairedWithTheReason) {
  size_t refused = 0, repaired = 0;
  for (const Expected& expected : expectations()) {
    SCOPED_TRACE(expected.files.front());
    std::vector<std::string> paths;
    for (const std::string& file : expected.files)
      paths.push_back((broken_folder() / file).string());
    if (expected.verdict == "error") {
      config::expect_refused([&] { import_files(paths); }, {expected.reason});
      ++refused;
      continue;
    }
    const Import import = import_files(paths);
    expect_finding(import, expected);
    EXPECT_EQ(import.is_refused(), expected.verdict == "refused");
    if (import.is_refused()) {
      ++refused;
    } else {
      ++repaired;
      // As octavo config check would.
      EXPECT_EQ(config::parse_text(import_yaml(import), "imported.yaml").settings, import.settings);
    }
  }
  EXPECT_GE(refused + repaired, 10u);
}

// Mutated files: an Error, or a YAML that reads back; nothing else.
TEST(BrokenConfigs, Fuzz) {
  const Scratch scratch;
  std::mt19937 random(11);
  const std::string bytes = "ab019.:-[]{},&*!'\"# \n\\~\x01\x80\xc3\xa9";
  const std::string words[] = {"auto", "true", "null", "-1", "1e999", "fp8", "lora", "nan", "0"};
  size_t read_back = 0;
  for (int round = 0; round < 100; ++round)
    for (const char* name : {"lf_backend_auto.yaml", "ds_stage3_cpu_offload.json",
                             "warmup_longer_than_the_run.yaml", "lf_missing_variables.sh"}) {
      std::string text = read_file(broken_folder() / name, 1 << 16);
      for (size_t i = 1 + random() % 4; i > 0; --i) {
        const size_t at = random() % text.size();
        if (random() % 2)
          text[at] = bytes[random() % bytes.size()];
        else
          text.insert(at, words[random() % std::size(words)]);
      }
      const fs::path path = scratch / name;
      std::ofstream(path, std::ios::binary) << text;
      try {
        const Import import = import_files(std::vector{path.string()});
        EXPECT_FALSE(import_text(import).empty() || import_json(import).empty());
        if (import.is_refused()) continue;
        EXPECT_EQ(config::parse_text(import_yaml(import), "imported.yaml").settings,
                  import.settings)
            << text;
        ++read_back;
      } catch (const Error& error) {
        ASSERT_EQ(error.code(), ExitCode::kUsage) << error.what() << text;
      }
    }
  EXPECT_GT(read_back, 40u);
}

TEST(BrokenConfigs, EveryFileIsExpected) {
  std::set<std::string> named{"EXPECTED"};
  for (const Expected& expected : expectations())
    named.insert(expected.files.begin(), expected.files.end());
  for (const fs::directory_entry& entry : fs::directory_iterator(broken_folder()))
    EXPECT_TRUE(named.contains(entry.path().filename().string())) << entry.path();
}

}  // namespace
}  // namespace octavo::migrate
