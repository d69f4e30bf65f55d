#pragma once
// Which matrices may run in FP8: the hardware's rules, which the rehearsal keeps too, and the
// layers that the user keeps out.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "fp8/recipe.h"

namespace octavo::fp8 {

// Why a weight [outputs, inputs] cannot run by the recipe, such as "outputs 50257 is not a multiple
// of 16"; "" when it can. Each side is summed over, or is the width of a result, in some GEMM.
std::string refusal(Recipe recipe, int64_t outputs, int64_t inputs);
// The same of the tokens of a micro-batch, which the weight gradient sums over. The other two
// GEMMs take any number. Where training runs here, rows of zeros make it up
// (engine/padded_fp8_linear.h): the rows that are missing, 0 when none is.
std::string token_refusal(Recipe recipe, int64_t tokens);
int64_t padding(Recipe recipe, int64_t tokens);

// A linear layer as fp8_skip sees it.
struct LayerName {
  std::string name;    // "h.0.attn.c_attn"
  int64_t block = -1;  // -1: in no block
};

// The first pattern of fp8_skip that keeps the layer out, or "". A pattern is a glob (* and ?) over
// layer names, or one of the words first and last: all layers of the first or last of `blocks`;
// first:3 and last:3 mean three of them, none means no layer.
std::string skipped_by(std::span<const std::string> patterns, const std::string& layer,
                       int64_t block, int64_t blocks);
// What fp8_skip is when it is not given. nvfp4: the last 15% of the blocks, as torchtitan has it.
std::vector<std::string> default_skip(Recipe recipe, int64_t blocks);
// The patterns that match no layer: surely a mistake.
std::vector<std::string> unmatched(std::span<const std::string> patterns,
                                   std::span<const LayerName> layers, int64_t blocks);
// What to say of the first of them; "": all match.
std::string skip_problem(std::span<const std::string> patterns, std::span<const LayerName> layers,
                         int64_t blocks);

}  // namespace octavo::fp8
