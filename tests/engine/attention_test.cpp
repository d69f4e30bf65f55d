#include "engine/aten/attention_cudnn.h"
#include "engine/harness.h"
#include "engine/reference/reference.h"

namespace octavo::engine {
namespace {

OCTAVO_OP_TESTS(Attention);
OCTAVO_OP_GRADIENT_TESTS(Attention);

struct AttentionShape {
  int64_t batch, length, heads, kv_heads, dim, window = 0;
};
constexpr AttentionShape kAttentionShapes[] = {
    {1, 1, 1, 1, 1},
    {2, 3, 2, 2, 7},
    {1, 7, 3, 3, 16},
    {3, 17, 2, 2, 17},
    {2, 33, 1, 1, 64},
    {1, 64, 12, 12, 64},
    {2, 100, 2, 2, 40},
    {1, 127, 1, 1, 128},
    {1, 257, 2, 2, 64},
    {1, 600, 1, 1, 64},
    {2, 40, 6, 2, 16},
    {1, 300, 9, 3, 64},
    {3, 5, 4, 1, 8},
    // Windows within a block, over several, as long as one, of one key, longer than the sequence.
    {2, 100, 2, 1, 16, 7},
    {1, 900, 2, 2, 16, 300},
    {1, 700, 4, 2, 32, 256},
    {1, 530, 1, 1, 8, 257},
    {1, 300, 3, 3, 8, 1},
    {2, 40, 2, 2, 16, 64}};

std::string text_of(const AttentionShape& s) {
  return std::to_string(s.batch) + " x " + std::to_string(s.length) + ", " +
         std::to_string(s.heads) + " heads on " + std::to_string(s.kv_heads) + " keys of " +
         std::to_string(s.dim) + ", window " + std::to_string(s.window);
}

Attention::Shape rows(int64_t batch, int64_t length, int64_t heads, int64_t kv_heads, int64_t dim) {
  Attention::Shape shape{heads, kv_heads, dim, {}, {}, length};
  for (int64_t i = 0; i <= batch; ++i) shape.bounds.push_back(i * length);
  return shape;
}
Attention::Shape rows(const AttentionShape& s) {
  Attention::Shape shape = rows(s.batch, s.length, s.heads, s.kv_heads, s.dim);
  shape.window = s.window;
  return shape;
}

// The magnitudes that each result is a sum of, per row of qkv (FP64).
struct Magnitudes {
  at::Tensor out, d_qkv;
};
Magnitudes magnitudes(const at::Tensor& qkv, const at::Tensor& d_out, const AttentionShape& s) {
  const int64_t group = s.heads / s.kv_heads, kv = s.kv_heads * s.dim;
  const auto parts = exact(qkv).split_with_sizes({s.heads * s.dim, kv, kv}, 1);
  const auto by_head = [&](const at::Tensor& t, bool shared) {
    const at::Tensor heads = t.view({s.batch, s.length, -1, s.dim}).transpose(1, 2);
    return shared ? heads.repeat_interleave(group, 1) : heads;
  };
  const at::Tensor q = by_head(parts[0], false), k = by_head(parts[1], true),
                   v = by_head(parts[2], true).abs();
  const double scale = 1 / std::sqrt(static_cast<double>(s.dim));
  const at::Tensor all = at::ones({s.length, s.length}, at::kBool);
  const at::Tensor mask = s.window > 0 ? all.triu(1).logical_or(all.tril(-s.window)) : all.triu(1);
  const at::Tensor score = at::matmul(q, k.transpose(2, 3)) * scale;
  const at::Tensor p = score.masked_fill(mask, -INFINITY).softmax(-1);
  const at::Tensor go = by_head(magnitude(d_out), false);
  const at::Tensor dp = at::matmul(go, v.transpose(2, 3));
  const at::Tensor ds = p * (dp + (dp * p).sum(-1, true)) * scale;
  const at::Tensor dq = at::matmul(ds, k.abs()), dk = at::matmul(ds.transpose(2, 3), q.abs()),
                   dv = at::matmul(p.transpose(2, 3), go);
  const auto by_row = [&](const at::Tensor& t, bool shared) {
    const at::Tensor summed =
        shared ? t.reshape({s.batch, s.kv_heads, group, s.length, s.dim}).sum(2) : t;
    return summed.transpose(1, 2).reshape({s.batch * s.length, -1});
  };
  return {by_row(at::matmul(p, v), false),
          at::cat({by_row(dq, false), by_row(dk, true), by_row(dv, true)}, 1)};
}

// In BF16 an implementation may round the probabilities and their gradient to BF16 (2^-9 of each)
// before the next GEMM, and the saved output too: up to four roundings for the gradients, of
// which two at most are in one direction. In FP32 the exponential of a score of up to 10 loses
// 10 x 2^-24.
double slack_of(at::ScalarType compute, bool backward) {
  if (compute == at::kBFloat16) return backward ? 0x1p-7 : 0x1p-8;
  return 3e-6;
}

TEST_P(AttentionValues, ForwardAndBackward) {
  for (const AttentionShape& s : kAttentionShapes) {
    SCOPED_TRACE(text_of(s));
    const Attention::Shape shape = rows(s);
    const int64_t tokens = s.batch * s.length;
    const at::Tensor qkv = random({tokens, shape.row()}), d_out = random({tokens, shape.width()});
    const Magnitudes parts = magnitudes(qkv, d_out, s);
    const auto found = op->forward(qkv, shape);
    const auto wanted = oracle->forward(qkv, shape);
    EXPECT_TRUE(near(found.out, wanted.out, slack_of(compute, false) * parts.out));
    const at::Tensor d_qkv = op->backward(d_out, qkv, found, shape);
    const at::Tensor wanted_d_qkv = oracle->backward(d_out, qkv, wanted, shape);
    EXPECT_TRUE(near(d_qkv, wanted_d_qkv, slack_of(compute, true) * parts.d_qkv));
  }
}

// The first row of a sequence sees itself only; a later row cannot change an earlier one.
TEST_P(AttentionTest, IsCausalAndKeepsSequencesApart) {
  const Attention::Shape shape = rows(2, 100, 2, 2, 16);
  at::Tensor qkv = random({200, 96});
  const at::Tensor before = op->forward(qkv, shape).out;
  for (const int64_t start : {0, 100})
    EXPECT_TRUE(same_bits(before[start], qkv[start].narrow(0, 64, 32))) << start;
  qkv.narrow(0, 60, 40).fill_(3);
  const at::Tensor after = op->forward(qkv, shape).out;
  EXPECT_TRUE(near(after.narrow(0, 0, 60), before.narrow(0, 0, 60), 1e-6));
  EXPECT_TRUE(same_bits(after.narrow(0, 100, 100), before.narrow(0, 100, 100)));
  EXPECT_GT((after - before).narrow(0, 60, 40).abs().min().item<float>(), 0);
}

TEST_P(AttentionTest, NothingBeforeTheWindowIsSeen) {
  Attention::Shape shape = rows(1, 600, 2, 1, 16);
  shape.window = 100;
  at::Tensor qkv = random({600, shape.row()});
  const at::Tensor before = op->forward(qkv, shape).out;
  qkv.narrow(0, 0, 300).fill_(2);
  const at::Tensor after = op->forward(qkv, shape).out;
  EXPECT_TRUE(near(after.narrow(0, 399, 201), before.narrow(0, 399, 201), 1e-6));
  EXPECT_GT((after[398] - before[398]).abs().max().item<float>(), 0);
}

TEST_P(AttentionTest, ScoresHaveTheScaleThatIsGiven) {
  Attention::Shape shape = rows(2, 50, 2, 2, 16);
  at::Tensor qkv = random({100, shape.row()});
  at::Tensor twice = qkv.clone();
  twice.narrow(1, 0, shape.width()) *= 2;
  const auto wanted = op->forward(twice, shape);
  shape.scale = 0.5;  // twice 1/sqrt(16)
  EXPECT_TRUE(near(op->forward(qkv, shape).out, wanted.out, 1e-6));
}

TEST_P(AttentionTest, LargeScoresDoNotOverflow) {
  const at::Tensor qkv = random({64, 192}, 60), d_out = random({64, 64});
  const Attention::Shape shape = rows(1, 64, 1, 1, 64);
  const auto forward = op->forward(qkv, shape);
  EXPECT_TRUE(all_finite(forward.out));
  EXPECT_TRUE(all_finite(op->backward(d_out, qkv, forward, shape)));
}

TEST_P(AttentionTest, NanShows) {
  // A row's query reaches that row, its key and value also every later one (and a value earlier
  // ones too where 0 x NaN is computed).
  for (const int64_t part : {0, 1, 2}) {
    at::Tensor qkv = random({40, 48});
    qkv[20][part * 16 + 5] = NAN;
    const Attention::Shape shape = rows(1, 40, 1, 1, 16);
    const auto forward = op->forward(qkv, shape);
    EXPECT_TRUE(any_not_finite(forward.out[20])) << part;
    if (part > 0) {
      EXPECT_TRUE(any_not_finite(forward.out[39])) << part;
    }
    if (part < 2) EXPECT_TRUE(all_finite(forward.out.narrow(0, 0, 20))) << part;
    EXPECT_TRUE(any_not_finite(op->backward(random({40, 16}), qkv, forward, shape))) << part;
  }
}

// Packed documents of every length: each gives what it gives alone.
TEST_P(AttentionTest, DocumentsAreSequencesOfTheirOwn) {
  Attention::Shape shape{6, 2, 16, {0, 1, 32, 33, 290, 300, 812, 900}, {}, 512};
  shape.window = 64;
  const at::Tensor qkv = random({900, shape.row()}), d_out = random({900, shape.width()});
  const auto packed = op->forward(qkv, shape);
  const at::Tensor d_qkv = op->backward(d_out, qkv, packed, shape);
  for (size_t i = 0; i + 1 < shape.bounds.size(); ++i) {
    const int64_t begin = shape.bounds[i], count = shape.bounds[i + 1] - begin;
    Attention::Shape alone = rows(1, count, 6, 2, 16);
    alone.window = shape.window;
    const at::Tensor part = qkv.narrow(0, begin, count).contiguous();
    const auto forward = op->forward(part, alone);
    EXPECT_TRUE(same_bits(packed.out.narrow(0, begin, count).contiguous(), forward.out)) << i;
    const at::Tensor d_part =
        op->backward(d_out.narrow(0, begin, count).contiguous(), part, forward, alone);
    EXPECT_TRUE(same_bits(d_qkv.narrow(0, begin, count).contiguous(), d_part)) << i;
  }
}

// The last tokens of a sequence, from keys and values that were kept.
TEST_P(AttentionTest, ExtendGivesWhatForwardGives) {
  Attention::Shape shape = rows(1, 70, 6, 2, 16);
  const at::Tensor qkv = random({70, shape.row()});
  const auto parts = qkv.split_with_sizes({96, 32, 32}, 1);
  for (shape.window = 0; shape.window < 60; shape.window += 20) {
    const auto whole = op->forward(qkv, shape);
    for (const int64_t count : {1, 5, 70}) {
      const at::Tensor found = op->extend(parts[0].narrow(0, 70 - count, count),
                                          parts[1].contiguous(), parts[2].contiguous(), shape);
      EXPECT_TRUE(near(found.contiguous(), whole.out.narrow(0, 70 - count, count).contiguous(),
                       slack_of(compute, false) * 4))
          << count << " tokens, window " << shape.window;
    }
  }
}

TEST_P(AttentionTest, TwiceTheSame) {
  const at::Tensor qkv = random({200, 192}), d_out = random({200, 64});
  const Attention::Shape shape = rows(2, 100, 4, 4, 16);
  const auto a = op->forward(qkv, shape), b = op->forward(qkv, shape);
  EXPECT_TRUE(same_bits(a.out, b.out));
  EXPECT_TRUE(same_bits(op->backward(d_out, qkv, a, shape), op->backward(d_out, qkv, b, shape)));
}

TEST_P(AttentionGradient, MatchesFiniteDifferences) {
  at::Tensor qkv = random({10, 18});
  const at::Tensor weight = random({10, 6});
  for (const int64_t kv_heads : {1, 3}) {
    const Attention::Shape shape = rows(2, 5, 3, kv_heads, 2);
    at::Tensor part = qkv.narrow(1, 0, shape.row()).contiguous();
    const at::Tensor d_qkv = op->backward(weight, part, op->forward(part, shape), shape);
    expect_derivative(d_qkv, numeric_gradient(part, weight, [&] {
                        return op->forward(part, shape).out.clone();
                      }));
  }
}

// Arithmetic in the place of cuDNN. Results lie by heads, and log-sum-exps in a shape of their own.
struct DenseCalls {
  at::Tensor qkv;  // whose memory all operands must be views of
  int64_t forward = 0, backward = 0;

