#pragma once
// A model that trains in milliseconds on a CPU and whose sides every 16-wide recipe takes.

#include "config/settings.h"

namespace octavo {

inline config::Settings tiny_settings() {
  config::Settings s;
  s.device = config::DeviceChoice::kCpu;
  s.model_name = "custom";
  s.n_layer = 2;
  s.n_head = 2;
  s.n_embd = 64;
  s.vocab_size = 256;
  s.max_seq_length = 32;
  s.batch_size = 4;
  return s;
}

}  // namespace octavo
