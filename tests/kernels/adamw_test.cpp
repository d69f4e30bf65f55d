// AdamW: bit for bit what a plain loop over the scalar functions of adamw_storage.h gives.

#include "kernels/adamw.h"

#include <gtest/gtest.h>

#include <array>
#include <list>
#include <tuple>

#include "base/random.h"
#include "fp8/formats.h"
#include "kernels/arrays.h"
#include "kernels/host_launch.h"
#include "kernels/kernels.h"

namespace octavo::kernels {
namespace {

TEST(RandomWords, are_those_of_base) {
  Numbers numbers(1);
  for (int i = 0; i < 1000; ++i) {
    const auto draw = [&] { return static_cast<uint64_t>(numbers.bits()) << 32 | numbers.bits(); };
    const uint64_t seed = draw(), stream = draw(), counter = draw();
    const FourWords words = random_words(seed, stream, counter);
    const std::array<uint32_t, 4> wanted = philox(seed, stream, counter);
    for (size_t k = 0; k < 4; ++k) EXPECT_EQ(words.at[k], wanted[k]);
  }
}

TEST(AdamWStorage, first_moments_have_the_values_of_e4m3) {
  for (unsigned code = 0; code < 256; ++code) {
    const float value = adamw::decode_first(static_cast<uint8_t>(code), 1);
    const float wanted = fp8::kE4M3Values[code];
    if (wanted != wanted)
      EXPECT_TRUE(value != value) << code;
    else
      EXPECT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(wanted)) << code;
  }
}

struct Hyper {
  float lr = 1e-2f, beta1 = 0.9f, beta2 = 0.95f, eps = 1e-8f, weight_decay = 0.1f;
  int64_t step = 3;
  float grad_scale = 0.5f;
};

template <class Master, class Gradient, class Moment>
struct Parameter {
  Array<Master> master;
  Array<Gradient> gradient;
  Array<Moment> m, v;
  Array<float> m_scales, v_scales;
  Array<Bf16> compute;
  uint64_t seed = 0, stream = 0;
  int64_t first = 0;
  adamw::Factors factors{};

  Parameter(int64_t n, int shift, bool has_copy, uint64_t number)
      : master(n, shift),
        gradient(n, shift),
        m(n, shift),
        v(n, shift),
        m_scales(adamw::block_count(n)),
        v_scales(adamw::block_count(n)),
        compute(has_copy ? n : 0, shift) {
    Numbers numbers(number);
    numbers.fill(master);
    numbers.fill(gradient, 0.1f);
    for (int64_t i = 0; i < n; ++i) {
      const float of_m = numbers.normal(0.1f), of_v = std::abs(numbers.normal(0.01f));
      // Codes of any kind but NaN; zeros among them.
      if constexpr (std::is_same_v<Moment, uint8_t>) {
        m[i] = static_cast<uint8_t>(numbers.bits() % 127 | (numbers.bits() & 0x80));
        v[i] = static_cast<uint8_t>(numbers.bits() % 8 == 0 ? 0 : numbers.bits() % 253);
      } else {
        narrow_to(of_m, m[i]);
        narrow_to(of_v, v[i]);
      }
    }
    if (n > 200) std::fill_n(gradient.data() + 128, 20, Gradient{0});
    for (int64_t i = 0; i < m_scales.size(); ++i) {
      m_scales[i] = std::abs(numbers.normal(1e-3f));
      v_scales[i] = std::abs(numbers.normal(1e-3f));
    }
    seed = 7;
    stream = number * 1000 + 5;
    first = static_cast<int64_t>(number % 3) * 128 * 1000003;
    Hyper h;
    h.weight_decay = number % 2 == 0 ? 0.1f : 0.0f;
    factors = adamw::factors_of(h);
  }

  AdamWTensor row() {
    return {.master = master.data(),
            .m = m.data(),
            .v = v.data(),
            .m_scales = m_scales.data(),
            .v_scales = v_scales.data(),
            .gradient = gradient.data(),
            .compute = compute.size() > 0 ? compute.data() : nullptr,
            .count = master.size(),
            .seed = seed,
            .stream = stream,
            .first_counter = static_cast<uint64_t>(first) / 4,
            .factors = factors};
  }
  bool operator==(const Parameter& o) const {
    return master == o.master && m == o.m && v == o.v && compute == o.compute &&
           (!std::is_same_v<Moment, uint8_t> || (m_scales == o.m_scales && v_scales == o.v_scales));
  }

  void step_plainly();