  void expect_views(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) const {
    for (const at::Tensor* t : {&q, &k, &v}) {
      EXPECT_TRUE(t->is_alias_of(qkv));
      EXPECT_EQ(t->dim(), 4);
      EXPECT_EQ(t->stride(3), 1);
      EXPECT_EQ(t->stride(2), qkv.size(1)) << "the next token is the next row";
    }
    EXPECT_EQ(q.size(1) % k.size(1), 0);
  }
  static at::Tensor scores(const at::Tensor& q, const at::Tensor& k, double scale) {
    const int64_t length = q.size(2);
    const at::Tensor future = at::ones({length, length}, at::kBool).triu(1);
    return (at::matmul(exact(q), shared(k, q).transpose(2, 3)) * scale)
        .masked_fill(future, -INFINITY);
  }
  static at::Tensor shared(const at::Tensor& kv, const at::Tensor& q) {
    return exact(kv).repeat_interleave(q.size(1) / kv.size(1), 1);
  }

  aten::DenseAttention make() {
    return {
        .forward = [this](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          double scale) -> aten::DenseAttention::Forward {
          ++forward;
          expect_views(q, k, v);
          const at::Tensor s = scores(q, k, scale);
          return {at::matmul(s.softmax(-1), shared(v, q)).to(q.scalar_type()),
                  s.logsumexp(-1, /*keepdim=*/true).to(at::kFloat)};
        },
        .backward =
            [this](const at::Tensor& d_out, const at::Tensor& q, const at::Tensor& k,
                   const at::Tensor& v, const aten::DenseAttention::Forward& saved, double scale) {
              ++backward;
              expect_views(q, k, v);
              EXPECT_EQ(d_out.sizes(), q.sizes());
              EXPECT_EQ(saved.out.sizes(), q.sizes());
              const at::Tensor p = at::exp(scores(q, k, scale) - exact(saved.lse));
              const at::Tensor dp = at::matmul(exact(d_out), shared(v, q).transpose(2, 3));
              const at::Tensor sums = (exact(d_out) * exact(saved.out)).sum(-1, true);
              const at::Tensor ds = p * (dp - sums) * scale;
              const auto per_key = [&](const at::Tensor& t) {
                return t.unflatten(1, {k.size(1), -1}).sum(2).to(q.scalar_type());
              };
              return std::make_tuple(at::matmul(ds, shared(k, q)).to(q.scalar_type()),
                                     per_key(at::matmul(ds.transpose(2, 3), exact(q))),
                                     per_key(at::matmul(p.transpose(2, 3), exact(d_out))));
            }};
  }
};

TEST(DenseAttention, GivesViewsAndPutsResultsWhereTheyBelong) {
  const auto oracle = reference::make_attention();
  for (const auto compute : {at::kBFloat16, at::kFloat})
    for (const AttentionShape& s : std::initializer_list<AttentionShape>{{1, 64, 1, 1, 8},
                                                                         {3, 64, 4, 4, 64},
                                                                         {2, 128, 6, 2, 16},
                                                                         {2, 64, 8, 1, 128},
                                                                         {2, 70, 6, 2, 16},
                                                                         {1, 64, 2, 1, 20},
                                                                         {1, 64, 1, 1, 136}}) {
      SCOPED_TRACE(text_of(s));
      const bool dense = s.length % 64 == 0 && s.dim % 8 == 0 && s.dim <= 128;
      const Attention::Shape shape = rows(s);
      const int64_t tokens = s.batch * s.length;
      at::manual_seed(3);
      const at::Tensor qkv = at::randn({tokens, shape.row()}).to(compute),
                       d_out = at::randn({tokens, shape.width()}).to(compute);
      DenseCalls calls{.qkv = qkv};
      const auto op = aten::make_dense_attention(calls.make());
      const Magnitudes parts = magnitudes(qkv, d_out, s);
      const auto found = op->forward(qkv, shape);
      const auto wanted = oracle->forward(qkv, shape);
      EXPECT_TRUE(near(found.out, wanted.out, slack_of(compute, false) * parts.out));
      const at::Tensor d_qkv = op->backward(d_out, qkv, found, shape);
      EXPECT_TRUE(near(d_qkv, oracle->backward(d_out, qkv, wanted, shape),
                       slack_of(compute, true) * parts.d_qkv));
      EXPECT_EQ(calls.forward, dense ? 1 : 0);
      EXPECT_EQ(calls.backward, dense ? 1 : 0);
    }
}

// They go to flash attention, in both passes.
TEST(DenseAttention, LeavesPackedDocumentsAndWindowsAlone) {
  for (const Attention::Shape& shape :
       {Attention::Shape{2, 1, 16, {0, 64, 192}, {}, 128}, rows({3, 64, 2, 1, 16, 20})}) {
    const at::Tensor qkv = at::randn({192, shape.row()}), d_out = at::randn({192, shape.width()});
    DenseCalls calls{.qkv = qkv};
    const auto op = aten::make_dense_attention(calls.make());
    op->backward(d_out, qkv, op->forward(qkv, shape), shape);
    EXPECT_EQ(calls.forward + calls.backward, 0);
  }
}

TEST(DenseAttention, TakesTheModelsScale) {
  Attention::Shape shape = rows(2, 64, 2, 1, 16);
  shape.scale = 0.7;
  const at::Tensor qkv = at::randn({128, shape.row()}), d_out = at::randn({128, shape.width()});
  DenseCalls calls{.qkv = qkv};
  const auto op = aten::make_dense_attention(calls.make()), oracle = reference::make_attention();
  const auto found = op->forward(qkv, shape), wanted = oracle->forward(qkv, shape);
  EXPECT_EQ(calls.forward, 1);
  EXPECT_TRUE(near(found.out, wanted.out, 1e-5));
  EXPECT_TRUE(near(op->backward(d_out, qkv, found, shape),
                   oracle->backward(d_out, qkv, wanted, shape), 1e-4));
}

// Who runs attention where, and why not the others.
TEST(AttentionTable, CudnnOnHopperAndDataCentreBlackwellUnlessDeterministic) {
  const auto table = implementations<Attention>();
  const auto refusal = [&](const Target& target) {
    for (const auto& row : table)
      if (row.name == "aten/cudnn") return row.refusal(target);
    return std::string("no such row");
  };
  const at::Device gpu(at::kCUDA, 0);
  EXPECT_NE(refusal({}).find("GPUs only"), std::string::npos);
  for (const int capability : {80, 89, 110, 120})
    EXPECT_NE(refusal({.device = gpu, .capability = capability}).find("no faster"),
              std::string::npos);
  for (const int capability : {90, 100, 103})
    EXPECT_NE(refusal({.device = gpu, .capability = capability, .deterministic = true})
                  .find("no fixed order"),
              std::string::npos);
}

}  // namespace
}  // namespace octavo::engine
