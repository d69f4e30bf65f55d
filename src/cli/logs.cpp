// octavo logs: the messages of all ranks and launchers of a run, by time.

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "base/log_merge.h"
#include "base/text.h"
#include "cli/run_folder.h"
#include "cli/verbs.h"

namespace octavo::cli {
namespace {

constexpr const char* kLevelNames[] = {"debug", "info", "warning", "error"};

// Of a line; one that is none of them is not hidden.
size_t level_number(const std::string& name) {
  return static_cast<size_t>(std::ranges::find(kLevelNames, name) - std::begin(kLevelNames));
}

size_t least_level(const GivenFlags& given) {
  const auto name = given.value("level");
  if (!name) return 0;
  const size_t number = level_number(*name);
  if (number >= std::size(kLevelNames))
    fail(ExitCode::kUsage, "cli", "logs: --level: wanted info, warning or error, found '", *name,
         "'");
  return number;
}

int64_t wanted_rank(const GivenFlags& given) {
  const auto text = given.value("rank");
  if (!text) return -1;
  size_t end = 0;
  int64_t rank = -1;
  try {
    rank = std::stoll(*text, &end);
  } catch (const std::exception&) {
  }
  if (rank < 0 || end != text->size())
    fail(ExitCode::kUsage, "cli", "logs: --rank: wanted a rank's number, found '", *text, "'");
  return rank;
}

// "0-3, 5"; of many the first.
std::string ranges_of(const std::vector<int64_t>& sorted) {
  constexpr size_t kShown = 16;
  std::vector<std::string> ranges;
  for (size_t i = 0; i < sorted.size();) {
    if (ranges.size() == kShown) {
      ranges.emplace_back("…");
      break;
    }
    size_t last = i;
    while (last + 1 < sorted.size() && sorted[last + 1] == sorted[last] + 1) ++last;
    ranges.push_back(last == i ? str(sorted[i]) : str(sorted[i], '-', sorted[last]));
    i = last + 1;
  }
  return join(ranges, ", ");
}

void check_rank(const fs::path& folder, int64_t rank) {
  if (rank < 0) return;
  const std::vector<int64_t> there = ranks_with_logs(folder);
  if (std::ranges::binary_search(there, rank)) return;
  fail(ExitCode::kUsage, "cli", "logs: --rank: wanted a rank that has a log in ", folder.string(),
       ", found ", rank, "; there ",
       there.size() == 1 ? "is rank "
       : there.empty()   ? "are none"
                         : "are ranks ",
       ranges_of(there));
}

std::string json_line(const LogEntry& entry) {
  Json json = {{"time", entry.time}, {"host", entry.host}};
  if (entry.launcher >= 0)
    json["launcher"] = entry.launcher;
  else
    json.update({{"rank", entry.rank}, {"step", entry.step}});
  json.update({{"level", entry.level}, {"message", entry.message}});
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

int logs(const Verb& verb, Args args) {
  const GivenFlags given = take_own_flags(verb.own.flags, args);
  const config::Parsed parsed = config::parse(given.other_args, verb.arguments);
  if (parsed.positionals.size() != 1)
    fail(ExitCode::kUsage, "cli", "logs: wanted one run, found ",
         parsed.positionals.empty() ? "none" : str(parsed.positionals.size()),
         "; name its folder: ", runs_here());
  const fs::path folder = run_folder(parsed.positionals[0]) / "logs";
  std::error_code none;
  if (!fs::is_directory(folder, none))
    fail(ExitCode::kUsage, "cli", "logs: wanted log files of ranks in ", folder.string(),
         ", found no such folder; name a run that was trained with this version: ", runs_here());
  const size_t least = least_level(given);
  const int64_t rank = wanted_rank(given);
  check_rank(folder, rank);
  const bool json = given.has("json_lines");
  const auto result = merge_logs(folder, [&](const LogEntry& entry) {
    if (level_number(entry.level) < least || (rank >= 0 && entry.rank != rank)) return;
    std::printf("%s\n", (json ? json_line(entry) : text_of(entry)).c_str());
  });
  if (result.unreadable > 0)
    log_warn(str(result.unreadable, " lines of ", folder.string(),
                 " are not readable and were left out: cut by a crash, perhaps"));
  return 0;
}

}  // namespace octavo::cli
