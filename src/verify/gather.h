#pragma once
// The one place that looks at the machine.

#include "base/file.h"
#include "config/settings.h"
#include "verify/facts.h"

namespace octavo::verify {

// Must run before anything asks libtorch about CUDA (engine/devices.h). `checkpoint_dir` is where
// the disk is measured: 128 MB are written and deleted.
Facts gather(const fs::path& checkpoint_dir);

// Its parts.
Libraries gather_libraries();
std::map<std::string, std::string> gather_environment();
std::vector<std::string> gather_missing_files(const std::map<std::string, std::string>& values);
std::vector<Interface> gather_interfaces();
Disk gather_disk(const fs::path& folder);
Host gather_host();

}  // namespace octavo::verify
