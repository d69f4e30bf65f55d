#include "train/reporting/restart_ledger.h"

#include <fstream>

#include "base/host.h"
#include "train/guards/ledger.h"

namespace octavo::train {
namespace {

constexpr const char* kLedger = "restarts.jsonl";
constexpr size_t kMostChanges = 1000;  // that are listed; all are counted

}  // namespace

void write_restart(const fs::path& run_dir, const Resumed& resumed, int ranks) {
  if (resumed.from.empty()) return;
  append_to_ledger(run_dir / kLedger, {{"step", resumed.step},
                                       {"from", resumed.from},
                                       {"time", utc_now(0)},
                                       {"ranks_before", resumed.ranks},
                                       {"ranks", ranks},
                                       {"passed_over", resumed.passed_over.size()}});
}

Json restarts_receipt(const fs::path& run_dir) {
  int64_t count = 0, shrunk = 0, grown = 0;
  Json changes = Json::array();
  std::ifstream file(run_dir / kLedger);
  for (std::string text; std::getline(file, text);) {
    const Json line = Json::parse(text, nullptr, false);
    if (!line.is_object()) continue;  // cut by a crash
    ++count;
    const Json before = line.value("ranks_before", Json()), ranks = line.value("ranks", Json());
    if (!before.is_number_integer() || !ranks.is_number_integer() || before == ranks) continue;
    (ranks < before ? shrunk : grown) += 1;
    if (changes.size() < kMostChanges)
      changes.push_back({{"step", line.value("step", Json())},
                         {"ranks_before", before},
                         {"ranks", ranks},
                         {"time", line.value("time", Json())}});
  }
  return {{"count", count}, {"shrunk", shrunk}, {"grown", grown}, {"changes", changes}};
}

}  // namespace octavo::train
