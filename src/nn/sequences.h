#pragma once
// Which tokens of a batch belong together. A batch is T tokens in a row; a sequence sees itself
// only and counts its positions from 0. Rows of equal length are the plain case, packed documents
// the general one.

#include <ATen/core/Tensor.h>

#include <vector>

namespace octavo::nn {

struct KvCache;

struct Sequences {
  std::vector<int64_t> bounds;  // sequence i is tokens bounds[i] to bounds[i + 1]; the last is T
  at::Tensor positions;         // [T] int32: of each token in its sequence
  at::Tensor starts;            // [sequences + 1] int32: bounds, for kernels of a GPU
  int64_t longest = 0;          // tokens of the longest sequence
  int64_t rows_of = 0;          // the length of all sequences when it is the same, else 0

  // `starts`: where sequences begin, ascending from 0.
  static Sequences from_starts(const std::vector<int32_t>& starts, int64_t total,
                               at::Device device);
};

// What a model reads.
struct Tokens {
  at::Tensor ids;  // [T] int32
  Sequences sequences;
  // When not null the tokens continue the one sequence whose keys and values are there, and theirs
  // are added to it. Not for training.
  KvCache* cache = nullptr;
};

// T / length sequences of `length` tokens.
Tokens rows_of(const at::Tensor& ids, int64_t length);
// The next tokens of the cache's sequence.
Tokens continuation(const at::Tensor& ids, KvCache& cache);

}  // namespace octavo::nn
