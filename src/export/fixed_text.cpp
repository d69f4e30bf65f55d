#include "export/fixed_text.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/random.h"
#include "nn/loss.h"

namespace octavo::exporter {
namespace {

constexpr int64_t kPredicted = 256;
constexpr uint64_t kSeed = 8;

constexpr const char* kEnglish =
    "The harbour was quiet in the early morning. A few boats lay at the wooden pier, and the "
    "water moved slowly under them. An old man sat on a box and mended his net, as he did every "
    "day before the sun was up. He did not look at his hands; he had done this for fifty years, "
    "and they knew the work better than he did.\n\n"
    "A girl came down the street with a basket. \"Good morning,\" she said. \"Is there any fish "
    "today?\"\n\n"
    "\"There was a storm last night,\" said the man. \"Nobody went out. But my brother left before "
    "midnight, and he will be back at about eight o'clock. If you wait, you can have the first of "
    "it.\"\n\n"
    "She put the basket down and waited. In the year 1850 this had been a large port: more than "
    "300 ships came in every summer, with coffee, cotton, wine and timber from many countries. "
    "Then the railway was built, and the trade moved to the city in the north. What remained was "
    "the light on the rock, which is still lit every night, a church, two shops and some forty "
    "families. The population fell from 12,000 to about 400 people.\n\n"
    "The reason is simple. When the cost of moving goods over land becomes smaller than the cost "
    "of loading them twice, a small harbour has nothing to offer. The same thing happened in many "
    "places along the coast, and economists still use it as an example of how a new technology "
    "can change the map of a country within ten years.\n\n"
    "At eight o'clock a sail came round the rock.";

}  // namespace

FixedText fixed_text(const models::Model& model, const tokenizer::Tokenizer* tokenizer) {
  const auto most = static_cast<size_t>(std::min(kPredicted, model.context()) + 1);
  FixedText text;
  if (tokenizer != nullptr && tokenizer->vocab_size() <= model.vocab_size())
    tokenizer->encode(kEnglish, text.ids);
  if (text.ids.size() >= 2) {
    text.ids.resize(std::min(text.ids.size(), most));
    text.what = "an English text";
    return text;
  }
  text.what = "random tokens (no tokenizer that fits the model)";
  text.ids.clear();
  for (size_t i = 0; i < most; ++i)
    text.ids.push_back(static_cast<tokenizer::TokenId>(philox(kSeed, stream_of("export"), i)[0] %
                                                       static_cast<uint64_t>(model.vocab_size())));
  return text;
}

double text_loss(const engine::Engine& engine, const models::Model& model, const FixedText& text) {
  const at::NoGradGuard no_grad;
  const int64_t count = std::ssize(text.ids) - 1;
  const at::Tensor ids =
      at::tensor(std::vector<int32_t>(text.ids.begin(), text.ids.end()), at::kInt)
          .to(engine.target.device);
  const at::Tensor hidden = model.hidden(nn::rows_of(ids.narrow(0, 0, count), count), nullptr);
  const at::Tensor sums = nn::head_loss(engine, hidden, model.head(), ids.narrow(0, 1, count),
                                        {.classes = model.vocab_size(), .want_gradient = false})
                              .sums;
  return sums[0].item<double>() / static_cast<double>(count);
}

}  // namespace octavo::exporter
