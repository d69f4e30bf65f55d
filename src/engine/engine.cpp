#include "engine/engine.h"

#include "engine/padded_fp8_linear.h"

namespace octavo::engine {

Engine::Engine(const Target& wanted)
    : target(wanted),
      matmul(pick<Matmul>(wanted, choices)),
      fp8_linear(with_padding(pick<Fp8Linear>(wanted, choices))),
      layer_norm(pick<LayerNorm>(wanted, choices)),
      rms_norm(pick<RmsNorm>(wanted, choices)),
      gelu(pick<Gelu>(wanted, choices)),
      swiglu(pick<SwiGlu>(wanted, choices)),
      geglu(pick<GeGlu>(wanted, choices)),
      rope(pick<Rope>(wanted, choices)),
      column_sum(pick<ColumnSum>(wanted, choices)),
      cross_entropy(pick<CrossEntropy>(wanted, choices)),
      attention(pick<Attention>(wanted, choices)),
      embedding(pick<Embedding>(wanted, choices)),
      adamw(pick<AdamW>(wanted, choices)) {}

}  // namespace octavo::engine
