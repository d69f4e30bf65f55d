#include "verify/machine.h"

namespace octavo::verify {
namespace {

void expect_interface(const std::string& name, const std::string& value, Status status,
                      const std::string& found, const std::string& fix,
                      bool several_nodes = false) {
  Facts f = healthy();
  f.environment[name] = value;
  if (several_nodes) f.environment["MASTER_ADDR"] = "10.0.0.1";
  SCOPED_TRACE(name + "=" + value);
  expect_finding(f, name, status, found, fix);
}

TEST(JudgeNetwork, InterfacesOfTheGuides) {
  for (const char* name : {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}) {
    expect_interface(name, "enp50s0", Status::kFail, "no interface enp50s0", "one of eth0");
    expect_interface(name, "eth1", Status::kFail, "eth1 is down", "one of eth0");
    expect_interface(name, "ib0", Status::kFail, "ib0 has no address", "one of eth0");
    expect_interface(name, "eth0", Status::kOk, "eth0", "");
    expect_interface(name, "lo", Status::kOk, "lo", "");
    expect_interface(name, "lo", Status::kFail, "loopback reaches no other node", "eth0", true);
  }
}

// NCCL takes prefixes and lists, Gloo whole names.
TEST(JudgeNetwork, NcclsOwnPatterns) {
  expect_interface("NCCL_SOCKET_IFNAME", "eth", Status::kOk, "eth", "");
  expect_interface("GLOO_SOCKET_IFNAME", "eth", Status::kFail, "no interface eth", "eth0");
  expect_interface("NCCL_SOCKET_IFNAME", "=eth", Status::kFail, "no interface eth", "eth0");
  expect_interface("NCCL_SOCKET_IFNAME", "=eth0", Status::kOk, "=eth0", "");
  expect_interface("NCCL_SOCKET_IFNAME", "^docker,lo", Status::kOk, "all but these", "");
  expect_interface("NCCL_SOCKET_IFNAME", "eth0,enp9", Status::kWarn, "no interface enp9",
                   "only interfaces");
  expect_interface("GLOO_SOCKET_IFNAME", "eth0,enp9", Status::kFail, "no interface enp9", "eth0");
}

TEST(JudgeHost, Disk) {
  Facts f = healthy();
  f.disk.write_rate = 20e6;
  expect_finding(f, "checkpoint folder", Status::kWarn, "MB/s", "checkpoint_freq");
  f = healthy();
  f.disk.free_bytes = uint64_t{5} << 30;
  expect_finding(f, "checkpoint folder", Status::kWarn, "free", "make room");
  f.disk.free_bytes = uint64_t{1} << 30;
  expect_finding(f, "checkpoint folder", Status::kFail, "free", "make room");
  f = healthy();
  f.disk.problem = "Permission denied";
  expect_finding(f, "checkpoint folder", Status::kFail, "Permission denied", "checkpoint_dir");
}

TEST(JudgeHost, SharedMemoryOfAContainer) {
  Facts f = healthy();
  f.host.shm_free = f.host.shm_total = 64 << 20;
  expect_finding(f, "/dev/shm", Status::kWarn, "67.1 MB", "--shm-size=8g");
  f.gpus.gpus = {gpu_of(9, 0), gpu_of(9, 0)};
  expect_finding(f, "/dev/shm", Status::kFail, "67.1 MB", "--shm-size=8g");
}

TEST(JudgeHost, ProcessorAndMemory) {
  Facts f = healthy();
  f.host.cores = 1;
  expect_finding(f, "processor", Status::kWarn, "1 cores", "cpus-per-task");
  f = without_gpu();
  f.host.amx_bf16 = f.host.avx512_bf16 = false;
  expect_finding(f, "processor", Status::kNote, "several times slower", "");
  f = healthy();
  f.host.memory_limit = uint64_t{2} << 30;
  expect_finding(f, "memory", Status::kWarn, "control group", "more memory");
}

}  // namespace
}  // namespace octavo::verify