 private:
  enum class Order { kFirst, kSecond };
  static float read(const Array<Moment>& from, const Array<float>& scales, int64_t i, Order order) {
    if constexpr (!std::is_same_v<Moment, uint8_t>)
      return widened(from[i]);
    else if (order == Order::kFirst)
      return adamw::decode_first(from[i], scales[i / 128]);
    else
      return adamw::decode_second(from[i], scales[i / 128]);
  }
  static void write(const std::vector<float>& values, const std::vector<uint32_t>& words,
                    Array<Moment>& into, Array<float>& scales, int64_t first_of_block,
                    Order order) {
    uint32_t largest = 0;
    for (const float value : values)
      largest = std::max(largest, std::bit_cast<uint32_t>(value) & 0x7FFFFFFF);
    const float scale = adamw::block_scale(largest), inverse = 1 / scale;
    for (size_t i = 0; i < values.size(); ++i) {
      const uint32_t random = adamw::moment_bits(words[i]);
      Moment& out = into[first_of_block + static_cast<int64_t>(i)];
      if constexpr (std::is_same_v<Moment, uint8_t>)
        out = order == Order::kFirst ? adamw::encode_first(values[i] * inverse, random)
                                     : adamw::encode_second(values[i] * inverse, random);
      else if constexpr (std::is_same_v<Moment, Bf16>)
        out = adamw::to_bf16(values[i], random);
      else
        out = values[i];
    }
    if constexpr (std::is_same_v<Moment, uint8_t>) scales[first_of_block / 128] = scale;
  }
};

template <class Master, class Gradient, class Moment>
void Parameter<Master, Gradient, Moment>::step_plainly() {
  for (int64_t block = 0; block < master.size(); block += 128) {
    std::vector<float> new_m, stored_v;
    std::vector<uint32_t> words;
    for (int64_t i = block; i < std::min(block + 128, master.size()); ++i) {
      const int64_t element = first + i;
      words.push_back(philox(seed, stream,
                             static_cast<uint64_t>(element / 4))[static_cast<size_t>(element % 4)]);
      const adamw::Element made =
          adamw::advance({widened(master[i]), read(m, m_scales, i, Order::kFirst),
                          read(v, v_scales, i, Order::kSecond)},
                         widened(gradient[i]), factors);
      new_m.push_back(made.m);
      stored_v.push_back(std::is_same_v<Moment, uint8_t> ? std::sqrt(made.v) : made.v);
      if constexpr (std::is_same_v<Master, Bf16>)
        master[i] = adamw::to_bf16(made.w, adamw::weight_bits(words.back()));
      else
        master[i] = made.w;
      if (compute.size() > 0) compute[i] = nearest_bf16(widened(master[i]));
    }
    write(new_m, words, m, m_scales, block, Order::kFirst);
    write(stored_v, words, v, v_scales, block, Order::kSecond);
  }
}

template <class T>
constexpr Stored stored_as() {
  return std::is_same_v<T, float>  ? Stored::kFp32
         : std::is_same_v<T, Bf16> ? Stored::kBf16
                                   : Stored::kFp8;
}

template <class Types>
struct AdamWOf : testing::Test {};
#ifdef OCTAVO_FEW_STORAGES  // tests/conformance/kernels.py builds this file often
using AllStorage = testing::Types<std::tuple<float, Bf16, float>, std::tuple<float, float, uint8_t>,
                                  std::tuple<Bf16, Bf16, Bf16>>;
#else
using AllStorage = testing::Types<std::tuple<float, float, float>, std::tuple<float, float, Bf16>,
                                  std::tuple<float, float, uint8_t>, std::tuple<float, Bf16, float>,
                                  std::tuple<float, Bf16, Bf16>, std::tuple<float, Bf16, uint8_t>,
                                  std::tuple<Bf16, float, float>, std::tuple<Bf16, float, Bf16>,
                                  std::tuple<Bf16, float, uint8_t>, std::tuple<Bf16, Bf16, float>,
                                  std::tuple<Bf16, Bf16, Bf16>, std::tuple<Bf16, Bf16, uint8_t>>;
#endif
TYPED_TEST_SUITE(AdamWOf, AllStorage);

// Sizes that end inside and at the end of eights, blocks of 128, tiles and blocks of the launch;
// empty ones between; arrays that are not aligned.
TYPED_TEST(AdamWOf, is_the_plain_loop_in_every_order) {
  using Master = std::tuple_element_t<0, TypeParam>;
  using Gradient = std::tuple_element_t<1, TypeParam>;
  using Moment = std::tuple_element_t<2, TypeParam>;
  using P = Parameter<Master, Gradient, Moment>;
  std::vector<P> before;
  uint64_t number = 1;
  for (const int64_t n : {1, 0, 7, 128, 131, 2048, 0, 16384 + 2048 + 137})
    before.emplace_back(n, 0, number % 2 == 0, number), ++number;
  before.emplace_back(300, 1, true, number);
  std::vector<P> wanted = before;
  for (P& p : wanted) p.step_plainly();
  for (const uint64_t order : kOrders) {
    std::vector<P> found = before;
    std::vector<AdamWTensor> table;
    for (P& p : found) table.push_back(p.row());
    const auto count = static_cast<int64_t>(table.size());
    const int64_t blocks = plan_adamw(table.data(), count);
    EXPECT_EQ(blocks, 8);
    HostLauncher on{order};
    const AdamWStorage storage{stored_as<Master>(), stored_as<Gradient>(), stored_as<Moment>()};
    ASSERT_EQ(launch_adamw(on, storage, {table.data(), static_cast<int32_t>(count)}, blocks), 0);
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_TRUE(found[i] == wanted[i]) << "parameter " << i << ", order " << order;
  }
}

TEST(AdamWLaunch, refuses_storage_that_it_has_no_kernel_for) {
  HostLauncher on;
  EXPECT_EQ(launch_adamw(on, {Stored::kFp8, Stored::kFp32, Stored::kFp32}, {}, 0), kUnsupported);
  EXPECT_EQ(launch_adamw(on, {Stored::kFp32, Stored::kFp8, Stored::kFp32}, {}, 0), kUnsupported);
}

}  // namespace
}  // namespace octavo::kernels
