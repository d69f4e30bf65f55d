#include "train/generate.h"

#include <cstdio>

#include "base/error.h"
#include "cli/core/core_verbs.h"
#include "config/parse.h"
#include "train/persist.h"

namespace octavo::cli {

int generate(CoreArgs args) {
  const config::Parsed parsed = config::parse(args, config::kGenerateArguments);
  const config::Settings& s = parsed.settings;
  train::prepare_process(s);
  const train::Loaded loaded =
      train::load_model(train::checkpoint_dir(s), s.checkpoint, train::target_of(s));
  const auto tokenizer =
      tokenizer::load_tokenizer(s.tokenizer.empty() ? loaded.tokenizer : s.tokenizer);
  if (!loaded.tokenizer_fingerprint.empty() &&
      tokenizer->fingerprint() != loaded.tokenizer_fingerprint)
    fail(ExitCode::kUsage, "cli", "the checkpoint was trained with another tokenizer than '",
         tokenizer->name(), "'; say --tokenizer with the one it was made with (", loaded.tokenizer,
         ")");
  const train::GenerateOptions options{.max_new_tokens = s.max_new_tokens,
                                       .temperature = s.temperature,
                                       .top_k = s.top_k,
                                       .seed = static_cast<uint64_t>(s.seed)};
  std::fputs(s.prompt.c_str(), stdout);
  train::generate(*loaded.engine, *loaded.model, *tokenizer, s.prompt, options,
                  [&](tokenizer::TokenId id) {
                    std::fputs(tokenizer->decode({id}).c_str(), stdout);
                    std::fflush(stdout);
                  });
  std::fputs("\n", stdout);
  return static_cast<int>(ExitCode::kOk);
}

}  // namespace octavo::cli
