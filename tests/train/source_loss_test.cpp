// The loss of each source of a mixture: against FP64 of the model's own hidden states, sample by
// sample.

#include "train/source_loss.h"

#include <cmath>
#include <limits>

#include "data/mixed_tokens.h"
#include "data/shard.h"
#include "nn/sequences.h"
#include "train/tiny_run.h"

namespace octavo::train {
namespace {

models::BatchSources sources_of(const std::vector<int32_t>& of_rows,
                                const std::vector<int32_t>& tokens) {
  return {at::tensor(of_rows, at::kInt), at::arange(static_cast<int64_t>(tokens.size()), at::kInt),
          at::tensor(tokens, at::kInt)};
}

TEST(SumsBySource, AddUpRowsAndKeepWhatIsNotFiniteApart) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  at::Tensor each = at::arange(16, at::kDouble).view({8, 2});  // 4 rows of 2 tokens
  const models::BatchSources sources = sources_of({2, 0, 2, 3}, {2, 0, 3, 2});
  const auto numbers = [](const at::Tensor& t) {
    return std::vector<double>(t.const_data_ptr<double>(), t.const_data_ptr<double>() + t.numel());
  };
  EXPECT_EQ(numbers(sums_by_source(each, sources)),
            (std::vector<double>{4 + 6, 0, 0 + 2 + 8 + 10, 12 + 14, 2, 0, 3, 2}));
  each[1][1] = kNan;  // logsumexp^2 is no part of a loss
  each[3][0] = kNan;
  const std::vector<double> found = numbers(sums_by_source(each, sources));
  EXPECT_TRUE(std::isnan(found[0]));
  EXPECT_EQ(std::vector<double>(found.begin() + 1, found.end()),
            (std::vector<double>{0, 20, 26, 2, 0, 3, 2}));
  std::vector<monitor::SourceUse> uses(4);
  report_losses(found, uses);
  EXPECT_TRUE(std::isnan(*uses[0].loss));
  EXPECT_FALSE(uses[1].loss);
  EXPECT_EQ(*uses[2].loss, 20.0 / 3);
  EXPECT_EQ(*uses[3].loss, 13);
  std::vector<monitor::SourceUse> untouched(2);
  report_losses({}, untouched);
  EXPECT_FALSE(untouched[0].loss || untouched[1].loss);
}

class SourceLoss : public TrainTest {
 protected:
  // Plain text, or rows with answers.
  config::Settings mixture(bool packed) const {
    auto s = settings();
    s.dataset.clear();
    for (const char* name : {"web", "books", "code"}) {
      std::string text;
      for (int i = 0; i < 90; ++i)
        text += packed ? "{\"prompt\": \"" + std::string(name) + " " + std::to_string(i) +
                             "\", \"response\": \"" + std::string(static_cast<size_t>(i % 9), 'x') +
                             " of " + name + "\"}\n"
                       : std::string(name) + " has words " + std::to_string(i * 7 % 50) + "\n";
      const fs::path path = folder / (std::string(name) + (packed ? ".jsonl" : ".txt"));
      write_file_atomic(path, text);
      s.dataset.push_back(path.string());
    }
    if (packed) s.max_seq_length = 64;
    s.chat_template = config::ChatTemplate::kNone;
    s.dataset_weights = {0.6, 0.35, 0.05};  // the last has no sample in most steps
    s.dataset_max_epochs = {0, 0, 0};
    return s;
  }

  struct Sum {
    double loss = 0;
    int64_t tokens = 0;
  };
  // Of one sample, by ATen in FP64 from the hidden states; each document by itself.
  static Sum loss_of(const train::Run& run, uint64_t sample) {
    const data::TokenData& data = *run.data.train;
    const int64_t length = run.settings.max_seq_length;
    const bool packed = data.sample_length() > 0;
    std::vector<int32_t> words(static_cast<size_t>(length) + (packed ? 0 : 1));
    data.read(sample * static_cast<uint64_t>(length), words);
    std::vector<size_t> starts = {0};
    for (size_t i = 1; packed && i < words.size(); ++i)
      if ((static_cast<uint32_t>(words[i]) & data::kStartFlag) != 0) starts.push_back(i);
    starts.push_back(words.size());
    Sum sum;
    for (size_t d = 0; d + 1 < starts.size(); ++d) {
      std::vector<int32_t> ids;
      for (size_t i = starts[d]; i < starts[d + 1]; ++i)
        ids.push_back(packed ? words[i] & static_cast<int32_t>(data::kIdMask) : words[i]);
      const auto inputs = static_cast<int64_t>(ids.size()) - 1;
      if (inputs == 0) continue;
      const at::Tensor all = at::tensor(ids, at::kInt);
      const at::Tensor hidden =
          run.trained.model->hidden(nn::rows_of(all.narrow(0, 0, inputs), inputs), nullptr);
      const at::Tensor logits =
          at::linear(hidden.to(at::kDouble), run.trained.model->head()->compute.to(at::kDouble))
              .narrow(1, 0, run.trained.model->vocab_size());
      const at::Tensor nll = at::nll_loss(
          logits.log_softmax(1), all.narrow(0, 1, inputs).to(at::kLong), {}, at::Reduction::None);
      for (int64_t i = 0; i < inputs; ++i) {
        const auto target = static_cast<uint32_t>(words[starts[d] + static_cast<size_t>(i) + 1]);
        if (packed && (target & data::kLossFlag) == 0) continue;
        sum.loss += nll[i].item<double>();
        ++sum.tokens;
      }
    }
    return sum;
  }

