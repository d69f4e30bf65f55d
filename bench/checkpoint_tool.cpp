// The octavo side of bench/checkpoint.py: GPT-2 124M on random tokens, the real training step and
// the real saves. usage: checkpoint_tool FOLDER BATCH LENGTH ACCUMULATION; then for every word on
// stdin one line:
//   step   a training step: seconds
//   saved  the same with a save in the background started before it: seconds, and the seconds of
//          them that training stood still, and seconds until the save had ended after the step
//   save   a save in the foreground: seconds and bytes

#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>

#include "checkpoint/saver.h"
#include "model_config/presets.h"
#include "train/device.h"
#include "train/random_run.h"
#include "train/run.h"
#include "train/state/rank_rows.h"
#include "train/step.h"

namespace {

using namespace octavo;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

checkpoint::State state_of(const train::Run& run) {
  checkpoint::State state;
  state.step = run.progress.step;
  train::add_masters(run.trained.model->params(), "model", state);
  train::add_moments(run.trained.model->params(), *run.trained.optimizer, state);
  return state;
}

uint64_t bytes_of(const fs::path& folder) {
  uint64_t bytes = 0;
  for (const auto& entry : fs::directory_iterator(folder)) bytes += fs::file_size(entry.path());
  return bytes;
}

void make_run(train::Run& run) {
  auto& s = run.settings;
  train::prepare_process(s);
  run.trained = train::on_device(s);
  run.trained.model = models::make(model_config::gpt2({.vocab = 50304}), *run.trained.engine);
  run.trained.model->initialize(0);
  run.trained.optimizer =
      optim::make("adamw", *run.trained.engine, run.trained.model->params(), {});
  run.trained.probes = std::make_unique<nn::Probes>(run.trained.model->linears());
  run.data.train = std::make_shared<train::RandomTokens>(50257);
  run.data.loader = std::make_unique<data::Loader>(
      run.data.train, data::Loader::Options{.rows = s.batch_size, .length = s.max_seq_length},
      data::Position{});
  run.schedule = {.max_lr = 3e-4, .min_lr_ratio = 1, .warmup_steps = 0, .max_steps = 1'000'000};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  train::Run run;
  run.settings.batch_size = std::stoll(argv[2]);
  run.settings.max_seq_length = std::stoll(argv[3]);
  run.settings.gradient_accumulation_steps = std::stoll(argv[4]);
  make_run(run);
  const fs::path folder = argv[1];
  run.saver = std::make_unique<checkpoint::Saver>(folder, checkpoint::SaverOptions{});
  for (std::string word; std::cin >> word;) {
    fs::remove_all(folder);  // deleting is not writing
    const double begin = now(), held = run.saver->counts().held;
    if (word == "save") {
      const fs::path path = run.saver->save(state_of(run), {});
      std::printf("%.6f %llu\n", now() - begin, static_cast<unsigned long long>(bytes_of(path)));
    } else {
      if (word == "saved") run.saver->start(state_of(run), {});
      train::train_step(run);
      const double end = now();
      if (!run.saver->wait()) return 1;
      std::printf("%.6f %.6f %.6f\n", end - begin, run.saver->counts().held - held, now() - end);
    }
    std::fflush(stdout);
  }
  return 0;
}
