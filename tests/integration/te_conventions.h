#pragma once
// Where Transformer Engine's functions round or sum in another way than the CPU's operations do. A
// rehearsal that is to be compared with it bit by bit takes these ways too; nothing else of it
// changes.

#include "engine/engine.h"

namespace octavo {

// - LayerNorm's gradient is rounded to BF16 before the residual's is added.
// - Gradients of gamma and beta are summed apart and then added to what there is.
// - Rotary positions are turned by angles, from which cosines and sines are made anew.
void take_conventions(engine::Engine& engine);

}  // namespace octavo
