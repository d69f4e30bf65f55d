// The record as text: for Python, and for the line that a process leaves behind.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "fake_cuda/device.h"
#include "fake_cuda/fake_cuda.h"

extern "C" const octavo::fake_cuda::Api* octavo_fake_cuda_api();

namespace octavo::fake_cuda {
namespace {

constexpr const char* kKindNames[] = {
    "launches",         "gemms",         "copies_to_device", "copies_to_host",
    "copies_on_device", "memsets",       "mallocs",          "frees",
    "host_mallocs",     "host_frees",    "stream_syncs",     "device_syncs",
    "event_syncs",      "event_records", "event_waits",      "graph_launches",
    "collectives",      "communicators", "host_functions",   "unexpected"};
static_assert(std::size(kKindNames) == static_cast<std::size_t>(Kind::kKinds));

std::string quoted(const char* text) {
  std::string result = "\"";
  for (; *text != '\0'; ++text) {
    if (*text == '"' || *text == '\\') result += '\\';
    if (static_cast<unsigned char>(*text) >= ' ') result += *text;
  }
  return result + "\"";
}

// Writes "key":value pairs; strings come quoted already.
class Fields {
 public:
  template <typename T>
  Fields& add(const char* key, T value) {
    text_ += (text_.empty() ? "" : ",") + quoted(key) + ":" + std::to_string(value);
    return *this;
  }
  Fields& add(const char* key, const std::string& value) {
    text_ += (text_.empty() ? "" : ",") + quoted(key) + ":" + value;
    return *this;
  }
  Fields& add(const char* key, float value) {
    char digits[32];
    std::snprintf(digits, sizeof digits, "%.9g", value);
    return add(key, std::string(std::isfinite(value) ? digits : "null"));
  }
  Fields& add(const char* key, const void* pointer) {
    return add(key, reinterpret_cast<std::uint64_t>(pointer));
  }
  std::string object() const { return "{" + text_ + "}"; }

 private:
  std::string text_;
};

template <typename T>
std::vector<T> fetch(std::uint64_t (*from)(T*, std::uint64_t, std::uint64_t)) {
  std::vector<T> all(from(nullptr, 0, 0));
  all.resize(std::min<std::uint64_t>(all.size(), from(all.data(), 0, all.size())));
  return all;
}

template <typename T, typename Function>
std::string list(const std::vector<T>& items, const Function& to_text) {
  std::string text = "[";
  for (const T& item : items) text += (text.size() > 1 ? "," : "") + to_text(item);
  return text + "]";
}

std::string operand_text(const GemmOperand& x) {
  return Fields()
      .add("data", x.data)
      .add("scale", x.scale)
      .add("rows", x.rows)
      .add("cols", x.cols)
      .add("ld", x.ld)
      .add("batch_stride", x.batch_stride)
      .add("type", x.type)
      .add("op", x.op)
      .add("order", x.order)
      .add("scale_mode", x.scale_mode)
      .object();
}

std::string gemm_text(const Gemm& g) {
  Fields fields;
  fields.add("entry", quoted(g.entry)).add("stream", g.stream).add("device", g.device);
  fields.add("compute_type", g.compute_type).add("m", g.m).add("n", g.n).add("k", g.k);
  fields.add("batch_count", g.batch_count).add("alpha", g.alpha).add("beta", g.beta);
  fields.add("fast_accumulate", g.fast_accumulate)
      .add("epilogue", g.epilogue)
      .add("bias", static_cast<const void*>(g.bias));
  fields.add("bias_type", g.bias_type)
      .add("aux_type", g.aux_type)
      .add("aux", static_cast<const void*>(g.aux));
  fields.add("aux_ld", g.aux_ld)
      .add("amax_d", static_cast<const void*>(g.amax_d))
      .add("workspace", g.workspace);
  fields.add("captured", g.captured).add("computed", g.computed);
  fields.add("a", operand_text(g.a)).add("b", operand_text(g.b)).add("c", operand_text(g.c));
  return fields.add("d", operand_text(g.d)).object();
}

std::string event_text(const Event& event) {
  return Fields()
      .add("kind", quoted(kKindNames[static_cast<int>(event.kind)]))
      .add("name", quoted(event.name))
      .add("stream", event.stream)
      .add("device", event.device)
      .add("bytes", event.bytes)
      .object();
}

std::string counters_text(const Counters& counters) {
  Fields fields;
  for (int kind = 0; kind < static_cast<int>(Kind::kKinds); ++kind) {
    fields.add(kKindNames[kind], counters.count[kind]);
    if (counters.bytes[kind] > 0)
      fields.add((std::string(kKindNames[kind]) + "_bytes").c_str(), counters.bytes[kind]);
  }
  fields.add("blocking_copies", counters.blocking_copies)
      .add("pageable_copies", counters.pageable_copies);
  fields.add("captured_nodes", counters.captured_nodes)
      .add("out_of_memory", counters.out_of_memory);
  fields.add("memory_in_use", counters.memory_in_use).add("memory_peak", counters.memory_peak);
  return fields.add("events_dropped", counters.events_dropped)
      .add("host_waits", counters.host_waits())
      .object();
}

std::string unexpected_text(const std::vector<Event>& events) {
  std::map<std::string, int> names;
  for (const Event& event : events) {
    if (event.kind == Kind::kUnexpected) ++names[event.name];
  }
  Fields fields;
  for (const auto& [name, count] : names) fields.add(name.c_str(), count);
  return fields.object();
}

// Adds one line to the file, in one write: several processes may share it.
void leave_line() {
  if (variable("OCTAVO_FAKE_CUDA_RECORD") == nullptr) return;
  const Api& functions = *octavo_fake_cuda_api();
  Counters counters;
  functions.counters(&counters);
  const std::vector<Event> events = fetch(functions.events);
  if (events.empty() || options().record.empty())
    return;  // a shell, say, that never met the device
  const std::string line = Fields()
                               .add("device", quoted(device_name().c_str()))
                               .add("process", getpid())
                               .add("counters", counters_text(counters))
                               .add("unexpected_names", unexpected_text(events))
                               .object() +
                           "\n";
  const int file = open(options().record.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0 || write(file, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    say("could not write the counts to " + options().record);
  }
  if (file >= 0) close(file);
}

struct AtExit {
  ~AtExit() { leave_line(); }
} at_exit;

}  // namespace
}  // namespace octavo::fake_cuda

// The text of one part of the record; the caller gives it back with free().
extern "C" char* octavo_fake_cuda_json(const char* part) {
  using namespace octavo::fake_cuda;
  const Api& functions = *octavo_fake_cuda_api();
  const std::string wanted = part;
  if (wanted == "events") return strdup(list(fetch(functions.events), event_text).c_str());
  if (wanted == "gemms") return strdup(list(fetch(functions.gemms), gemm_text).c_str());
  if (wanted == "unexpected") return strdup(unexpected_text(fetch(functions.events)).c_str());
  Counters counters;
  functions.counters(&counters);
  return strdup(counters_text(counters).c_str());
}
