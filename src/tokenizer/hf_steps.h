#pragma once
// The normalizer, the pre-tokenizer and the decoder of a tokenizer.json as lists of steps. A step
// that is not known here is refused by its name.

#include <vector>

#include "tokenizer/decoder.h"
#include "tokenizer/hf_source.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"

namespace octavo::tokenizer {

// Whether the pre-tokenizer ends with ByteLevel: the vocabulary is then written in its alphabet.
bool is_byte_level(const HfSource& source, const Json& root);

std::vector<NormalizerStep> read_normalizer(const HfSource& source, const Json& root);
std::vector<Stage> read_pre_tokenizer(const HfSource& source, const Json& root);
// Empty for a byte-level file.
std::vector<DecoderStep> read_decoder(const HfSource& source, const Json& root, bool byte_level);

// The pair is refused: which text the Hugging Face library takes for the first one then hangs on
// what the normalizer took away from it.
void check_first_prefix(const HfSource& source, const std::vector<NormalizerStep>& normalizer,
                        const std::vector<Stage>& stages);

}  // namespace octavo::tokenizer
