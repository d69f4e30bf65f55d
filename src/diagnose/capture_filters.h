#pragma once
// Which layers of a captured model to keep in BF16, and how to say so to a trainer.

#include <string>
#include <vector>

#include "diagnose/what_if.h"

namespace octavo::diagnose {

struct KeptLayer {
  std::string layer, why;
  bool is_sick = false;  // otherwise the hardware refuses its sizes
};

// The layers of which a tensor is beyond the limits of health, or that the recipe cannot run.
std::vector<KeptLayer> kept_in_bf16(const std::vector<LayerStats>& layers, const Variant& variant);

// The same list for three trainers: a program's lines each; for octavo the line of a config, in
// which names of Hugging Face and torchtitan models are those of ours, and which leaves to it what
// it finds itself: sizes that a recipe refuses, of matrices that are cut otherwise there.
struct Filters {
  std::string torchao, transformer_engine, octavo;
};
Filters filters_for(const std::vector<KeptLayer>& kept);

// What octavo calls such a layer; "" when it is always in BF16 there (the head).
std::string octavo_name(const std::string& layer);

}  // namespace octavo::diagnose
