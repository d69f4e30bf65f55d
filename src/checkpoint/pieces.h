#pragma once
// Tensors in pieces. Each rank of a run writes the rows that it has; which rank writes what several
// have, and where rows are to be found again, is said here. Private to this module.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"

namespace octavo::checkpoint {

// Rows of a shape; a number alone is one row.
inline int64_t row_count(at::IntArrayRef shape) {
  return shape.empty() ? 1 : shape[0];
}

// Where the rows of one tensor are: an entry of the manifest's index.
struct TensorLocation {
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;
  // Piece i has `every` rows (the last what is left) and is rank first_rank + i's. 0: one piece.
  int64_t every = 0;
  int first_rank = 0;
  std::vector<std::pair<int64_t, int>> at;  // instead: each piece's first row and rank
};

struct PlacedPiece {
  int64_t first_row = 0, rows = 0;
  int rank = 0;
};

// The pieces that have any of these rows, in order. Of an empty tensor its only piece.
std::vector<PlacedPiece> pieces_with(const TensorLocation& place, int64_t first, int64_t count);

// The place of a tensor from its pieces. Fails when they do not make up the whole.
TensorLocation place_of(const std::string& name, at::ScalarType dtype, std::vector<int64_t> shape,
                        std::vector<PlacedPiece> pieces);

// Bytes of a whole tensor of the state, of which this rank may have a slice.
uint64_t full_bytes(const State& state, const std::string& group, const std::string& name,
                    const at::Tensor& tensor);

// What this rank writes of the state: a pure function of names, sizes and the part, so that the
// ranks agree without a word. Slices are written by one of the ranks that have them, whole tensors
// by one of all; by few of them unless there is much to write, so that who loads opens few files.
std::map<std::string, NamedTensors> share_of(const State& state, const Part& part);

}  // namespace octavo::checkpoint
