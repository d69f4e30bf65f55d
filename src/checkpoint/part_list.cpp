#include "checkpoint/part_list.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/sealed_json.h"

namespace octavo::checkpoint {
namespace {

std::string numbered(size_t rank, size_t ranks) {
  char text[64];
  std::snprintf(text, sizeof text, "-%05zu-of-%05zu", rank + 1, ranks);
  return text;
}

Json piece_entry(const ListedPiece& piece) {
  return {{"dtype", safetensors_dtype_name(piece.dtype)},
          {"shape", piece.shape},
          {"first_row", piece.first_row},
          {"rows", piece.rows}};
}

ListedPiece parse_piece(const Json& entry, const std::string& source) {
  ListedPiece piece;
  piece.dtype = dtype_field(entry, "dtype", source);
  piece.shape = shape_field(entry, "shape", source);
  piece.first_row = json_int(entry, "first_row", source);
  piece.rows = json_int(entry, "rows", source);
  const int64_t all = row_count(piece.shape);
  if (piece.first_row < 0 || piece.rows < 0 || piece.first_row > all ||
      piece.rows > all - piece.first_row)
    fail(ExitCode::kDamaged, "checkpoint", source, ": rows ", piece.first_row, " and ", piece.rows,
         " more are not in a tensor of ", all);
  return piece;
}

ListedFile parse_listed(const Json& entry, const std::string& source) {
  ListedFile listed{parse_file_entry(entry, source), {}};
  const Json& pieces = json_field(entry, "pieces", Json::value_t::object, source);
  for (const auto& item : pieces.items()) {
    if (!listed.file.tensor_hashes.contains(item.key()))
      fail(ExitCode::kDamaged, "checkpoint", source, ": tensor ", quote_name(item.key()),
           " has no hash");
    listed.pieces[item.key()] =
        parse_piece(item.value(), source + ": tensor " + quote_name(item.key()));
  }
  if (listed.pieces.size() != listed.file.tensor_hashes.size())
    fail(ExitCode::kDamaged, "checkpoint", source, ": file ", listed.file.name,
         ": tensors and hashes differ");
  return listed;
}

}  // namespace

std::string part_name(size_t rank, size_t ranks) {
  return "part" + numbered(rank, ranks) + ".json";
}

std::string part_failure_name(size_t rank, size_t ranks) {
  return "part" + numbered(rank, ranks) + ".failed";
}

std::string part_file_name(const std::string& group, int rank, int ranks) {
  return group + numbered(static_cast<size_t>(rank), static_cast<size_t>(ranks)) + kShardSuffix;
}

std::string part_text(const PartList& list) {
  Json files = Json::array();
  for (const ListedFile& listed : list.files) {
    Json entry = file_entry(listed.file);
    entry["pieces"] = Json::object();
    for (const auto& [name, piece] : listed.pieces) entry["pieces"][name] = piece_entry(piece);
    files.push_back(std::move(entry));
  }
  return sealed_text({{"version", kPartsVersion},
                      {"step", list.step},
                      {"save_id", list.save_id},
                      {"rank", list.rank},
                      {"ranks", list.ranks},
                      {"files", files}},
                     "list of a rank's files");
}

PartList parse_part(std::string_view text, const std::string& source) {
  const Json json = unsealed(text, source);
  PartList list;
  const int64_t version = json_int(json, "version", source);
  const int64_t rank = json_int(json, "rank", source), ranks = json_int(json, "ranks", source);
  if (version != kPartsVersion || ranks < 1 || ranks > INT32_MAX || rank < 0 || rank >= ranks)
    fail(ExitCode::kDamaged, "checkpoint", source, ": wanted a list of version ", kPartsVersion,
         " and a rank of its run, found version ", version, ", rank ", rank, " of ", ranks);
  list.step = json_int(json, "step", source);
  list.save_id = label_field(json, "save_id", source);
  list.rank = static_cast<int>(rank);
  list.ranks = static_cast<int>(ranks);
  for (const Json& entry : json_field(json, "files", Json::value_t::array, source)) {
    list.files.push_back(parse_listed(entry, source));
    const ManifestFile& file = list.files.back().file;
    if (file.rank != list.rank || file.name != part_file_name(file.group, list.rank, list.ranks))
      fail(ExitCode::kDamaged, "checkpoint", source, ": file ", file.name, " is not of rank ",
           list.rank);
  }
  return list;
}

PartList read_part(const fs::path& folder, const Manifest& manifest, int rank) {
  const PartEntry& entry = manifest.parts.at(static_cast<size_t>(rank));
  const auto damaged = [&](const std::string& problem) {
    fail(ExitCode::kDamaged, "checkpoint", folder.string(), " is damaged: ", problem,
         "; take another one (`octavo checkpoints list`)");
  };
  if (const std::string problem = size_problem(folder, entry.name, entry.size); !problem.empty())
    damaged(problem);
  const fs::path path = folder / entry.name;
  const std::string text = read_file(path, JsonLimits{}.max_bytes);
  PartList list = parse_part(text, path.string());  // first: it says what is damaged
  if (hash_bytes(std::as_bytes(std::span(text.data(), text.size()))) != entry.hash ||
      list.rank != rank || list.save_id != manifest.save_id)
    damaged(entry.name + ": not the list that the manifest was made with");
  const size_t stated = static_cast<size_t>(
      std::count_if(manifest.files.begin(), manifest.files.end(),
                    [&](const ManifestFile& file) { return file.rank == rank; }));
  if (stated != list.files.size()) damaged(entry.name + ": lists other files than the manifest");
  return list;
}

void add_part(const PartList& list, std::string_view text, Manifest& manifest) {
  manifest.parts.push_back(
      {part_name(static_cast<size_t>(list.rank), static_cast<size_t>(list.ranks)),
       hash_bytes(std::as_bytes(std::span(text.data(), text.size()))), text.size()});
  for (const ListedFile& listed : list.files) {
    manifest.files.push_back(listed.file);
    manifest.files.back().tensor_hashes.clear();
  }
}

Index make_index(const std::vector<PartList>& lists) {
  struct Gathered {
    ListedPiece first;
    std::vector<PlacedPiece> pieces;
  };
  std::map<std::string, std::map<std::string, Gathered>> all;
  for (const PartList& list : lists)
    for (const ListedFile& listed : list.files)
      for (const auto& [name, piece] : listed.pieces) {
        Gathered& gathered = all[listed.file.group][name];
        if (gathered.pieces.empty()) gathered.first = piece;
        if (gathered.first.shape != piece.shape || gathered.first.dtype != piece.dtype)
          fail(ExitCode::kEnvironment, "checkpoint", "tensor ", quote_name(name), ": ranks ",
               gathered.pieces.front().rank, " and ", list.rank,
               " have pieces of different shapes or types");
        gathered.pieces.push_back({piece.first_row, piece.rows, list.rank});
      }
  Index index;
  for (auto& [group, tensors] : all)
    for (auto& [name, gathered] : tensors)
      index[group][name] =
          place_of(name, gathered.first.dtype, gathered.first.shape, std::move(gathered.pieces));
  return index;
}

}  // namespace octavo::checkpoint
