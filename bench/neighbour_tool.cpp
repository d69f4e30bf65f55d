// The octavo side of bench/neighbour.py: training steps of any model on random tokens, with threads
// that wait as in octavo train.
// usage: neighbour_tool [CONFIG.yaml] [--key value]…; a line on stdout says how the threads wait,
// then for every line N on stdin: N steps, one line with the seconds of each.

#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "base/openmp_waiting.h"
#include "config/parse.h"
#include "train/device.h"
#include "train/random_run.h"
#include "train/reporting/start_lines.h"
#include "train/step.h"

int main(int argc, char** argv) {
  using namespace octavo;
  start_again_with_brief_spinning(argv);
  const std::vector<std::string> args(argv + 1, argv + argc);
  const config::Settings settings = config::parse(args, config::kTrainArguments).settings;
  train::prepare_process(settings);
  train::Run run;
  train::start_on_random_tokens(run, settings);
  run.schedule.max_steps = 1'000'000;
  std::printf("%s\n", train::threads_line(settings).c_str());
  std::fflush(stdout);
  for (int64_t steps = 0; std::cin >> steps;) {
    for (int64_t i = 0; i < steps; ++i) std::printf("%.6f ", train::train_step(run).seconds);
    std::printf("\n");
    std::fflush(stdout);
  }
  return 0;
}
