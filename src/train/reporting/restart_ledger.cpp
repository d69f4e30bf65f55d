#include "train/reporting/restart_ledger.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "base/host.h"
#include "launch/restart.h"
#include "train/guards/ledger.h"

namespace octavo::train {
namespace {

constexpr const char* kLedger = "restarts.jsonl";
constexpr size_t kMostChanges = 1000;  // that are listed; all are counted
constexpr size_t kMostKinds = 100, kLongestKind = 40;

}  // namespace

void write_restart(const fs::path& run_dir, const Resumed& resumed, int ranks,
                   const std::string& cause) {
  if (resumed.from.empty() && cause.empty()) return;
  Json line = {
      {"step", resumed.step}, {"from", resumed.from},
      {"time", utc_now(0)},   {"ranks_before", resumed.from.empty() ? Json() : Json(resumed.ranks)},
      {"ranks", ranks},       {"passed_over", resumed.passed_over.size()}};
  if (!cause.empty()) line["cause"] = cause;
  append_to_ledger(run_dir / kLedger, line);
}

std::string restart_cause() {
  const char* cause = std::getenv(launch::kRestartCauseVariable);
  return cause == nullptr ? "" : cause;
}

Json restarts_receipt(const fs::path& run_dir) {
  int64_t count = 0, resumed = 0, failures = 0, shrunk = 0, grown = 0;
  Json changes = Json::array(), kinds = Json::object();
  std::ifstream file(run_dir / kLedger);
  for (std::string text; std::getline(file, text);) {
    const Json line = Json::parse(text, nullptr, false);
    if (!line.is_object()) continue;  // cut by a crash
    ++count;
    const Json from = line.value("from", Json());
    if (from.is_string() && !from.get<std::string>().empty()) ++resumed;
    if (const Json cause = line.value("cause", Json()); cause.is_string()) {
      const std::string why = cause.get<std::string>();
      const std::string kind = why.substr(0, std::min(why.find(": "), kLongestKind));
      ++failures;
      if (kinds.contains(kind) || kinds.size() < kMostKinds)
        kinds[kind] = kinds.value(kind, int64_t{0}) + 1;
    }
    const Json before = line.value("ranks_before", Json()), ranks = line.value("ranks", Json());
    if (!before.is_number_integer() || !ranks.is_number_integer() || before == ranks) continue;
    (ranks < before ? shrunk : grown) += 1;
    if (changes.size() < kMostChanges)
      changes.push_back({{"step", line.value("step", Json())},
                         {"ranks_before", before},
                         {"ranks", ranks},
                         {"time", line.value("time", Json())}});
  }
  return {{"count", count},   {"resumed", resumed}, {"after_failures", failures}, {"causes", kinds},
          {"shrunk", shrunk}, {"grown", grown},     {"changes", changes}};
}

}  // namespace octavo::train
