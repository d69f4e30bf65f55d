#pragma once
// The one table of keys. YAML, flags, --help, docs/configuration.md and the JSON schema all come
// from it.

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/settings.h"

namespace octavo::config {

enum class Section {
  kModel,
  kData,
  kTrain,
  kLora,
  kFp8,
  kRun,
  kCheckpoints,
  kGenerate,
  kEval,
  kVerify,
  kPlan,
  kDiagnose,
  kBench,
  kCompare,
  kLaunch,
  kSweep,
  kOutput
};
enum class Type { kInt, kReal, kBool, kText, kList, kEnum };

// Which verbs read a key: a flag that the verb would not read is refused. A set of bits.
using Readers = unsigned;
namespace reader {
inline constexpr Readers kTrain = 1, kGenerate = 2, kCheckpoints = 4, kPrepare = 8, kInspect = 16,
                         kSchedule = 32, kConfig = 64, kEval = 128, kVerify = 256, kPlan = 512,
                         kImport = 1024, kLaunch = 2048, kDiagnose = 16384, kBench = 32768,
                         kAll = ~0u;
inline constexpr Readers kSweepCreate = 1u << 16, kSweepAgent = 1u << 17, kSweepRun = 1u << 18,
                         kSweepStatus = 1u << 19, kSweepReport = 1u << 20, kCompare = 1u << 21;
}  // namespace reader

struct Key {
  std::string name;
  std::vector<std::string> aliases;
  Section section = Section::kModel;
  Type type = Type::kText;
  Readers readers = 0;
  std::string help;
  std::string wanted;            // "an integer from 1 to 65536"
  std::string minimum, maximum;  // as printed numbers; "" when there is none
  std::vector<std::string> choices;
  // Stores the values (one, or any number for a list); false when they are not what is wanted.
  std::function<bool(Settings&, std::span<const std::string>)> store;
  std::function<std::vector<std::string>(const Settings&)> load;

  Key alias(std::string other) &&;
  Key read_by(Readers who) &&;
  std::string type_name() const;
  std::string text(const Settings& settings) const;  // as YAML: quoted text, [lists]
};

std::span<const Key> keys();
// By name or alias; nullptr when there is none.
const Key* find_key(std::string_view name);
// The nearest name or alias, or "".
std::string nearest_key(std::string_view name);

struct SectionInfo {
  Section section;
  std::string_view name, about;
};
std::span<const SectionInfo> sections();
std::vector<std::string_view> reader_names(Readers readers);  // "train", "data prepare", …

}  // namespace octavo::config
