#pragma once
// FP8 GEMMs over any number of tokens. The weight gradient sums over them, so that the hardware
// wants a multiple of 16 or 32 (RecipeTraits::token_multiple); what is missing is made up here, in
// front of every implementation alike, by rows of zeros. They change no number: a scale is of the
// largest magnitude, to which zeros do not add, and a zero adds nothing to a sum. Of the other two
// GEMMs' results the rows of the zeros are cut off.

#include <memory>

#include "engine/fp8_linear.h"

namespace octavo::engine {

// Every matrix is taken for one whose rows are tokens. Those of weights are multiples already in a
// layer that runs in FP8 (fp8/legality.h).
std::unique_ptr<Fp8Linear> with_padding(std::unique_ptr<Fp8Linear> inner);
// What with_padding() was given; anything else as it is. For weights of any size, as tests have
// them.
Fp8Linear& without_padding(Fp8Linear& op);

// Inputs and gradients that were padded since the start, their rows in all, and the rows of zeros
// that were added.
struct Padding {
  int64_t operands = 0, tokens = 0, zero_rows = 0;
};
// Of what with_padding() made; of anything else nothing.
Padding padding_of(const Fp8Linear& op);

}  // namespace octavo::engine
