#include "monitor/wandb_login.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/secrets.h"
#include "monitor/background.h"
#include "own_variables.h"
#include "scratch.h"

namespace octavo::monitor {
namespace {

const std::string kWandbKey = "0123456789abcdef0123456789abcdef01234567";

// Variables of this process, as they were when the test ends.
class WandbLogin : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("HOME", home_.path().c_str(), 1); }

  Scratch home_;
  OwnVariables variables_{"WANDB_API_KEY", "WANDB_BASE_URL", "WANDB_MODE", "NETRC", "HOME"};
};

TEST(WandbMode, HasWandbsSpellings) {
  EXPECT_EQ(wandb_mode_named(""), WandbMode::kOnline);
  EXPECT_EQ(wandb_mode_named("online"), WandbMode::kOnline);
  EXPECT_EQ(wandb_mode_named("run"), WandbMode::kOnline);
  EXPECT_EQ(wandb_mode_named("offline"), WandbMode::kOffline);
  EXPECT_EQ(wandb_mode_named("dryrun"), WandbMode::kOffline);
  EXPECT_EQ(wandb_mode_named("disabled"), WandbMode::kDisabled);
  EXPECT_EQ(wandb_mode_named("Offline"), std::nullopt);
  EXPECT_EQ(wandb_mode_named("off"), std::nullopt);
}

TEST(Netrc, FindsTheMachinesPassword) {
  // What `wandb login` writes, behind another machine and a comment with a key in it.
  const std::string text =
      "# machine api.wandb.ai password not-this\n"
      "machine github.com login me password ghp\n"
      "machine api.wandb.ai\n  login user\n  password " +
      kWandbKey + "\n";
  EXPECT_EQ(netrc_password(text, "api.wandb.ai"), kWandbKey);
  EXPECT_EQ(netrc_password(text, "github.com"), "ghp");
  EXPECT_EQ(netrc_password(text, "wandb.ai"), "");
}

TEST(Netrc, ReadsQuotesMacrosAndOddEndings) {
  EXPECT_EQ(netrc_password("machine 'a.b:80' password \"p q\"", "a.b:80"), "p q");
  EXPECT_EQ(netrc_password("machine a login password password p", "a"), "p");
  EXPECT_EQ(netrc_password("machine a password #p", "a"), "#p");
  EXPECT_EQ(netrc_password("macdef m\nmachine a password no\n\nmachine a password p", "a"), "p");
  EXPECT_EQ(netrc_password("default login x password d", "a"), "");
  EXPECT_EQ(netrc_password("machine a default password d", "a"), "");
  EXPECT_EQ(netrc_password("machine a login x\nmachine b password p", "a"), "");
  EXPECT_EQ(netrc_password("machine a password", "a"), "");
  EXPECT_EQ(netrc_password("machine", "a"), "");
  EXPECT_EQ(netrc_password("", "a"), "");
}

TEST(Netrc, MachineIsHostAndPort) {
  EXPECT_EQ(netrc_machine("https://api.wandb.ai"), "api.wandb.ai");
  EXPECT_EQ(netrc_machine("http://127.0.0.1:8080/path?x"), "127.0.0.1:8080");
  EXPECT_EQ(netrc_machine("wandb.example.org"), "wandb.example.org");
}

TEST_F(WandbLogin, KeyIsFoundWhereWandbFindsIt) {
  EXPECT_EQ(wandb_key_place(), "");
  const fs::path netrc = home_ / ".netrc";
  write_file_atomic(netrc, "machine api.wandb.ai\n  login user\n  password " + kWandbKey + "\n");
  EXPECT_EQ(wandb_key_place(), netrc.string());
  EXPECT_EQ(without_secrets("the key is " + kWandbKey).find(kWandbKey), std::string::npos);

  ::setenv("WANDB_BASE_URL", "https://wandb.example.org", 1);
  EXPECT_EQ(wandb_key_place(), "") << "another server's key";
  ::unsetenv("WANDB_BASE_URL");

  ::setenv("NETRC", (home_ / "other").c_str(), 1);
  EXPECT_EQ(wandb_key_place(), "");
  ::setenv("NETRC", "~/.netrc", 1);
  EXPECT_EQ(wandb_key_place(), netrc.string());

  ::setenv("WANDB_API_KEY", kWandbKey.c_str(), 1);
  EXPECT_EQ(wandb_key_place(), "WANDB_API_KEY");
}

TEST_F(WandbLogin, FilesThatAreNoNetrcHoldNoKey) {
  const fs::path netrc = home_ / ".netrc";
  fs::create_directory(netrc);
  EXPECT_EQ(wandb_key_place(), "");
  fs::remove(netrc);
  std::string large = "machine api.wandb.ai password " + kWandbKey + "\n";
  large.resize(2 << 20, ' ');
  write_file_atomic(netrc, large);
  EXPECT_EQ(wandb_key_place(), "") << "more than is read";
}

TEST_F(WandbLogin, DisabledLeavesNoFolder) {
  config::Settings settings;
  settings.run_name = "run";
  settings.use_wandb = true;
  StepRecord record;
  record.step = 1;
  for (const char* mode : {"disabled", "offline"}) {
    ::setenv("WANDB_MODE", mode, 1);
    const fs::path folder = home_ / mode;
    fs::create_directories(folder);
    auto sinks = open_background_sinks(settings, folder, 0, Peaks{});
    sinks->on_step(record);
    sinks->on_end(0);
    EXPECT_EQ(fs::exists(folder / "wandb"), std::string(mode) == "offline") << mode;
  }
}

}  // namespace
}  // namespace octavo::monitor
