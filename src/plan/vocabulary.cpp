// The vocabulary of a model whose size does not fix it: that of the config's data or tokenizer, as
// train takes it.

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "config/mixture_keys.h"
#include "data/token_data.h"
#include "hub/hub.h"
#include "plan/shape.h"
#include "tokenizer/tokenizer.h"

namespace octavo::plan {
namespace {

constexpr int64_t kGpt2Vocabulary = 50257;

}  // namespace

int64_t vocabulary_of(const config::Settings& s) {
  if (s.vocab_size > 0) return s.vocab_size;
  std::error_code error;
  const fs::path data = s.dataset.size() == 1 || (config::is_mixture(s) && !s.dataset.empty())
                            ? s.dataset.front()
                            : "";
  try {
    if (!data.empty() && fs::exists(data / "dataset.json", error))
      return data::TokenData::open(data, "train")->vocab_size();
    if (!s.tokenizer.empty())
      return tokenizer::load_tokenizer(hub::resolve_tokenizer(s.tokenizer, s))->vocab_size();
    if (s.model_name == "custom" && !s.dataset.empty())
      return tokenizer::load_tokenizer("bytes")->vocab_size();  // what train takes without one
  } catch (const Error& problem) {
    // A plan may be made where the run's files are not.
    log_warn_once(str("vocabulary: ", kGpt2Vocabulary,
                      " tokens (GPT-2's) are assumed, since the config's tokenizer or data cannot "
                      "be read: ",
                      problem.what(), "; give vocab_size"));
  }
  return kGpt2Vocabulary;
}

}  // namespace octavo::plan
