#include "verify/gather.h"

#include "engine/te/te.h"

namespace octavo::verify {

Facts gather(const fs::path& checkpoint_dir) {
  Facts facts;
  facts.fake_device = engine::is_fake({at::kCUDA, 0});
  // Libraries are tried in child processes: before the driver starts in this one.
  facts.libraries = gather_libraries();
  facts.driver = gather_driver();
  facts.gpus = engine::gpus();
  // With a GPU there is a way to know for sure.
  if (!facts.gpus.gpus.empty() && facts.libraries.te.problem.empty())
    facts.libraries.te.problem = engine::te::library_info().problem;
  facts.nvml = gather_nvml();
  if (facts.driver.version.empty()) facts.driver.version = facts.nvml.driver;
  facts.environment = gather_environment();
  facts.missing_files = gather_missing_files(facts.environment);
  facts.interfaces = gather_interfaces();
  facts.disk = gather_disk(checkpoint_dir);
  facts.host = gather_host();
  return facts;
}

}  // namespace octavo::verify
