#include "launch/node_secret.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "expect_failure.h"
#include "own_variables.h"
#include "rendezvous/auth.h"
#include "scratch.h"

namespace octavo::launch {
namespace {

using std::chrono::milliseconds;

// A home of its own, and the variables as they were when the test ends.
class NodeSecret : public ::testing::Test {
 protected:
  void SetUp() override { ::setenv("HOME", home_.path().c_str(), 1); }
  fs::path file() const { return home_ / ".octavo-rendezvous-secret"; }

  Scratch home_;
  OwnVariables variables_{"HOME", "OCTAVO_RENDEZVOUS_SECRET", "OCTAVO_RENDEZVOUS_SECRET_FILE"};
};

bool go_on() {
  return false;
}

TEST_F(NodeSecret, NodeZeroMakesItOnceForItsOwnerAlone) {
  have_node_secret(0, milliseconds(0), go_on);
  const std::string secret = rendezvous::secret_from_environment();
  EXPECT_GE(secret.size(), 32u);
  EXPECT_EQ(fs::status(file()).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_FALSE(make_secret_file(file())) << "the next run has the same";
  ::unsetenv("OCTAVO_RENDEZVOUS_SECRET_FILE");
  have_node_secret(0, milliseconds(0), go_on);
  EXPECT_EQ(rendezvous::secret_from_environment(), secret);
  size_t files = 0;
  for (const auto& entry : fs::directory_iterator(home_.path())) files += entry.exists() ? 1 : 0;
  EXPECT_EQ(files, 1u);
}

TEST_F(NodeSecret, OtherNodesWaitForItAndMakeNone) {
  expect_failure(ExitCode::kUsage, "copy that file from node 0",
                 [] { have_node_secret(1, milliseconds(10), go_on); });
  EXPECT_FALSE(fs::exists(file()));
  expect_failure(ExitCode::kStopped, "asked to stop",
                 [] { have_node_secret(1, milliseconds(60'000), [] { return true; }); });
  std::thread node_zero([&] {
    std::this_thread::sleep_for(milliseconds(100));
    make_secret_file(file());
  });
  have_node_secret(1, milliseconds(30'000), go_on);
  node_zero.join();
  EXPECT_GE(rendezvous::secret_from_environment().size(), rendezvous::kMinSecretBytes);
}

TEST_F(NodeSecret, WhatTheEnvironmentSaysIsKept) {
  ::setenv("OCTAVO_RENDEZVOUS_SECRET", "sixteen bytes or more", 1);
  have_node_secret(0, milliseconds(0), go_on);
  EXPECT_FALSE(fs::exists(file()));
  EXPECT_EQ(::getenv("OCTAVO_RENDEZVOUS_SECRET_FILE"), nullptr);
}

TEST_F(NodeSecret, AFileThatOthersReadIsRefused) {
  write_file_atomic(file(), "0123456789abcdef0123456789abcdef\n");
  fs::permissions(file(), fs::perms::owner_read | fs::perms::others_read);
  expect_failure(ExitCode::kUsage, "chmod 600",
                 [] { have_node_secret(1, milliseconds(0), go_on); });
}

}  // namespace
}  // namespace octavo::launch
