// octavo plan --dry_run, in the process that was started on the fake CUDA device.

#include "train/dry_run.h"

#include <cstdio>

#include "base/json.h"
#include "base/progress.h"
#include "cli/core/core_verbs.h"
#include "config/parse.h"

namespace octavo::cli {

int dry_run(CoreArgs args) {
  const config::Settings settings = config::parse(args, {"plan", config::reader::kPlan}).settings;
  const train::DryRun found = train::dry_run(settings);
  if (settings.json) {
    Json parts = Json::object();
    for (const auto& [name, bytes] : found.parts) parts[name] = bytes;
    const Json out = {{"dry_run", true},
                      {"device", found.device},
                      {"model", found.model},
                      {"precision", found.precision},
                      {"parameters", found.parameters},
                      {"trained_parameters", found.trained},
                      {"peak_bytes", found.peak},
                      {"reserved_bytes", found.reserved},
                      {"device_bytes", found.memory},
                      {"parts", parts},
                      {"launches", found.launches},
                      {"products", found.gemms},
                      {"collectives", found.collectives},
                      {"host_seconds", found.host_seconds}};
    std::printf("%s\n", out.dump(2).c_str());
    return 0;
  }
  const auto line = [](const std::string& name, double bytes) {
    std::printf("dry run | %-50s %9.3f GB\n", name.c_str(), bytes / 1e9);
  };
  std::printf("dry run | %s, %s parameters (%s trained), %s, on a %s\n", found.model.c_str(),
              format_count(found.parameters).c_str(), format_count(found.trained).c_str(),
              found.precision.c_str(), found.device.c_str());
  for (const auto& [name, bytes] : found.parts) line(name, bytes);
  line("peak of live tensors", found.peak);
  line("asked of the device: must fit", found.reserved);
  line("the device has", found.memory);
  std::printf(
      "dry run | a step: %lld kernels, %lld GEMMs, %lld collectives, %lld wait(s) of the "
      "host, %lld allocations; %.1f ms of the host\n",
      static_cast<long long>(found.launches), static_cast<long long>(found.gemms),
      static_cast<long long>(found.collectives), static_cast<long long>(found.waits),
      static_cast<long long>(found.allocations), 1e3 * found.host_seconds);
  return 0;
}

}  // namespace octavo::cli
