// One rank of tests/integration/reshard.py: resumes a run, saves at once what it has, trains on.
// usage: reshard_tool FOLDER STEPS [CONFIG.yaml] [--key value]…: the flags of octavo train, with
// --resume. The checkpoint is saved into FOLDER; then STEPS steps, a line with the loss of each.

#include <cstdio>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/key.h"
#include "config/parse.h"
#include "train/device.h"
#include "train/run.h"
#include "train/state/persist.h"
#include "train/step.h"

namespace {

int resume_and_save(const std::string& folder, int64_t steps,
                    const std::vector<std::string>& args) {
  using namespace octavo;
  const config::Settings settings = config::parse(args, config::kTrainArguments).settings;
  train::prepare_process(settings);
  const auto run = train::assemble(settings);
  run->settings.checkpoint_dir = folder;
  train::save(*run, "run", false, nullptr);
  for (int64_t i = 0; i < steps; ++i) {
    const auto record = train::train_step(*run);
    if (run->world.is_first())
      std::printf("%lld %.9g\n", static_cast<long long>(run->progress.step), record.loss);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  try {
    return resume_and_save(argv[1], std::stoll(argv[2]), {argv + 3, argv + argc});
  } catch (const octavo::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}
