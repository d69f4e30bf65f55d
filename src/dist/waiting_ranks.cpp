#include "dist/waiting_ranks.h"

#include <charconv>

#include "base/error.h"
#include "dist/key_value_store.h"

namespace octavo::dist {
namespace {

std::string key_of(int64_t rank) {
  return octavo::str("waits/at/", rank);
}

// "<renewals> <order> <name>"; nothing when it is not so.
std::optional<WaitingPlace> parsed(const std::string& said) {
  const size_t first = said.find(' ');
  const size_t second = first == std::string::npos ? first : said.find(' ', first + 1);
  if (second == std::string::npos) return std::nullopt;
  WaitingPlace place{.name = said.substr(second + 1)};
  const char* const end = said.data() + second;
  const auto [stop, error] = std::from_chars(said.data() + first + 1, end, place.order);
  if (error != std::errc{} || stop != end) return std::nullopt;
  return place;
}

}  // namespace

std::string AbsentRanks::text() const {
  std::string text = count == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < first.size(); ++i) text += octavo::str(i == 0 ? "" : ", ", first[i]);
  const auto more = count - std::ssize(first);
  return more > 0 ? octavo::str(text, " and ", more, " more") : text;
}

std::optional<AbsentRanks> WaitingRanks::ask(KeyValueStore& store, const WaitingPlace& place) {
  const std::string prefix =
      octavo::str("waits/", place.first, ".", place.stride, "/", place.name, "/");
  const std::string own = std::to_string(place.rank);
  store.set(key_of(rank_), octavo::str(++asked_, " ", place.order, " ", place.name));
  if (name_ != place.name) {
    store.set(prefix + own, "1");
    asks_ = store.set_first(prefix + "asks", own) == own;
    begun_.clear();
    name_ = place.name;
  }
  if (!asks_) return std::nullopt;
  const rendezvous::Missing missing = store.missing(prefix, place.size);
  AbsentRanks absent{.count = missing.count};
  for (const int64_t number : missing.first) {
    const int64_t rank = place.first + place.stride * number;
    absent.first.push_back(rank);
    const std::string said = store.try_get(key_of(rank)).value_or("");
    const std::optional<WaitingPlace> there = parsed(said), then = parsed(begun_[rank]);
    if (!there || !then || then->name != there->name)
      begun_[rank] = said;  // it says so for the first time here, or has moved since
    else if (said != begun_[rank])
      absent.elsewhere.push_back({rank, *there});
  }
  return absent;
}

}  // namespace octavo::dist
