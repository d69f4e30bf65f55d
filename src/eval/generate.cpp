#include "eval/generate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/random.h"
#include "nn/loss.h"

namespace octavo::eval {
namespace {

using tokenizer::TokenId;

// The ids that may be drawn, ascending.
std::vector<TokenId> candidates(int64_t vocab, const std::vector<TokenId>& never) {
  std::vector<TokenId> ids;
  ids.reserve(static_cast<size_t>(vocab));
  auto skipped = never.begin();
  for (TokenId id = 0; id < vocab; ++id) {
    while (skipped != never.end() && *skipped < id) ++skipped;
    if (skipped == never.end() || *skipped != id) ids.push_back(id);
  }
  if (ids.empty())
    fail(ExitCode::kUsage, "train", "wanted a tokenizer for a vocabulary of ", vocab,
         ", found none of these ids in it; give --tokenizer with the model's own");
  return ids;
}

// The next token from logits; draw `counter` of the seed's stream.
TokenId choose(const at::Tensor& logits, const GenerateOptions& options, uint64_t counter) {
  const float* values = logits.const_data_ptr<float>();
  std::vector<TokenId> order = candidates(logits.numel(), options.never);
  const size_t count = order.size();
  if (options.temperature <= 0)
    return *std::max_element(order.begin(), order.end(),
                             [&](TokenId a, TokenId b) { return values[a] < values[b]; });
  const size_t kept =
      options.top_k > 0 ? std::min(count, static_cast<size_t>(options.top_k)) : count;
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
      [&](TokenId a, TokenId b) { return values[a] != values[b] ? values[a] > values[b] : a < b; });
  std::vector<double> weights(kept);
  double total = 0;
  for (size_t i = 0; i < kept; ++i)
    total += weights[i] = std::exp((values[order[i]] - values[order[0]]) / options.temperature);
  size_t likely = kept;
  if (options.top_p < 1) {  // the fewest that reach top_p; one at least
    double sum = 0;
    for (likely = 0; likely < kept && (likely == 0 || sum < options.top_p * total); ++likely)
      sum += weights[likely];
    total = sum;
  }
  double left = total * uniform_from_bits(philox(options.seed, stream_of("generate"), counter)[0]);
  for (size_t i = 0; i < likely; ++i)
    if ((left -= weights[i]) < 0) return order[i];
  return order[likely - 1];
}

constexpr int64_t kFirstCapacity = 256;

}  // namespace

std::vector<TokenId> ids_without_token(const models::Model& model,
                                       const tokenizer::Tokenizer& tokenizer) {
  std::vector<TokenId> ids;
  for (int64_t id = 0; id < model.vocab_size(); ++id)
    if (!tokenizer.knows(static_cast<TokenId>(id))) ids.push_back(static_cast<TokenId>(id));
  return ids;
}

Generator::Generator(const engine::Engine& engine, const models::Model& model)
    : engine_(engine),
      model_(model),
      cache_(model.make_cache(std::min(kFirstCapacity, model.context()))) {}

// Makes the cache larger, or, at the model's limit, forgets the older half of the text.
bool Generator::make_space(int64_t tokens) {
  if (cache_.length + tokens <= cache_.capacity) return true;
  const int64_t context = model_.context(), wanted = cache_.length + tokens;
  if (wanted <= context) {
    nn::KvCache larger = model_.make_cache(std::min(context, 2 * wanted));
    for (size_t i = 0; i < larger.keys.size(); ++i) {
      larger.keys[i].narrow(0, 0, cache_.length).copy_(cache_.keys[i].narrow(0, 0, cache_.length));
      larger.values[i]
          .narrow(0, 0, cache_.length)
          .copy_(cache_.values[i].narrow(0, 0, cache_.length));
    }
    larger.length = cache_.length;
    cache_ = std::move(larger);
    return true;
  }
  const int64_t kept = std::max<int64_t>(context / 2, 1);
  if (!std::exchange(said_full_, true))
    log_warn(octavo::str("generate: the model's context of ", context,
                         " tokens is full; from here on the last ", kept, " or more are read"));
  text_.erase(text_.begin(), text_.end() - std::min<int64_t>(kept, std::ssize(text_)));
  cache_.length = 0;
  if (cache_.capacity < context) cache_ = model_.make_cache(context);
  return false;
}

at::Tensor Generator::logits_after(std::vector<TokenId> ids) {
  text_.insert(text_.end(), ids.begin(), ids.end());
  if (!make_space(std::ssize(ids))) ids = text_;
  const auto count = std::ssize(ids);
  const at::Tensor window =
      at::from_blob(ids.data(), {count}, at::kInt).clone().to(engine_.target.device);
  const at::Tensor hidden = model_.hidden(nn::continuation(window, cache_), nullptr);
  return nn::head_logits(engine_, hidden.narrow(0, count - 1, 1), model_.head(),
                         model_.vocab_size())
      .cpu();
}

std::vector<TokenId> Generator::continue_text(const std::vector<TokenId>& ids,
                                              const GenerateOptions& options,
                                              const std::function<void(TokenId)>& on_token) {
  const at::NoGradGuard no_grad;
  std::vector<TokenId> made, next = ids;
  while (std::ssize(made) < options.max_new_tokens) {
    const TokenId id = choose(logits_after(next), options, drawn_++);
    next = {id};
    if (std::ranges::find(options.stop, id) != options.stop.end()) break;
    made.push_back(id);
    on_token(id);
  }
  return made;
}

std::vector<TokenId> generate(const engine::Engine& engine, const models::Model& model,
                              const tokenizer::Tokenizer& tokenizer, const std::string& prompt,
                              GenerateOptions options,
                              const std::function<void(TokenId)>& on_token) {
  std::vector<TokenId> ids;
  tokenizer.encode(prompt, ids);
  // A prompt begins as a document does, unless it spells the beginning itself.
  const auto& begin = tokenizer.begin_ids();
  const bool spelled =
      ids.size() >= begin.size() && std::ranges::equal(begin, std::span(ids).first(begin.size()));
  if (!spelled) ids.insert(ids.begin(), begin.begin(), begin.end());
  if (ids.empty()) ids.push_back(tokenizer.end_of_document());  // the start of a document
  options.stop.push_back(tokenizer.end_of_document());
  if (options.never.empty()) options.never = ids_without_token(model, tokenizer);
  return Generator(engine, model).continue_text(ids, options, on_token);
}

}  // namespace octavo::eval
