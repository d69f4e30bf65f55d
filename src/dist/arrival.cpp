#include "dist/arrival.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <functional>
#include <map>
#include <span>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"
#include "dist/lost_ranks.h"
#include "rendezvous/keys.h"

namespace octavo::dist {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kSignalSlice{500};  // of torchrun's store: signals are looked at between
constexpr milliseconds kSayWaiting{2'000};

// The key is there. False: the time is over, or `look` wants to look around. Our own store is asked
// once and `look` looks without a message; torchrun's is asked again for every look.
bool is_there(Rendezvous& rendezvous, const launch::RankInfo& rank_info, const std::string& key,
              milliseconds timeout, const std::function<bool()>& look) {
  try {
    if (rendezvous.client != nullptr)
      return rendezvous.client->wait_unless(
          {rendezvous::generation_prefix(rank_info.generation) + key}, timeout, look);
    rendezvous.store->wait({key}, std::min(timeout, kSignalSlice));
    return true;
  } catch (const c10::DistStoreError&) {
  } catch (const rendezvous::TimedOut&) {
  } catch (const rendezvous::Unreachable& error) {
    fail_lost(rendezvous, rank_info, "connecting", 0, error.what());
  }
  return false;
}

constexpr const char *kSettings = "settings/text", *kSettingsHash = "settings/hash";
constexpr size_t kMostShown = 3;  // keys in a message

std::vector<uint8_t> text_bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

std::vector<uint8_t> hash_of(const std::string& text) {
  return text_bytes(hash_bytes(std::as_bytes(std::span(text.data(), text.size()))));
}

// "learning_rate: 0.01 (the first rank has 0.001)", of each line that differs.
std::vector<std::string> differing_lines(const std::string& own, const std::string& first) {
  std::map<std::string, std::string> theirs;
  const auto each_line = [](const std::string& text, const auto& use) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
      use(line.substr(0, line.find(": ")), line.substr(std::min(line.size(), line.find(": ") + 2)));
  };
  each_line(first,
            [&](const std::string& key, std::string value) { theirs[key] = std::move(value); });
  std::vector<std::string> found;
  each_line(own, [&](const std::string& key, const std::string& value) {
    const auto at = theirs.find(key);
    const std::string other = at == theirs.end() ? "no such key" : at->second;
    if (other != value)
      found.push_back(octavo::str(key, ": ", value, " (the first rank has ", other, ")"));
  });
  return found;
}

}  // namespace

void say_settings(Rendezvous& rendezvous, const std::string& settings) {
  rendezvous.store->set(kSettings, text_bytes(settings));
  rendezvous.store->set(kSettingsHash, hash_of(settings));
}

void check_same_settings(Rendezvous& rendezvous, const launch::RankInfo& rank_info,
                         const std::string& settings) {
  c10d::Store& store = *rendezvous.store;
  if (store.get(kSettingsHash) == hash_of(settings)) return;
  const std::vector<uint8_t> text = store.get(kSettings);
  std::vector<std::string> lines = differing_lines(settings, {text.begin(), text.end()});
  const size_t more = lines.size() - std::min(lines.size(), kMostShown);
  lines.resize(lines.size() - more);
  const std::string why = octavo::str(
      "wanted on every rank what the first one was told, found on rank ", rank_info.rank, " (node ",
      rank_info.node, ") ", lines.empty() ? "keys of another version of octavo" : join(lines, ", "),
      more > 0 ? octavo::str(" and ", more, " more") : "",
      "; start every node with the same program, config and flags");
  announce_exit(rendezvous, rank_info, why, ExitCode::kUsage);
  fail(ExitCode::kUsage, "dist", why);
}

void wait_for_ranks(Rendezvous& rendezvous, const launch::RankInfo& rank_info,
                    milliseconds timeout) {
  c10d::Store& store = *rendezvous.store;
  const std::string all_here = "ranks/all_here", arrived = "ranks/arrived";
  const auto start = std::chrono::steady_clock::now();
  if (store.add(arrived, 1) >= rank_info.ranks) store.set(all_here, std::vector<uint8_t>{1});
  bool said = false;
  const auto passed = [&] {
    return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - start);
  };
  const auto fails = [&] { return rendezvous.watch != nullptr && rendezvous.watch->failed(); };
  const auto look = [&] {
    return stop_requested() || fails() || (!said && passed() >= kSayWaiting);
  };
  for (;;) {
    const auto left = std::max(timeout - passed(), milliseconds(1));
    if (is_there(rendezvous, rank_info, all_here, left, look)) return;
    const bool late = passed() >= timeout;
    if (!stop_requested() && !late && !fails() && (said || passed() < kSayWaiting)) continue;
    const std::string count =
        octavo::str(store.add(arrived, 0), " of ", rank_info.ranks, " ranks are here");
    if (stop_requested()) {
      const std::string why = octavo::str("asked to stop (", stop_reason(),
                                          ") while waiting for ranks: ", count, "; no step ran");
      announce_exit(rendezvous, rank_info, why, ExitCode::kStopped);
      fail(ExitCode::kStopped, "dist", why);
    }
    if (fails() || late) fail_lost(rendezvous, rank_info, "connecting", 0, count);
    log_info(octavo::str("waiting for the other ranks: ", count));
    said = true;
  }
}

}  // namespace octavo::dist
