#include "checkpoint/pieces.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/checked.h"
#include "base/error.h"

namespace octavo::checkpoint {
namespace {

// Less than this is not worth another file.
constexpr uint64_t kLeastShare = uint64_t{64} << 20;

struct Item {
  std::string group, name;
  const at::Tensor* tensor;
  uint64_t bytes;
};

// Which of `writers` writes each item: the largest first, each to whoever has least so far.
std::vector<int> spread(const std::vector<Item>& items, int writers) {
  uint64_t total = 0;
  for (const Item& item : items) total = checked_add(total, item.bytes, "checkpoint size");
  const uint64_t useful = std::clamp<uint64_t>(ceil_div(total, kLeastShare), 1, writers);
  std::vector<size_t> order(items.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::tie(items[b].bytes, items[a].group, items[a].name) <
           std::tie(items[a].bytes, items[b].group, items[b].name);
  });
  std::vector<uint64_t> load(useful, 0);
  std::vector<int> writer(items.size());
  for (size_t i : order) {
    const auto least = std::min_element(load.begin(), load.end());
    *least += items[i].bytes;
    writer[i] = static_cast<int>(least - load.begin());
  }
  return writer;
}

void check_slice(const std::string& name, const at::Tensor& tensor, const Slice& slice) {
  const bool fits = tensor.defined() && tensor.dim() > 0 && !slice.full_shape.empty() &&
                    tensor.sizes().slice(1) == at::IntArrayRef(slice.full_shape).slice(1) &&
                    slice.first_row >= 0 && tensor.size(0) <= slice.full_shape[0] &&
                    slice.first_row <= slice.full_shape[0] - tensor.size(0);
  if (!fits)
    fail(ExitCode::kUsage, "checkpoint", "tensor ", quote_name(name), ": a slice of shape ",
         tensor.defined() ? octavo::str(tensor.sizes()) : std::string("none"), " from row ",
         slice.first_row, " is not part of ", octavo::str(at::IntArrayRef(slice.full_shape)));
}

const Slice* slice_of(const State& state, const std::string& group, const std::string& name) {
  const auto slices = state.slices.find(group);
  if (slices == state.slices.end()) return nullptr;
  const auto found = slices->second.find(name);
  return found == slices->second.end() ? nullptr : &found->second;
}

}  // namespace

std::vector<PlacedPiece> pieces_with(const TensorLocation& place, int64_t first, int64_t count) {
  const int64_t rows = row_count(place.shape);
  OCTAVO_ASSERT(first >= 0 && count >= 0 && first <= rows && count <= rows - first);
  if (place.at.empty() && place.every == 0) return {{0, rows, place.first_rank}};
  std::vector<PlacedPiece> found;
  if (place.at.empty()) {
    for (int64_t i = first / place.every; i * place.every < first + count; ++i)
      found.push_back({i * place.every, std::min(place.every, rows - i * place.every),
                       place.first_rank + static_cast<int>(i)});
    return found;
  }
  for (size_t i = 0; i < place.at.size(); ++i) {
    const int64_t begin = place.at[i].first;
    const int64_t end = i + 1 < place.at.size() ? place.at[i + 1].first : rows;
    if (begin < first + count && end > first)
      found.push_back({begin, end - begin, place.at[i].second});
  }
  return found;
}

TensorLocation place_of(const std::string& name, at::ScalarType dtype, std::vector<int64_t> shape,
                        std::vector<PlacedPiece> pieces) {
  std::sort(pieces.begin(), pieces.end(), [](const PlacedPiece& a, const PlacedPiece& b) {
    return std::tie(a.first_row, a.rank) < std::tie(b.first_row, b.rank);
  });
  int64_t next = 0;
  for (const PlacedPiece& piece : pieces) {
    if (piece.first_row != next)
      fail(ExitCode::kEnvironment, "checkpoint", "tensor ", quote_name(name),
           ": the pieces of the ranks do not make up the whole: wanted row ", next, ", found row ",
           piece.first_row, " of rank ", piece.rank);
    next += piece.rows;
  }
  if (next != row_count(shape))
    fail(ExitCode::kEnvironment, "checkpoint", "tensor ", quote_name(name),
         ": the pieces of the ranks have ", next, " rows, wanted ", row_count(shape));
  TensorLocation place{dtype, std::move(shape), 0, pieces.front().rank, {}};
  if (pieces.size() == 1) return place;
  place.every = pieces.front().rows;
  bool regular = pieces.back().rows <= place.every;
  for (size_t i = 0; i < pieces.size(); ++i)
    regular = regular && pieces[i].rank == place.first_rank + static_cast<int>(i) &&
              (i + 1 == pieces.size() || pieces[i].rows == place.every);
  if (regular) return place;
  place.every = 0;
  for (const PlacedPiece& piece : pieces) place.at.emplace_back(piece.first_row, piece.rank);
  return place;
}

uint64_t full_bytes(const State& state, const std::string& group, const std::string& name,
                    const at::Tensor& tensor) {
  uint64_t bytes = tensor.element_size();
  const Slice* slice = slice_of(state, group, name);
  for (int64_t size : slice != nullptr ? at::IntArrayRef(slice->full_shape) : tensor.sizes())
    bytes = checked_mul(bytes, static_cast<uint64_t>(size), "tensor size");
  return bytes;
}

std::map<std::string, NamedTensors> share_of(const State& state, const Part& part) {
  const int shards = part.shards > 0 ? part.shards : part.ranks;
  OCTAVO_ASSERT(part.rank >= 0 && part.rank < part.ranks && part.ranks % shards == 0);
  std::vector<Item> whole, sliced;
  for (const auto& [group, tensors] : state.groups)
    for (const auto& [name, tensor] : tensors) {
      const Slice* slice = slice_of(state, group, name);
      if (slice != nullptr) check_slice(name, tensor, *slice);
      if (!tensor.defined())
        fail(ExitCode::kUsage, "checkpoint", "tensor ", quote_name(name), " is undefined");
      (slice != nullptr ? sliced : whole)
          .push_back({group, name, &tensor, full_bytes(state, group, name, tensor)});
    }
  std::map<std::string, NamedTensors> share;
  const auto take = [&](const std::vector<Item>& items, int writers, int me) {
    const auto writer = spread(items, writers);
    for (size_t i = 0; i < items.size(); ++i)
      if (writer[i] == me) share[items[i].group].emplace_back(items[i].name, *items[i].tensor);
  };
  take(whole, part.ranks, part.rank);
  // Rank r has slice r % shards of each; the ranks with the same one share the writing.
  take(sliced, part.ranks / shards, part.rank / shards);
  // An empty slice of a tensor that has rows is nobody's.
  for (auto& [group, tensors] : share)
    std::erase_if(tensors, [&, &group = group](const auto& item) {
      const Slice* slice = slice_of(state, group, item.first);
      return slice != nullptr && item.second.size(0) == 0 &&
             (slice->full_shape[0] > 0 || part.rank % shards != 0);
    });
  std::erase_if(share, [](const auto& group) { return group.second.empty(); });
  return share;
}

}  // namespace octavo::checkpoint
