#pragma once
// One line of `octavo verify`: what was looked at, what was wanted, what was found, and what to do.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::verify {

enum class Status : uint8_t {
  kOk,
  kNote,        // worth knowing; nothing to do
  kWarn,        // works, but not as well as it could, or not as its author thinks
  kFail,        // will not work; the exit code is 3
  kNotChecked,  // and why is in `found`
};
std::string_view name_of(Status status);  // "ok", "note", "warn", "fail", "not checked"

enum class Section : uint8_t {
  kGpu,
  kLibraries,
  kEnvironment,
  kNetwork,
  kMachine,
  kKernels,
  kTraining,
  kSpeed,
  // Of verify --for.
  kPython,
  kFit,
  kKnownBad,
  // Of verify --before-long-run.
  kRunSettings,
  kRunData,
  kRunSize,
  kRunSafety
};
std::string_view name_of(Section section);

struct Finding {
  Section section = Section::kGpu;
  std::string id;  // "driver", "NVTE_FP8_ALLREDUCE", "matmul aten bf16"
  Status status = Status::kOk;
  std::string wanted, found;
  std::string fix;                         // never empty when the status is kFail or kWarn
  std::vector<std::string> commands = {};  // that do it, to be typed as they are
};

struct Count {
  int ok = 0, note = 0, warn = 0, fail = 0, not_checked = 0;
};
Count count(const std::vector<Finding>& findings);

}  // namespace octavo::verify
