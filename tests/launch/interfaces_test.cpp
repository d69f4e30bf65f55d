#include "launch/interfaces.h"

#include <gtest/gtest.h>

#include "expect_failure.h"

namespace octavo::launch {
namespace {

using Texts = std::vector<std::string>;

TEST(Interfaces, LoopbackIsThere) {
  EXPECT_EQ(interface_address("lo"), "127.0.0.1");
  expect_failure(ExitCode::kEnvironment,
                 "'eth99' is not there; there are: ", [] { interface_address("eth99"); });
}

TEST(Interfaces, NcclsForms) {
  EXPECT_EQ(nccl_interfaces("lo", "x"), Texts{"lo"});
  EXPECT_EQ(nccl_interfaces("l", "x").front(), "lo");
  EXPECT_EQ(nccl_interfaces("=lo", "x"), Texts{"lo"});
  EXPECT_EQ(nccl_interfaces("=eth99,lo", "x"), Texts{"lo"});
  for (const std::string& name : nccl_interfaces("^eth99", "x")) EXPECT_NE(name, "eth99");
  for (const char* none : {"=l", "eth99", "=eth99", ","})
    expect_failure(ExitCode::kEnvironment, "found none for", [&] { nccl_interfaces(none, "x"); });
  std::string all = "^";
  for (const Interface& each : interfaces()) all += (all.size() > 1 ? "," : "") + each.name;
  expect_failure(ExitCode::kEnvironment, "NCCL_SOCKET_IFNAME",
                 [&] { nccl_interfaces(all, "NCCL_SOCKET_IFNAME"); });
}

TEST(Interfaces, Chosen) {
  EXPECT_EQ(chosen_interface("", {}), "");
  EXPECT_EQ(chosen_interface("lo", {}), "lo");
  EXPECT_EQ(chosen_interface("", {{"GLOO_SOCKET_IFNAME", "lo"}}), "lo");
  EXPECT_EQ(chosen_interface("lo", {{"NCCL_SOCKET_IFNAME", "lo"}}), "lo");
  expect_failure(ExitCode::kEnvironment, "GLOO_SOCKET_IFNAME", [] {
    chosen_interface("lo", {{"GLOO_SOCKET_IFNAME", "lo,eth99"}});
  });
  expect_failure(ExitCode::kEnvironment, "NCCL_SOCKET_IFNAME", [] {
    chosen_interface("", {{"NCCL_SOCKET_IFNAME", "ib"}});
  });
  expect_failure(ExitCode::kEnvironment, "dist_interface", [] { chosen_interface("eth99", {}); });
}

}  // namespace
}  // namespace octavo::launch
