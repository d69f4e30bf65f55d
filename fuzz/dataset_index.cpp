// dataset.json. Its fingerprint is put right here, as an attacker would, so that what is behind it
// is reached.
#include "data/dataset_index.h"
#include "fuzz/harness.h"

OCTAVO_FUZZ_TARGET(input) {
  using namespace octavo;
  static fuzz::ScratchFolder folder;
  const auto read = [&](std::string_view text) {
    return fuzz::refusal_of([&] {
      folder.write(data::kIndexName, text);
      const data::DatasetIndex index = data::read_index(folder.path());
      for (const auto& [name, split] : index.splits) {
        split.tokens();
        for (const data::ShardInfo& shard : split.shards)
          fuzz::refusal_of([&] { data::shard_is_intact(folder.path(), shard); });
      }
      data::write_index(folder.path(), index);
      fuzz::check(data::read_index(folder.path()).fingerprint() == index.fingerprint(),
                  "an index that reads back otherwise");
    });
  };
  const std::string refusal = read(input);
  constexpr std::string_view kWanted = "wanted fingerprint ", kFound = ", its content gives ";
  const size_t wanted = refusal.find(kWanted), found = refusal.rfind(kFound);
  if (wanted == refusal.npos || found == refusal.npos) return;
  const std::string stated =
      refusal.substr(wanted + kWanted.size(), found - wanted - kWanted.size());
  const std::string right = refusal.substr(found + kFound.size(), 32);
  std::string text(input);
  const size_t at = text.find("\"" + stated + "\"");
  if (at == text.npos) return;
  read(text.replace(at + 1, stated.size(), right));
}
