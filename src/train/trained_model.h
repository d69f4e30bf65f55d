#pragma once
// What a run trains: the model on its device, what is beside its layers, and what updates it.

#include <memory>
#include <optional>
#include <string>

#include "config/settings.h"
#include "dist/sharding.h"
#include "dist/world.h"
#include "engine/engine.h"
#include "fp8/execution.h"
#include "models/model.h"
#include "nn/fp8_model.h"
#include "nn/lora.h"
#include "nn/probes.h"
#include "optim/optimizer.h"
#include "train/guards/device_progress.h"
#include "train/model_factory.h"
#include "train/state/base_model.h"
#include "train/step_graph.h"

namespace octavo::train {

struct TrainedModel {
  std::unique_ptr<engine::Engine> engine;
  // What is computed means something. The fake CUDA device runs no kernel: there nothing is loaded,
  // saved, compared between ranks or judged.
  bool has_numbers = true;
  std::unique_ptr<models::Model> model;
  std::optional<fp8::Decision> fp8_decision;  // when FP8 was asked for
  std::unique_ptr<nn::Fp8Model> fp8;          // when it runs
  std::unique_ptr<nn::Lora> lora;             // when adapters are trained
  BaseModel base;                             // that they are trained beside
  std::unique_ptr<nn::Probes> probes;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::unique_ptr<dist::Sharding> sharding;         // when there is more than one rank
  std::unique_ptr<StepGraph> graph;                 // with cuda_graph
  std::unique_ptr<DeviceProgress> device_progress;  // with hang_timeout, from the first step on

  at::Device device() const { return engine->target.device; }
  double uniform_loss() const;          // of a model that guesses every token: ln(vocabulary)
  std::string precision() const;        // as the step line shows it
  std::string plain_precision() const;  // of what is not in FP8: BF16 or FP32
};

// The engine for the device that the settings choose, and no model yet.
TrainedModel on_device(const config::Settings& settings);

// Model, adapters, optimizer, FP8 and sharding; no graph. `resolved` are the settings
// with_resolved_names(). It keeps a reference to `world`.
TrainedModel build_model(const config::Settings& settings, const config::Settings& resolved,
                         dist::World& world, int64_t vocab, Weights weights = Weights::kOfSettings);

// Decides what FP8 means on this device and moves the model's layers to it, when it was asked for;
// and where numbers are looked at that may not be finite.
void start_fp8(const config::Settings& settings, dist::World& world, TrainedModel& trained);

}  // namespace octavo::train
