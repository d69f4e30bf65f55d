#include "train/generate.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/random.h"
#include "nn/loss.h"

namespace octavo::train {
namespace {

using tokenizer::TokenId;

// The next token from logits; draw `counter` of the seed's stream.
TokenId choose(const at::Tensor& logits, const GenerateOptions& options, uint64_t counter) {
  const float* values = logits.const_data_ptr<float>();
  const auto count = static_cast<size_t>(logits.numel());
  if (options.temperature <= 0)
    return static_cast<TokenId>(std::max_element(values, values + count) - values);
  std::vector<TokenId> order(count);
  std::iota(order.begin(), order.end(), 0);
  const size_t kept =
      options.top_k > 0 ? std::min(count, static_cast<size_t>(options.top_k)) : count;
  std::partial_sort(
      order.begin(), order.begin() + static_cast<std::ptrdiff_t>(kept), order.end(),
      [&](TokenId a, TokenId b) { return values[a] != values[b] ? values[a] > values[b] : a < b; });
  std::vector<double> weights(kept);
  double total = 0;
  for (size_t i = 0; i < kept; ++i)
    total += weights[i] = std::exp((values[order[i]] - values[order[0]]) / options.temperature);
  double left = total * uniform_from_bits(philox(options.seed, stream_of("generate"), counter)[0]);
  for (size_t i = 0; i < kept; ++i)
    if ((left -= weights[i]) < 0) return order[i];
  return order[kept - 1];
}

}  // namespace

std::vector<TokenId> generate(const engine::Engine& engine, const models::Model& model,
                              const tokenizer::Tokenizer& tokenizer, const std::string& prompt,
                              const GenerateOptions& options,
                              const std::function<void(TokenId)>& on_token) {
  const at::NoGradGuard no_grad;
  std::vector<TokenId> ids;
  tokenizer.encode(prompt, ids);
  if (ids.empty()) ids.push_back(tokenizer.end_of_document());  // the start of a document
  std::vector<TokenId> made;
  for (int64_t i = 0; i < options.max_new_tokens; ++i) {
    const auto length = std::min<int64_t>(static_cast<int64_t>(ids.size()), model.context());
    const at::Tensor window =
        at::from_blob(ids.data() + static_cast<int64_t>(ids.size()) - length, {length}, at::kInt)
            .clone()
            .to(engine.target.device);
    const at::Tensor hidden = model.hidden(window, length, nullptr);
    const at::Tensor logits =
        nn::head_logits(engine, hidden.narrow(0, length - 1, 1), model.head(), model.vocab_size())
            .cpu();
    const TokenId next = choose(logits, options, static_cast<uint64_t>(i));
    if (next == tokenizer.end_of_document() || next >= tokenizer.vocab_size()) break;
    ids.push_back(next);
    made.push_back(next);
    on_token(next);
  }
  return made;
}

}  // namespace octavo::train
