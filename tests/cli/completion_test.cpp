// What a TAB offers: asks the program as the shells' functions do, and bash itself.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/text.h"

namespace octavo {
namespace {

class Completion : public testing::Test {
 protected:
  Completion()
      : folder_(fs::path(testing::TempDir()) / ("octavo_tab_" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~Completion() override { fs::remove_all(folder_); }

  std::string shell(const std::string& command) const {
    const std::string whole =
        "cd '" + folder_.string() + "' && { " + command + "\n} >out 2>err </dev/null";
    EXPECT_EQ(std::system(whole.c_str()), 0) << command << read_file(folder_ / "err", 1 << 20);
    return read_file(folder_ / "out", 1 << 20);
  }

  // The words that may stand for the last of `typed`.
  std::vector<std::string> words(const std::vector<std::string>& typed) const {
    write_file_atomic(folder_ / "typed", join(typed, "\n") + "\n");
    std::vector<std::string> found;
    for (const std::string& line :
         split(shell("'" OCTAVO_PROGRAM "' completion words <typed"), '\n'))
      if (!line.empty()) found.push_back(line.substr(0, line.find('\t')));
    return found;
  }

  using Words = std::vector<std::string>;
  fs::path folder_;
};

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::count(words.begin(), words.end(), word) == 1;
}

TEST_F(Completion, Verbs) {
  const Words all = words({""});
  for (const char* verb : {"train", "data", "config", "completion", "--help"})
    EXPECT_TRUE(has(all, verb)) << verb;
  EXPECT_EQ(words({"trai"}), Words{"train"});
  EXPECT_EQ(words({"config", "s"}), (Words{"show", "schema"}));
  EXPECT_EQ(words({"checkpoints", "v"}), Words{"verify"});
  EXPECT_EQ(words({"completion", ""}), (Words{"bash", "zsh", "fish"}));
  EXPECT_EQ(words({"examples", "gpt2"}), Words{"gpt2_fp8"});
  EXPECT_EQ(words({"nonsense", ""}), Words{});
}

TEST_F(Completion, KeysOfTheVerb) {
  const Words train = words({"train", "c.yaml", "--"});
  EXPECT_TRUE(has(train, "--batch_size") && has(train, "--help"));
  EXPECT_FALSE(has(train, "--prompt"));
  EXPECT_TRUE(has(words({"generate", "--"}), "--prompt"));
  EXPECT_EQ(words({"train", "--gradient_ac"}), Words{"--gradient_accumulation_steps"});
  EXPECT_EQ(words({"train", "--no_shu"}), Words{"--no_shuffle"});
  EXPECT_EQ(words({"train", "--max_lr"}), Words{"--max_lr"});  // an alias
  EXPECT_EQ(words({"verify", "--fo"}), Words{"--for"});
  EXPECT_EQ(words({"verify", "--for", "t"}), (Words{"te", "torchao"}));
  EXPECT_EQ(words({"compare", "--loss"}), Words{"--loss_name"});
  EXPECT_EQ(words({"audit", "--comp"}), Words{"--compare"});
  EXPECT_EQ(words({"train", "--hel"}), (Words{"--help", "--help_all"}));
  EXPECT_EQ(words({"train", "--help", "gradient_ac"}), Words{"gradient_accumulation_steps"});
  EXPECT_EQ(words({"launch", "--nproc", "2", "--", "train", "--gradient_ac"}),
            Words{"--gradient_accumulation_steps"});
}

TEST_F(Completion, ValuesOfEnumerations) {
  const Words formats = {"auto", "hybrid", "e4m3", "e5m2"};
  EXPECT_EQ(words({"train", "--fp8_format", ""}), formats);
  EXPECT_EQ(words({"train", "--fp8_format", "hy"}), Words{"hybrid"});
  EXPECT_EQ(words({"train", "--fp8_format=hy"}), Words{"--fp8_format=hybrid"});
  EXPECT_EQ(words({"train", "--fp8_format", "="}), formats);  // as bash cuts --fp8_format=
  EXPECT_EQ(words({"train", "--fp8_format", "=", "hy"}), Words{"hybrid"});
  EXPECT_EQ(words({"plan", "--gpu", "h200"}), (Words{"h200", "h200_nvl"}));
  EXPECT_EQ(words({"train", "--model_name", "smollm2-1"}), (Words{"smollm2-135m", "smollm2-1.7b"}));
  EXPECT_EQ(words({"train", "--dataset", "fine"}), (Words{"fineweb-edu", "fineweb"}));
  // Files and numbers are left to the shell.
  EXPECT_EQ(words({"train", "--dataset", ""}), Words{});
  EXPECT_EQ(words({"train", ""}), Words{});
}

TEST_F(Completion, StrangeInputIsNoError) {
  EXPECT_EQ(words({"train", "--nonsense=", ""}), Words{});
  EXPECT_EQ(words({"=", "=", "="}), Words{});
  EXPECT_EQ(words({"train", std::string(100'000, '-')}), Words{});
  EXPECT_FALSE(words({"launch", "--", ""}).empty());
}

TEST_F(Completion, BashTakesIt) {
  const std::string path = fs::path(OCTAVO_PROGRAM).parent_path().string();
  const std::string script =
      "PATH='" + path +
      "':$PATH bash -c 'source <(octavo completion bash); complete -p octavo; "
      "COMP_WORDS=(octavo train --gradient_ac) COMP_CWORD=2; _octavo; echo \"${COMPREPLY[@]}\"'";
  EXPECT_EQ(shell(script),
            "complete -o default -F _octavo octavo\n--gradient_accumulation_steps\n");
}

TEST_F(Completion, UnknownShellIsRefused) {
  const std::string out = shell("! '" OCTAVO_PROGRAM "' completion tcsh 2>&1");
  EXPECT_NE(out.find("wanted bash, zsh or fish, found 'tcsh'"), std::string::npos) << out;
}

}  // namespace
}  // namespace octavo
