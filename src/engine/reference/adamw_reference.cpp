// AdamW in plain loops that define every bit, for state in FP32, BF16 and FP8.

#include <ATen/ATen.h>

#include <array>
#include <memory>

#include "base/error.h"
#include "base/random.h"
#include "engine/reference/reference.h"
#include "kernels/adamw_storage.h"

namespace octavo::engine::reference {
namespace {

using adamw::kBlock;
using at::Tensor;

enum class MomentOrder { kFirst, kSecond };

// A moment as FP32, and back.
class MomentAccess {
 public:
  MomentAccess(const AdamW::Moment& moment, MomentOrder order) : order_(order) {
    values_ = moment.values.cpu().contiguous();
    if (moment.scales.defined()) scales_ = moment.scales.cpu().contiguous();
  }
  float read(int64_t i) const {
    if (values_.scalar_type() == at::kFloat) return values_.const_data_ptr<float>()[i];
    if (values_.scalar_type() == at::kBFloat16)
      return adamw::from_bf16(values_.const_data_ptr<at::BFloat16>()[i].x);
    const uint8_t code = values_.const_data_ptr<uint8_t>()[i];
    const float scale = scales_.const_data_ptr<float>()[i / kBlock];
    return order_ == MomentOrder::kFirst ? adamw::decode_first(code, scale)
                                         : adamw::decode_second(code, scale);
  }
  // The new values of one block.
  void write(int64_t first, int64_t count, const float* numbers, const uint32_t* words) {
    if (values_.scalar_type() == at::kByte) return write_codes(first, count, numbers, words);
    for (int64_t i = 0; i < count; ++i)
      if (values_.scalar_type() == at::kFloat)
        values_.mutable_data_ptr<float>()[first + i] = numbers[i];
      else
        values_.mutable_data_ptr<at::BFloat16>()[first + i].x =
            adamw::to_bf16(numbers[i], adamw::moment_bits(words[i]));
  }
  void give_back(AdamW::Moment& moment) const {
    moment.values.copy_(values_);
    if (moment.scales.defined()) moment.scales.copy_(scales_);
  }

 private:
  void write_codes(int64_t first, int64_t count, const float* numbers, const uint32_t* words) {
    const auto stored = [&](int64_t i) {
      return order_ == MomentOrder::kFirst ? numbers[i] : std::sqrt(numbers[i]);
    };
    uint32_t largest = 0;
    for (int64_t i = 0; i < count; ++i)
      largest = std::max(largest, std::bit_cast<uint32_t>(stored(i)) & 0x7FFFFFFF);
    const float scale = adamw::block_scale(largest), inverse = 1 / scale;
    scales_.mutable_data_ptr<float>()[first / kBlock] = scale;
    for (int64_t i = 0; i < count; ++i) {
      const float scaled = stored(i) * inverse;
      const uint32_t random = adamw::moment_bits(words[i]);
      values_.mutable_data_ptr<uint8_t>()[first + i] = order_ == MomentOrder::kFirst
                                                           ? adamw::encode_first(scaled, random)
                                                           : adamw::encode_second(scaled, random);
    }
  }

  MomentOrder order_;
  Tensor values_, scales_;
};

struct PlainAdamW final : AdamW {
  void step(Tensor& master, Moment& m, Moment& v, const Tensor& grad, Tensor& compute,
            const Hyper& h) override {
    const at::NoGradGuard no_grad;
    const adamw::Factors factors = adamw::factors_of(h);
    Tensor weights = master.to(at::kCPU, at::kFloat, false, true);
    const Tensor gradients = grad.to(at::kCPU, at::kFloat).contiguous();
    Tensor rounded =
        master.scalar_type() == at::kBFloat16 ? at::empty(master.sizes(), at::kBFloat16) : Tensor();
    MomentAccess first_moment(m, MomentOrder::kFirst), second_moment(v, MomentOrder::kSecond);
    auto* w = weights.mutable_data_ptr<float>();
    const auto* g = gradients.const_data_ptr<float>();
    for (int64_t first = 0; first < weights.numel(); first += kBlock) {
      const int64_t count = std::min(kBlock, weights.numel() - first);
      std::array<uint32_t, kBlock> words{};
      for (int64_t i = 0; i < count; i += 4) {
        const auto four =
            philox(h.seed, h.stream, static_cast<uint64_t>((h.first + first + i) / 4));
        std::copy(four.begin(), four.end(), words.begin() + i);
      }
      std::array<float, kBlock> new_m{}, new_v{};
      for (int64_t i = 0; i < count; ++i) {
        const int64_t at = first + i;
        const adamw::Element made =
            adamw::advance({w[at], first_moment.read(at), second_moment.read(at)}, g[at], factors);
        w[at] = made.w;
        new_m[static_cast<size_t>(i)] = made.m;
        new_v[static_cast<size_t>(i)] = made.v;
        if (rounded.defined())
          rounded.mutable_data_ptr<at::BFloat16>()[at].x =
              adamw::to_bf16(made.w, adamw::weight_bits(words[static_cast<size_t>(i)]));
      }
      first_moment.write(first, count, new_m.data(), words.data());
      second_moment.write(first, count, new_v.data(), words.data());
    }
    first_moment.give_back(m);
    second_moment.give_back(v);
    master.copy_(rounded.defined() ? rounded : weights);
    if (compute.defined()) compute.copy_(master);
  }

  double sum_of_squares(const Tensor& grad) override {
    const Tensor values = grad.to(at::kCPU, at::kFloat).contiguous();
    const float* g = values.const_data_ptr<float>();
    double total = 0;  // one by one: ATen's sum depends on the number of threads
    for (int64_t i = 0; i < values.numel(); ++i) total += double{g[i]} * g[i];
    return total;
  }
};

}  // namespace

std::unique_ptr<AdamW> make_adamw() {
  return std::make_unique<PlainAdamW>();
}

}  // namespace octavo::engine::reference
