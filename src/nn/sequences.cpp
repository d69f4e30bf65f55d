#include "nn/sequences.h"

#include <ATen/ATen.h>

#include "base/error.h"
#include "nn/kv_cache.h"

namespace octavo::nn {
namespace {

at::Tensor positions_of(const std::vector<int64_t>& bounds) {
  at::Tensor positions = at::empty({bounds.back()}, at::kInt);
  auto* out = positions.mutable_data_ptr<int32_t>();
  for (size_t i = 0; i + 1 < bounds.size(); ++i)
    for (int64_t t = bounds[i]; t < bounds[i + 1]; ++t)
      out[t] = static_cast<int32_t>(t - bounds[i]);
  return positions;
}

}  // namespace

Sequences Sequences::from_starts(const std::vector<int32_t>& starts, int64_t total,
                                 at::Device device) {
  Sequences made;
  for (const int32_t start : starts) {
    OCTAVO_ASSERT(made.bounds.empty() ? start == 0 : start > made.bounds.back());
    made.bounds.push_back(start);
  }
  OCTAVO_ASSERT(!made.bounds.empty() && made.bounds.back() < total);
  made.bounds.push_back(total);
  made.rows_of = made.bounds[1];
  for (size_t i = 0; i + 1 < made.bounds.size(); ++i) {
    const int64_t length = made.bounds[i + 1] - made.bounds[i];
    made.longest = std::max(made.longest, length);
    if (length != made.rows_of) made.rows_of = 0;
  }
  made.positions = positions_of(made.bounds).to(device);
  made.starts = at::tensor(made.bounds, at::kInt).to(device);
  return made;
}

Tokens rows_of(const at::Tensor& ids, int64_t length) {
  OCTAVO_ASSERT(length > 0 && ids.size(0) > 0 && ids.size(0) % length == 0);
  std::vector<int32_t> starts;
  for (int64_t t = 0; t < ids.size(0); t += length) starts.push_back(static_cast<int32_t>(t));
  return {ids, Sequences::from_starts(starts, ids.size(0), ids.device())};
}

Tokens continuation(const at::Tensor& ids, KvCache& cache) {
  Tokens tokens = rows_of(ids, ids.size(0));
  if (cache.length > 0) {
    tokens.sequences.positions = tokens.sequences.positions + cache.length;
    tokens.sequences.longest += cache.length;
    tokens.sequences.rows_of = 0;  // does not begin at position 0
  }
  tokens.cache = &cache;
  return tokens;
}

KvCache::KvCache(int64_t layers, int64_t rows, int64_t width, const at::TensorOptions& options)
    : capacity(rows) {
  for (int64_t i = 0; i < layers; ++i) {
    keys.push_back(at::empty({rows, width}, options));
    values.push_back(at::empty({rows, width}, options));
  }
}

void KvCache::append(int64_t layer, const at::Tensor& new_keys, const at::Tensor& new_values) {
  const auto i = static_cast<size_t>(layer);
  const int64_t count = new_keys.size(0);
  OCTAVO_ASSERT(length + count <= capacity);
  keys[i].narrow(0, length, count).copy_(new_keys);
  values[i].narrow(0, length, count).copy_(new_values);
}

KvCache::Rows KvCache::rows(int64_t layer, int64_t count) const {
  const auto i = static_cast<size_t>(layer);
  return {keys[i].narrow(0, 0, length + count), values[i].narrow(0, 0, length + count)};
}

}  // namespace octavo::nn
