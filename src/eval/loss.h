#pragma once
// The mean loss of a model over the first samples of a data set.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>

#include "data/token_data.h"
#include "engine/engine.h"
#include "models/model.h"
#include "monitor/step_record.h"

namespace octavo::eval {

struct Samples {
  std::shared_ptr<data::TokenData> data;
  int64_t length = 0;
  int64_t rows = 0;         // in a batch
  int64_t most = 0;         // samples
  int rank = 0, ranks = 1;  // that share the batches
  bool skip_damaged = false;
  int32_t document_end = -1;  // as the loader's
};

struct LossSum {
  double loss = 0;
  int64_t tokens = 0;
  monitor::EvalRecord record() const {
    return {.val_loss = loss / static_cast<double>(std::max<int64_t>(tokens, 1)), .tokens = tokens};
  }
};

// Over the first samples, always the same ones, whatever the batch; of several ranks each has its
// share of them, and gets the sum over its own.
LossSum sum_loss(const engine::Engine& engine, const models::Model& model, const Samples& samples,
                 const std::function<void(int64_t done, int64_t of)>& on_batch);

}  // namespace octavo::eval
