#include "data/default_tokenizer.h"

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "hub/hub.h"
#include "model_config/presets.h"

namespace octavo::data {
namespace {

constexpr const char* kGpt2 = "openai-community/gpt2";  // all sizes have one tokenizer
constexpr const char* kRemedy =
    "; give --tokenizer PATH with its tokenizer.json (or the folder that holds it), or --tokenizer "
    "bytes when the model is meant to learn bytes";

std::string gpt2_tokenizer(const config::Settings& settings) {
  hub::Options options = hub::model_options(settings);
  options.revision = "main";  // of another repository than the key's
  options.parts = hub::Parts::kTokenizer;
  try {
    const fs::path folder = hub::resolve_model(kGpt2, options);
    log_info(str("tokenizer: of ", kGpt2, ", since model_name is ", settings.model_name));
    return folder.string();
  } catch (const Error& error) {
    fail(error.code(), "hub", "wanted GPT-2's tokenizer, since model_name is ", settings.model_name,
         ", found none: ", error.what(), kRemedy);
  }
}

}  // namespace

std::string default_tokenizer(const config::Settings& settings) {
  const std::string& model = settings.model_name;
  if (model == "custom") {
    log_info("tokenizer: bytes, since model_name custom has none; --tokenizer PATH names one");
    return "bytes";
  }
  if (model_config::is_built_in(model)) return gpt2_tokenizer(settings);
  hub::Options options = hub::model_options(settings);
  options.parts = hub::Parts::kTokenizer;
  const fs::path folder = hub::resolve_model(model, options);
  if (!fs::exists(folder / "tokenizer.json"))
    fail(ExitCode::kUsage, "data", "wanted the tokenizer of the model ", model,
         ", found no tokenizer.json in ", folder.string(), kRemedy);
  log_info(str("tokenizer: of ", model));
  return folder.string();
}

}  // namespace octavo::data
