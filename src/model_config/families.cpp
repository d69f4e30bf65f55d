#include <algorithm>

#include "model_config/family.h"

namespace octavo::model_config {
namespace {

std::vector<const Family*>& known_families() {
  static std::vector<const Family*> known = {
      &kGpt2Family,     &kLlamaFamily,   &kQwen2Family, &kMistralFamily, &kQwen3Family,
      &kQwen3MoeFamily, &kSmolLm3Family, &kOlmo2Family, &kOlmo3Family,   &kGemma3Family};
  return known;
}

}  // namespace

const std::vector<const Family*>& families() {
  return known_families();
}

const Family* find_family(std::string_view model_type) {
  const auto found = std::ranges::find_if(
      families(), [&](const Family* family) { return family->model_type == model_type; });
  return found == families().end() ? nullptr : *found;
}

void add_family(const Family& family) {
  OCTAVO_ASSERT(find_family(family.model_type) == nullptr);
  known_families().push_back(&family);
}

}  // namespace octavo::model_config