  // Steps of the run; of each the sources' losses as the samples that were taken have them before
  // the weights move.
  static void check(train::Run& run, int steps) {
    const at::NoGradGuard no_grad;
    const data::MixedTokens& mixed = *run.data.train->mixed();
    run.settings.record_samples = true;
    int without = 0;
    for (int step = 0; step < steps; ++step) {
      std::vector<at::Tensor> weights;
      for (const auto& p : run.trained.model->params()) weights.push_back(p->compute.clone());
      const monitor::StepRecord record = [&] {
        const at::AutoGradMode grad(true);
        return train_step(run);
      }();
      size_t number = 0;
      std::vector<at::Tensor> after;
      for (const auto& p : run.trained.model->params()) {
        after.push_back(p->compute.clone());
        p->compute.copy_(weights[number++]);
      }
      std::vector<Sum> wanted(mixed.sources().size());
      for (const uint64_t sample : record.samples) {
        const Sum sum = loss_of(run, sample);
        wanted[mixed.source_of(sample)].loss += sum.loss;
        wanted[mixed.source_of(sample)].tokens += sum.tokens;
      }
      number = 0;
      for (const auto& p : run.trained.model->params()) p->compute.copy_(after[number++]);
      double all = 0;
      int64_t tokens = 0;
      for (size_t k = 0; k < wanted.size(); ++k) {
        const auto& [loss, count] = wanted[k];
        ASSERT_EQ(record.sources[k].loss.has_value(), count > 0) << "step " << step;
        without += count == 0;
        if (count == 0) continue;
        const double mean = loss / static_cast<double>(count);
        EXPECT_NEAR(*record.sources[k].loss / mean, 1, 1e-5) << "step " << step << " " << k;
        all += *record.sources[k].loss * static_cast<double>(count);
        tokens += count;
      }
      // Weighted by their tokens they are the loss of the step: all is summed in FP64.
      EXPECT_NEAR(all / static_cast<double>(tokens) / record.loss, 1, 1e-12) << "step " << step;
    }
    EXPECT_GT(without, 0);  // or nothing was seen of a source that has no loss
  }
};

TEST_F(SourceLoss, IsThatOfItsSamples) {
  check(*start(mixture(false)), 6);
}

TEST_F(SourceLoss, OverMicroBatches) {
  auto s = mixture(false);
  s.batch_size = 2;
  s.gradient_accumulation_steps = 3;
  check(*start(s), 4);
}

TEST_F(SourceLoss, OfPackedRowsWithMasks) {
  auto s = mixture(true);
  s.gradient_accumulation_steps = 2;
  s.batch_size = 3;
  const auto run = start(s);
  ASSERT_GT(run->data.train->sample_length(), 0);
  check(*run, 5);
}

TEST_F(SourceLoss, IsAbsentWithoutAMixture) {
  const auto run = start(settings());
  EXPECT_TRUE(train_step(*run).sources.empty());
}

// The same bits after a resume.
TEST_F(SourceLoss, AResumeHasTheSame) {
  auto s = mixture(false);
  s.checkpoint_dir = (folder / "checkpoints").string();
  const auto whole = start(s);
  train_step(*whole);
  save(*whole, "saved", false, nullptr);
  const monitor::StepRecord wanted = train_step(*whole);
  s.resume = "latest";
  const monitor::StepRecord found = train_step(*start(s));
  ASSERT_EQ(found.step, 2);
  for (size_t k = 0; k < 3; ++k) EXPECT_EQ(found.sources[k].loss, wanted.sources[k].loss) << k;
}

}  // namespace
}  // namespace octavo::train
