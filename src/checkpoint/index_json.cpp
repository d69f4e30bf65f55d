// The manifest's index to and from JSON: {"model": {"h.0.attn": {"dtype", "shape", "rank",
// "every"}}}, where a tensor in one piece has no "every", and pieces of uneven sizes are listed
// under "at" as [first row, rank].
#include "checkpoint/index_json.h"
#include "base/error.h"
#include "checkpoint/sealed_json.h"

namespace octavo::checkpoint {
namespace {

int checked_rank(const Json& value, size_t ranks, const std::string& source) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() >= ranks)
    fail(ExitCode::kDamaged, "checkpoint", source, ": wanted a rank below ", ranks, ", found ",
         quote_name(value.dump()));
  return static_cast<int>(value.get<uint64_t>());
}

// Ordered, beginning with row 0, each with rows.
void read_uneven(const Json& list, size_t ranks, const std::string& source, TensorLocation& place) {
  for (const Json& piece : list) {
    const bool pair = piece.is_array() && piece.size() == 2 && piece[0].is_number_unsigned();
    const int64_t before = place.at.empty() ? -1 : place.at.back().first;
    const int64_t row =
        pair && piece[0].get<uint64_t>() < uint64_t{INT64_MAX} ? piece[0].get<int64_t>() : -1;
    if (row <= before || (place.at.empty() && row != 0) || row >= row_count(place.shape))
      fail(ExitCode::kDamaged, "checkpoint", source, ": pieces out of order or beyond the tensor");
    place.at.emplace_back(row, checked_rank(piece[1], ranks, source));
  }
  if (place.at.empty()) fail(ExitCode::kDamaged, "checkpoint", source, ": a tensor without pieces");
}

TensorLocation parse_place(const Json& entry, size_t ranks, const std::string& source) {
  TensorLocation place;
  place.dtype = dtype_field(entry, "dtype", source);
  place.shape = shape_field(entry, "shape", source);
  if (entry.contains("at")) {
    read_uneven(json_field(entry, "at", Json::value_t::array, source), ranks, source, place);
    return place;
  }
  place.first_rank = checked_rank(entry.value("rank", Json()), ranks, source);
  if (!entry.contains("every")) return place;
  place.every = json_int(entry, "every", source);
  const int64_t rows = row_count(place.shape);
  if (place.every < 1 || place.every >= rows ||
      (rows - 1) / place.every >= static_cast<int64_t>(ranks) - place.first_rank)
    fail(ExitCode::kDamaged, "checkpoint", source, ": pieces of ", place.every,
         " rows do not fit a tensor of ", rows, " and ", ranks, " ranks");
  return place;
}

}  // namespace

Json index_to_json(const Index& index) {
  Json groups = Json::object();
  for (const auto& [group, tensors] : index) {
    Json& list = groups[group] = Json::object();
    for (const auto& [name, place] : tensors) {
      Json& entry = list[name];
      entry = {{"dtype", safetensors_dtype_name(place.dtype)}, {"shape", place.shape}};
      if (!place.at.empty()) {
        entry["at"] = place.at;
        continue;
      }
      entry["rank"] = place.first_rank;
      if (place.every > 0) entry["every"] = place.every;
    }
  }
  return groups;
}

Index index_from_json(const Json& groups, size_t ranks, const std::string& source) {
  Index index;
  for (const auto& group : groups.items()) {
    const std::string problem = file_name_problem(group.key() + kShardSuffix);
    if (!problem.empty() || !group.value().is_object())
      fail(ExitCode::kDamaged, "checkpoint", source, ": group name ", quote_name(group.key()),
           " refused: ", problem.empty() ? "wanted an object of tensors" : problem);
    for (const auto& item : group.value().items()) {
      const std::string where = source + ": tensor " + quote_name(item.key());
      const std::string trouble = tensor_name_problem(item.key());
      if (!trouble.empty() || !item.value().is_object())
        fail(ExitCode::kDamaged, "checkpoint", where, " refused: ", trouble);
      index[group.key()][item.key()] = parse_place(item.value(), ranks, where);
    }
  }
  return index;
}

}  // namespace octavo::checkpoint
