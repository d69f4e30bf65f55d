#include "train/state/model_tokenizer.h"

#include "base/error.h"

namespace octavo::train {

std::unique_ptr<tokenizer::Tokenizer> tokenizer_of(const Loaded& loaded, const std::string& named) {
  std::error_code none;
  const fs::path folder = loaded.tokenizer;
  if (named.empty() && fs::is_directory(folder, none) && !fs::exists(folder / "tokenizer.json"))
    fail(ExitCode::kUsage, "train", "wanted the tokenizer of the model in ", loaded.tokenizer,
         ", found no tokenizer.json there; give --tokenizer PATH with its tokenizer.json, or "
         "--tokenizer bytes for a model of bytes");
  auto tokenizer = tokenizer::load_tokenizer(named.empty() ? loaded.tokenizer : named);
  if (!loaded.tokenizer_fingerprint.empty() &&
      tokenizer->fingerprint() != loaded.tokenizer_fingerprint)
    fail(ExitCode::kUsage, "train", "the checkpoint was trained with another tokenizer than '",
         tokenizer->name(), "'; give --tokenizer with the one it was made with (", loaded.tokenizer,
         ")");
  return tokenizer;
}

}  // namespace octavo::train
