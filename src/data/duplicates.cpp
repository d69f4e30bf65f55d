#include "data/duplicates.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/checked.h"
#include "base/error.h"

namespace octavo::data {
namespace {

constexpr uint64_t kPartBytes = uint64_t{1} << 30;
constexpr size_t kMostParts = 1024;

static_assert(sizeof(DocumentHash) == 32 && sizeof(DocumentPlace) == 16);

// At the front of a file of hashes, one for each part.
struct HashPart {
  uint64_t begin = 0, count = 0;  // records
  std::array<char, 32> hash{};    // of its records
};

size_t part_of(const DocumentHash& document, size_t parts) {
  const size_t first_bits = size_t{document.hash[0]} << 8 | document.hash[1];
  return first_bits * parts >> 16;
}

[[noreturn]] void fail_damaged(const fs::path& path) {
  fail(ExitCode::kDamaged, "data", path.string(),
       " is damaged; delete its folder and prepare the data again");
}

void append_part(const fs::path& path, size_t part, size_t parts, std::vector<DocumentHash>& all) {
  const MappedFile file(path);
  const auto bytes = file.bytes();
  const size_t table = parts * sizeof(HashPart);
  if (bytes.size() < table || (bytes.size() - table) % sizeof(DocumentHash) != 0)
    fail_damaged(path);
  HashPart entry;
  std::memcpy(&entry, bytes.data() + part * sizeof entry, sizeof entry);
  const uint64_t records = (bytes.size() - table) / sizeof(DocumentHash);
  if (entry.begin > records || entry.count > records - entry.begin) fail_damaged(path);
  const auto content =
      bytes.subspan(table + entry.begin * sizeof(DocumentHash), entry.count * sizeof(DocumentHash));
  if (hash_array(content) != entry.hash) fail_damaged(path);
  const size_t before = all.size();
  all.resize(before + entry.count);
  if (entry.count > 0) std::memcpy(all.data() + before, content.data(), content.size());
}

}  // namespace

size_t hash_parts(uint64_t source_bytes) {
  return std::clamp<size_t>(ceil_div(source_bytes, kPartBytes), 1, kMostParts);
}

void write_hashes(const fs::path& folder, const std::string& name,
                  std::vector<DocumentHash> documents, size_t parts) {
  std::sort(documents.begin(), documents.end());  // so by parts, too
  std::vector<HashPart> table(parts);
  for (size_t part = 0, at = 0; part < parts; ++part) {
    table[part].begin = at;
    while (at < documents.size() && part_of(documents[at], parts) == part) ++at;
    table[part].count = at - table[part].begin;
    table[part].hash = hash_array(
        std::as_bytes(std::span(documents).subspan(table[part].begin, table[part].count)));
  }
  FileWriter writer(folder / name);
  writer.write(std::as_bytes(std::span(table)));
  writer.write(std::as_bytes(std::span(documents)));
  writer.close();
}

std::string write_duplicates(const fs::path& from, const std::vector<std::string>& files,
                             size_t part, size_t parts, const fs::path& folder,
                             const std::string& name) {
  std::vector<DocumentHash> all;
  for (const std::string& file : files) append_part(from / file, part, parts, all);
  std::sort(all.begin(), all.end());
  std::vector<DocumentPlace> later;
  for (size_t i = 1; i < all.size(); ++i)
    if (all[i].hash == all[i - 1].hash) later.push_back(all[i].place);
  std::sort(later.begin(), later.end());
  FileWriter writer(folder / name);
  writer.write(std::as_bytes(std::span(later)));
  return writer.close();
}

void Duplicates::add(const fs::path& path, const std::string& hash) {
  if (fs::file_size(path) == 0) return;  // nothing to map
  auto file = std::make_unique<MappedFile>(path);
  if (file->bytes().size() % sizeof(DocumentPlace) != 0 || hash_bytes(file->bytes()) != hash)
    fail_damaged(path);
  parts_.push_back(std::move(file));
}

std::vector<DocumentPlace> Duplicates::inside(const Chunk& chunk) const {
  const DocumentPlace begin{chunk.begin.file, chunk.begin.offset};
  const DocumentPlace end{chunk.end.file, chunk.end.offset};
  std::vector<DocumentPlace> found;
  for (const auto& part : parts_) {
    const std::span places(reinterpret_cast<const DocumentPlace*>(part->bytes().data()),
                           part->bytes().size() / sizeof(DocumentPlace));
    const auto first = std::lower_bound(places.begin(), places.end(), begin);
    found.insert(found.end(), first, std::lower_bound(first, places.end(), end));
  }
  std::sort(found.begin(), found.end());
  return found;
}

}  // namespace octavo::data
