// A rank of a run on fake CUDA devices (src/fake_cuda), started by nccl_calls.py with the variables
// of a launcher: some steps, then as JSON what the last one asked of CUDA and NCCL, in order, and
// the memory that libtorch's allocator took. usage: nccl_calls_tool STEPS [CONFIG.yaml] [--key
// value]…

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "config/parse.h"
#include "engine/allocator.h"
#include "fake_cuda/fake_cuda.h"
#include "train/device.h"
#include "train/run.h"
#include "train/step.h"
#include "train/step_graph.h"

namespace {

using namespace octavo;
using fake_cuda::Kind;

const char* name_of_kind(Kind kind) {
  switch (kind) {
    case Kind::kCollective:
      return "collective";
    case Kind::kGemm:
      return "gemm";
    case Kind::kEventRecord:
      return "record";
    case Kind::kEventWait:
      return "wait";
    case Kind::kGraphLaunch:
      return "graph";
    case Kind::kCommunicator:
      return "communicator";
    default:
      return nullptr;
  }
}

// Since the last reset.
Json events() {
  const fake_cuda::Api& api = *fake_cuda::api();
  std::vector<fake_cuda::Event> found(api.events(nullptr, 0, 0));
  api.events(found.data(), 0, found.size());
  Json list = Json::array();
  for (const fake_cuda::Event& e : found)
    if (const char* kind = name_of_kind(e.kind); kind != nullptr)
      list.push_back({{"kind", kind}, {"name", e.name}, {"stream", e.stream}, {"bytes", e.bytes}});
  return list;
}

// Bytes that came in by any network interface of this namespace, loopback too.
int64_t host_bytes() {
  std::ifstream file("/proc/self/net/dev");
  int64_t sum = 0;
  for (std::string line; std::getline(file, line);)
    if (const size_t colon = line.find(':'); colon != std::string::npos)
      sum += std::stoll(line.substr(colon + 1));
  return sum;
}

int run_steps(int64_t count, const std::vector<std::string>& args) {
  const config::Settings settings = config::parse(args, config::kTrainArguments).settings;
  train::prepare_process(settings);
  OCTAVO_ASSERT(fake_cuda::is_active());
  const auto run = train::assemble(settings);
  const Json start = events();
  std::vector<int64_t> on_host;  // collectives that the host waits for, of each step
  std::vector<int64_t> bytes;    // over the network, from the end of the first step on
  for (int64_t i = 0; i < count; ++i) {
    fake_cuda::api()->reset();
    const int64_t before = run->world.usage().on_host;
    train::train_step(*run);
    on_host.push_back(run->world.usage().on_host - before);
    if (i == 0) {  // in which communicators are made, through the store: until all ranks have them
      run->world.barrier("the first step");
      std::this_thread::sleep_for(std::chrono::milliseconds(200));  // TCP may acknowledge late
    }
    bytes.push_back(host_bytes());
  }
  const auto memory = engine::memory_of(run->trained.engine->target.device);
  run->world.barrier("the end");
  const auto& graph = run->trained.graph;
  const Json found = {{"graph", graph != nullptr ? graph->receipt() : Json()},
                      {"rank", run->world.rank()},
                      {"start", start},
                      {"events", events()},
                      {"on_host", on_host},
                      {"host_bytes", bytes},
                      {"peak", memory.peak},
                      {"reserved", memory.reserved}};
  std::printf("%s\n", found.dump().c_str());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  try {
    return run_steps(std::stoll(argv[1]), {argv + 2, argv + argc});
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
