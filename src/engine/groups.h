#pragma once
// GEMMs of rows in groups, each group with weights of its own: the experts of a mixture, whose rows
// are sorted by expert. Every group is one GEMM with the numbers that it would have by itself, so
// the bits are those of a loop over groups with as many rows.
//
// On a CPU such GEMMs are small and many: a thread takes a group as a whole, which costs no wait
// for the other threads within a GEMM. And their rows are data, so that every step has other
// numbers of them, while oneDNN compiles a kernel for each number, in milliseconds: groups are
// filled up with rows of zeros, to few numbers. A GPU has its groups one after the other.

#include <cstdint>
#include <functional>
#include <span>

#include "engine/op_table.h"

namespace octavo::engine {

// The rows that a group of `rows` is to have in GEMMs in the target's compute dtype, above 256 at
// most an eighth more; the others are zeros. FP8 GEMMs have a multiple of their own
// (padded_fp8_linear.h).
int64_t filled_rows(const Target& target, int64_t rows);

// work(group) for each group, of which number i has the rows bounds[i] to bounds[i + 1]. On a CPU
// by several threads, unless one group has more rows than a thread's part: in such a loop work()
// runs with the calling thread's settings (gradients are off, …), and its own loops and GEMMs on
// one thread. The first exception is thrown again.
void for_each_group(const Target& target, std::span<const int64_t> bounds,
                    const std::function<void(size_t group)>& work);

}  // namespace octavo::engine
