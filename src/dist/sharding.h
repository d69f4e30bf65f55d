#pragma once
// How a model is spread over ranks, and the traffic that follows from it (key sharding_mode):
//
//              masters, moments   gradients        weights           after a block's backward pass
//   ddp        whole              whole            whole             all-reduce
//   zero1      own rows           whole            whole             reduce-scatter
//   zero2      own rows           own rows         whole             reduce-scatter
//   fsdp_full  own rows           own rows         own rows          reduce-scatter
//   hybrid     as fsdp_full inside a node; own gradients are summed over nodes after the last one
//
// zero1 and zero2 gather the weights after an update, one unit after the other, while the next step
// begins. fsdp_full gathers a unit (nn/weight_gatherer.h) while the one before it computes, forward
// and backward, and lets it go behind. Reductions run under the backward pass; ddp and zero1 have
// none until the last micro-batch of a step, zero2 and fsdp_full one for each, because there is no
// room for whole gradients between them. Vectors and matrices with fewer rows than ranks are whole
// everywhere, and summed in one call.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "config/settings.h"
#include "dist/group.h"
#include "dist/world.h"
#include "nn/fp8_layer.h"
#include "nn/linear.h"
#include "nn/weight_gatherer.h"

namespace octavo::dist {

// What a rank keeps of a model.
nn::Storage::Shards shards_of(config::ShardingMode mode, const World& world);

struct ShardingOptions {
  config::ShardingMode mode = config::ShardingMode::kNone;
  at::ScalarType reduce_dtype = at::kFloat;  // that gradients travel in
  bool fp8_gather = true;                    // FP8 weights travel as codes
  bool recompute = false;                    // the backward pass runs blocks again
};

class Sharding final : public nn::WeightGatherer {
 public:
  // All parameters, frozen and trained; the layers whose weights may travel in FP8.
  Sharding(World& world, const nn::ParamList& params, const nn::LinearList& layers,
           const ShardingOptions& options);
  ~Sharding() override;

  void before_forward(int64_t unit) override;
  void after_forward(int64_t unit) override;
  void before_backward(int64_t unit) override;
  void after_backward(int64_t unit) override;

  // Around the backward pass of each micro-batch. `last`: of the step.
  void begin_pass(bool last);
  void end_pass();
  // Sums of squares of the gradients, by parameter, of rows that are here: over all rows.
  void sum_squares(at::Tensor& squares);
  // The masters changed, or what layers compute with: by an update, by loading.
  void weights_changed();
  // Statistics read the weights themselves: this step gathers them in BF16.
  void gather_plain(bool on) { plain_ = on; }

  Json receipt() const;

 private:
  struct Part {
    nn::ParamPtr param;
    nn::Linear* layer = nullptr;  // whose weight it is
    bool has_fp8_part = false;    // its rows can be quantized before they travel
  };
  struct PendingGather {  // a gather under way: one call for each dtype that travels
    struct Call {
      std::vector<at::Tensor> outputs, inputs;
      Pending pending;
    };
    Call weights, codes, scales;
    struct Fp8 {
      nn::Linear* layer = nullptr;
      fp8::Direction direction = fp8::Direction::kRow;
      nn::Fp8Layer::Part whole;
    };
    std::vector<Fp8> fp8;
    std::vector<nn::ParamPtr> plain;
  };
  struct Unit {
    std::vector<Part> spread;
    bool here = true, reduced = false;
    std::unique_ptr<PendingGather> gather;
  };
  struct PendingReduction {  // a reduction under way
    size_t unit = 0;
    Pending pending;
    std::vector<at::Tensor> sent, received;
  };

  bool keeps_weights() const;    // all the time
  bool keeps_gradients() const;  // whole, between micro-batches
  std::string name_of(size_t unit) const;
  void agree_on_magnitudes();
  bool travels_in_fp8(const Part& part) const;
  bool serves_backward(const Unit& unit) const;
  size_t next_of(size_t unit, bool is_head) const;
  void start_gather(size_t unit, bool backward);
  void gather_part(const Part& part, bool backward, PendingGather& gather) const;
  void finish_gather(size_t unit);
  void release(size_t unit);
  void start_reduction(size_t unit);
  void finish_reduction(PendingReduction& reduction);
  void finish_reductions(size_t most_left);
  void sum_whole_gradients();
  void sum_over_nodes();

  World& world_;
  ShardingOptions options_;
  std::vector<Unit> units_;
  nn::ParamList whole_;  // trained, and whole on every rank
  std::vector<PendingReduction> reductions_;
  bool last_pass_ = true, plain_ = false, magnitudes_known_ = false;
  size_t last_visited_ = 0;
  std::string fp8_gather_reason_;  // why a layer does not travel in FP8; the first one
  int64_t fp8_layers_ = 0, plain_layers_ = 0;
};

}  // namespace octavo::dist
