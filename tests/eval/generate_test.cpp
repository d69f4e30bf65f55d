#include "eval/generate.h"

#include "nn/loss.h"
#include "tokenizer/fixtures.h"
#include "train/step.h"
#include "train/tiny_run.h"

namespace octavo::eval {
namespace {

class Generate : public train::TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    run = start(settings());
    for (int i = 0; i < 20; ++i) train_step(*run);
  }
  std::vector<tokenizer::TokenId> text(const GenerateOptions& options,
                                       const std::string& prompt = "line") const {
    std::vector<tokenizer::TokenId> seen;
    const auto made = generate(*run->trained.engine, *run->trained.model, *run->data.tokenizer,
                               prompt, options, [&](tokenizer::TokenId id) { seen.push_back(id); });
    EXPECT_EQ(made, seen);
    return made;
  }
  std::unique_ptr<train::Run> run;
};

TEST_F(Generate, GreedyIsTheMostLikelyToken) {
  const auto made = text({.max_new_tokens = 3, .temperature = 0});
  ASSERT_EQ(made.size(), 3u);
  const at::NoGradGuard no_grad;
  const at::Tensor hidden = run->trained.model->hidden(
      nn::rows_of(at::tensor({'l', 'i', 'n', 'e'}, at::kInt), 4), nullptr);
  const at::Tensor logits = nn::head_logits(
      *run->trained.engine, hidden, run->trained.model->head(), run->trained.model->vocab_size());
  EXPECT_EQ(made[0], logits[3].argmax().item<int64_t>());
  EXPECT_EQ(text({.max_new_tokens = 3, .temperature = 0.7, .top_k = 1}), made);
}

TEST_F(Generate, SeedDecides) {
  const GenerateOptions options{.max_new_tokens = 30, .temperature = 1.5, .top_k = 0, .seed = 1};
  auto other = options;
  other.seed = 2;
  EXPECT_EQ(text(options), text(options));
  EXPECT_NE(text(options), text(other));
}

// Longer than the context of 16, and from nothing at all.
TEST_F(Generate, GoesOnBeyondTheContextAndFromAnEmptyPrompt) {
  const auto made = text({.max_new_tokens = 40, .temperature = 0});
  EXPECT_GT(made.size(), 16u);
  for (const auto id : made) EXPECT_TRUE(id >= 0 && id < 256) << id;
  EXPECT_FALSE(text({.max_new_tokens = 2, .temperature = 0}, "").empty());
  EXPECT_TRUE(text({.max_new_tokens = 0}).empty());
}

// Sampling follows the probabilities: the most likely of two tokens comes in its share.
TEST_F(Generate, FrequenciesFollowTheModel) {
  const at::NoGradGuard no_grad;
  const at::Tensor hidden =
      run->trained.model->hidden(nn::rows_of(at::tensor({'t', 'h'}, at::kInt), 2), nullptr);
  const at::Tensor logits =
      nn::head_logits(*run->trained.engine, hidden, run->trained.model->head(),
                      run->trained.model->vocab_size())[1];
  const auto best = at::topk(logits, 2);
  const double wanted = std::get<0>(best).softmax(0)[0].item<double>();
  constexpr int kDraws = 400;
  int hits = 0;
  for (uint64_t seed = 0; seed < kDraws; ++seed)
    hits += text({.max_new_tokens = 1, .temperature = 1, .top_k = 2, .seed = seed}, "th").at(0) ==
            std::get<1>(best)[0].item<int64_t>();
  EXPECT_NEAR(static_cast<double>(hits) / kDraws, wanted, 0.1);  // four standard errors
}

// The ids 256 to 299 are no token's, nor those behind the tokenizer's last: random weights like
// them as well as any.
TEST_F(Generate, DrawsOnlyWhatTheTokenizerCanPrint) {
  Json file = tokenizer::small_file();
  file["added_tokens"] = Json::array({tokenizer::added_token(300, "<|endoftext|>")});
  write_file_atomic(folder / "tokenizer.json", file.dump());
  auto s = settings();
  s.tokenizer = (folder / "tokenizer.json").string();
  s.vocab_size = 400;
  run = start(s);
  GenerateOptions options{.max_new_tokens = 40, .temperature = 5, .top_k = 0};
  size_t drawn = 0;
  for (options.seed = 0; options.seed < 20; ++options.seed) {
    const auto made = text(options);
    drawn += made.size();
    EXPECT_NO_THROW(run->data.tokenizer->decode(made));
  }
  EXPECT_GT(drawn, 500u);  // a padding row does not end a text either
}

}  // namespace
}  // namespace octavo::eval
