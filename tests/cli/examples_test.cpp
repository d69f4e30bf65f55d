// octavo examples, and the schemas that the files of configs/ name in their first line.

#include <algorithm>
#include <map>

#include "base/text.h"
#include "cli/program.h"

namespace octavo {
namespace {

constexpr std::string_view kModeline = "# yaml-language-server: $schema=";

class Examples : public Cli {
 protected:
  static std::map<std::string, std::string> files() {
    std::map<std::string, std::string> found;
    for (const auto& entry : fs::directory_iterator(fs::path(OCTAVO_SOURCE_DIR) / "configs"))
      if (entry.path().extension() == ".yaml")
        found[entry.path().stem()] = read_file(entry.path(), 1 << 20);
    return found;
  }

  static std::vector<std::string> without_comments(const std::string& yaml) {
    std::vector<std::string> lines = split(yaml, '\n');
    std::erase_if(lines, [](const std::string& line) { return line.starts_with("#"); });
    return lines;
  }
};

TEST_F(Examples, AreListedWithALineEach) {
  const std::vector<std::string> lines = split(run("examples").out, '\n');
  const auto all = files();
  EXPECT_GE(all.size(), 18u);
  for (const auto& [name, text] : all) {
    const std::string start = "  " + name + " ";
    const auto line = std::ranges::find_if(
        lines, [&](const std::string& each) { return each.starts_with(start); });
    ASSERT_NE(line, lines.end()) << name;
    EXPECT_LE(line->size(), 100u) << *line;
    // What follows the schema in the file.
    const std::string about = split(text, '\n').at(1).substr(2);
    EXPECT_GE(about.size(), 20u) << name;
    EXPECT_TRUE(line->ends_with("  " + about)) << *line;
  }
}

TEST_F(Examples, PassTheCheckOutsideOfTheRepository) {
  for (const auto& [name, text] : files()) {
    const std::string own = name + ".yaml";
    const std::string printed = run("examples " + name).out;
    write_file_atomic(folder_ / own, printed);
    EXPECT_EQ(without_comments(printed), without_comments(text)) << name;
    EXPECT_EQ(printed.find("configs/", printed.find('\n')), printed.npos) << printed;
    const bool is_sweep = name.starts_with("sweep_");
    const Outcome outcome = run(is_sweep ? "sweep create " + own : "config check " + own);
    EXPECT_EQ(outcome.code, 0) << name << outcome.err;
  }
}

TEST_F(Examples, NameASchemaThatIsThere) {
  for (const auto& [name, text] : files()) {
    const bool is_sweep = name.starts_with("sweep_");
    const std::string schema = is_sweep ? "sweep.schema.json" : "octavo.schema.json";
    EXPECT_EQ(split(text, '\n').front(), std::string(kModeline) + schema) << name;
    const std::string line = split(run("examples " + name).out, '\n').front();
    ASSERT_TRUE(line.starts_with(kModeline)) << line;
    const fs::path path = line.substr(kModeline.size());
    EXPECT_TRUE(path.is_absolute()) << path;
    EXPECT_EQ(read_file(path, 1 << 20), run(is_sweep ? "sweep schema" : "config schema").out);
  }
}

TEST_F(Examples, ShippedSchemasAreNotStale) {
  const fs::path configs = fs::path(OCTAVO_SOURCE_DIR) / "configs";
  EXPECT_EQ(read_file(configs / "octavo.schema.json", 1 << 20), run("config schema").out)
      << "run: build/release/bin/octavo config schema --output configs/octavo.schema.json";
  EXPECT_EQ(read_file(configs / "sweep.schema.json", 1 << 20), run("sweep schema").out)
      << "run: build/release/bin/octavo sweep schema --output configs/sweep.schema.json";
}

// The program alone, without the files beside it: the example says how to get a schema.
TEST_F(Examples, WithoutAnInstalledSchemaSayHowToGetOne) {
  fs::create_directories(folder_ / "bin");
  fs::create_directories(folder_ / "lib");
  fs::copy_file(OCTAVO_PROGRAM, folder_ / "bin/octavo");
  fs::create_symlink(OCTAVO_LIGHT, folder_ / "lib/liboctavo_light.so");
  const std::string program = (folder_ / "bin/octavo").string();
  const Outcome outcome = run("examples gpt2_fp8.yaml", program);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with(
      "# for editors: octavo config schema --output octavo.schema.json, and in place of this "
      "line: yaml-language-server: $schema=octavo.schema.json\n"))
      << outcome.out;
  EXPECT_NE(run("examples sweep_lambda", program).out.find("octavo sweep schema"),
            std::string::npos);
  // Installed: share/ beside bin/.
  fs::create_directories(folder_ / "share/configs");
  write_file_atomic(folder_ / "share/configs/octavo.schema.json", "{}");
  const fs::path schema = fs::canonical(folder_) / "share/configs/octavo.schema.json";
  EXPECT_TRUE(run("examples gpt2_fp8", program)
                  .out.starts_with(std::string(kModeline) + schema.string() + "\n"));
}

TEST_F(Examples, UnknownNamesAreRefused) {
  expect_refused("examples gpt2_fp9", 2, "did you mean gpt2_fp8?");
  expect_refused("examples qqqqqqqqqqqqqqqqqqqq", 2, "octavo examples lists them");
  expect_refused("examples gpt2_fp8 quickstart", 2, "found 'quickstart'");
}

}  // namespace
}  // namespace octavo
