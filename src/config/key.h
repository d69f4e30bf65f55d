#pragma once
// The one table of keys. YAML, flags, --help, docs/reference/configuration.md and the JSON schema
// all come from it.

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

// Which verbs read a key: a flag that the verb would not read is refused. A set of bits, one for
// each verb in the order of reader_names().
using Readers = unsigned;
namespace reader {
enum class Verb : unsigned {
  kTrain,
  kGenerate,
  kEval,
  kVerify,
  kCheckpoints,
  kPrepare,
  kInspect,
  kSchedule,
  kConfig,
  kImport,
  kPlan,
  kDiagnose,
  kBench,
  kCompare,
  kLaunch,
  kSweepCreate,
  kSweepAgent,
  kSweepRun,
  kSweepStatus,
  kSweepReport,
  kReport,
  kBoard,
  kAudit
};
constexpr Readers bit(Verb verb) {
  return 1u << static_cast<unsigned>(verb);
}
inline constexpr Readers kTrain = bit(Verb::kTrain), kGenerate = bit(Verb::kGenerate),
                         kEval = bit(Verb::kEval), kVerify = bit(Verb::kVerify),
                         kCheckpoints = bit(Verb::kCheckpoints), kPrepare = bit(Verb::kPrepare),
                         kInspect = bit(Verb::kInspect), kSchedule = bit(Verb::kSchedule),
                         kConfig = bit(Verb::kConfig), kImport = bit(Verb::kImport),
                         kPlan = bit(Verb::kPlan), kDiagnose = bit(Verb::kDiagnose),
                         kBench = bit(Verb::kBench), kCompare = bit(Verb::kCompare),
                         kLaunch = bit(Verb::kLaunch), kSweepCreate = bit(Verb::kSweepCreate),
                         kSweepAgent = bit(Verb::kSweepAgent), kSweepRun = bit(Verb::kSweepRun),
                         kSweepStatus = bit(Verb::kSweepStatus),
                         kSweepReport = bit(Verb::kSweepReport), kReport = bit(Verb::kReport),
                         kBoard = bit(Verb::kBoard), kAudit = bit(Verb::kAudit), kAll = ~0u;
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
  bool numbers = false;  // of a list: its items are numbers
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
