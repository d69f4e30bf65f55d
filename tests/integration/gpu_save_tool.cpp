// The C++ side of tests/integration/gpu_save.py: saves of a GPU's tensors in the background, on the
// fake CUDA device. usage: gpu_save_tool FOLDER
// A line of JSON for each case: what was asked of the device until the update could be queued and
// by the whole save, in how many streams it was read, and whether the file has the numbers that the
// tensors had at its start.
//   secured: the update comes before the disk has anything, so all of it is copied
//   half:    the same with room for half of the copies; the update waits for the rest
//   read:    the disk is fast enough, and nothing is copied

#include <ATen/ATen.h>

#include <cstdio>
#include <filesystem>
#include <set>
#include <thread>
#include <vector>

#include "../checkpoint/save_gate.h"
#include "../conformance/tool_main.h"
#include "base/error.h"
#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/saver.h"
#include "engine/devices.h"
#include "fake_cuda/fake_cuda.h"

namespace octavo {
namespace {

using fake_cuda::Kind;

constexpr int64_t kRows = 20, kColumns = 1 << 20;  // 80 MB of FP32, in three pieces

at::Tensor numbers(float first) {
  return at::arange(kRows * kColumns, at::kFloat).add_(first).view({kRows, kColumns});
}

// What a save must not do, and where it read.
Json asked() {
  const fake_cuda::Api& api = *fake_cuda::api();
  fake_cuda::Counters counters{};
  api.counters(&counters);
  std::vector<fake_cuda::Event> events(api.events(nullptr, 0, 0));
  api.events(events.data(), 0, events.size());
  std::set<uint64_t> read, told;  // streams: that were read on, that wait for an event
  for (const auto& event : events) {
    if (event.kind == Kind::kCopyToHost) read.insert(event.stream);
    if (event.kind == Kind::kEventWait) told.insert(event.stream);
  }
  Json streams = Json::array();
  for (const uint64_t stream : read)
    streams.push_back({{"default", stream == 0}, {"told", told.contains(stream)}});
  return {{"copies", counters.of(Kind::kCopyToHost)},
          {"bytes", counters.bytes_of(Kind::kCopyToHost)},
          {"pageable", counters.pageable_copies},
          {"waits", counters.host_waits()},
          {"streams", streams}};
}

Json run_case(const std::filesystem::path& folder, const std::string& name) {
  const at::Tensor first = numbers(1), second = numbers(2);
  at::Tensor weight = first.to(at::Device(at::kCUDA, 0));
  constexpr uint64_t kBytes = uint64_t{4} * kRows * kColumns;
  checkpoint::Saver saver(folder / name,
                          {.memory_budget = name == "half" ? kBytes / 2 : 2 * kBytes});
  checkpoint::State state;
  state.step = 1;
  state.groups["model"] = {{"w", weight}};
  checkpoint::SaveGate gate;
  fake_cuda::api()->reset();
  saver.start(std::move(state), gate.options("folder"));
  gate.wait_until_reached();
  Json result = {{"case", name}};
  if (name == "read") {
    gate.open();
    result["saved"] = saver.wait();
  } else {
    std::thread later;
    if (name == "half")
      later = std::thread([&] {
        while (asked().at("copies") == 0) std::this_thread::yield();  // the update is at it
        gate.open();
      });
    saver.before_update();
    result["until_update"] = asked();
    if (later.joinable()) later.join();
    weight.copy_(second);  // the update
    gate.open();
    result["saved"] = saver.wait();
  }
  result["save"] = asked();
  result["copied"] = saver.counts().copied;
  const checkpoint::State found = checkpoint::load(folder / name / "step-00000001");
  result["right"] = at::equal(checkpoint::tensor(found, "model", "w"), first);
  return result;
}

void run_tool(const std::filesystem::path& folder) {
  if (engine::gpus().gpus.empty()) fail(ExitCode::kEnvironment, "gpu_save", engine::gpus().reason);
  for (const char* name : {"secured", "half", "read"})
    std::printf("%s\n", run_case(folder, name).dump().c_str());
}

}  // namespace
}  // namespace octavo

int main(int count, char** words) {
  if (count != 2) return 2;
  return octavo::tool_main([&] { octavo::run_tool(words[1]); });
}
