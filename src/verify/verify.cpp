#include "verify/verify.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/progress.h"
#include "train/device.h"
#include "train/state/persist.h"
#include "verify/before_long_run.h"
#include "verify/gather.h"
#include "verify/judge.h"
#include "verify/kernels.h"
#include "verify/report.h"
#include "verify/speed.h"
#include "verify/training.h"

namespace octavo::verify {
namespace {

// Every GPU with FP8 units has it, and it keeps nothing between steps.
constexpr fp8::Recipe kPlainRecipe = fp8::Recipe::kCurrent;

class Verification {
 public:
  Verification(const config::Parsed& parsed, const std::function<void(const std::string&)>& show)
      : parsed_(parsed),
        settings_(parsed.settings),
        wanted_(requirements_of(parsed)),
        show_(show) {}

  Report run() {
    facts_ = gather(train::checkpoint_dir(settings_));
    report_.fake_device = facts_.fake_device;
    add(judge(facts_, wanted_));
    if (cannot_compute()) {
      skip(Section::kKernels, "a failure above keeps this process from computing on the device");
      skip(Section::kTraining, "as above");
      skip(Section::kSpeed, "as above");
      if (settings_.before_long_run)
        skip(Section::kRunSettings,
             "the list before a long run was not gone through: it wants a device that computes. "
             "With --device auto it is, and --gpu NAME forecasts a GPU that is not here");
      return std::move(report_);
    }
    train::prepare_process(settings_);
    kernels();
    if (facts_.fake_device) {
      skip(Section::kTraining, "fake CUDA device: kernels do not run");
      skip(Section::kSpeed, "fake CUDA device: kernels do not run");
    } else {
      training();
      speed();
    }
    if (settings_.before_long_run) before_long_run();
    return std::move(report_);
  }

 private:
  void add(std::vector<Finding> found) {
    std::vector<Section> sections;
    for (const Finding& f : found)
      if (std::ranges::find(sections, f.section) == sections.end()) sections.push_back(f.section);
    for (const Section s : sections)
      show_(section_text(s, found, facts_.fake_device, settings_.verbose));
    report_.findings.insert(report_.findings.end(), std::make_move_iterator(found.begin()),
                            std::make_move_iterator(found.end()));
  }

  // A GPU is asked for and is not there.
  bool cannot_compute() const {
    return settings_.device == config::DeviceChoice::kCuda && facts_.gpus.gpus.empty();
  }

  bool on_gpu() const {
    return settings_.device != config::DeviceChoice::kCpu && !facts_.gpus.gpus.empty();
  }

  void skip(Section section, const std::string& why) {
    add({{section, "all", Status::kNotChecked, "", why, ""}});
  }

  // The recipes that the device has; on a device without any, all in rehearsal.
  std::vector<fp8::Recipe> recipes() const {
    std::vector<fp8::Recipe> out(std::begin(fp8::kRecipes), std::end(fp8::kRecipes));
    if (has_native())
      std::erase_if(out, [&](auto r) { return !fp8::has_native(device_of(facts_, 0), r); });
    return out;
  }
  bool has_native() const {
    return on_gpu() && fp8::has_native(device_of(facts_, 0), kPlainRecipe);
  }

  // Settings of a run that takes FP8 wherever the device is.
  config::Settings fp8_settings() const {
    config::Settings s = settings_;
    s.use_fp8 = true;
    s.mixed_precision = config::Precision::kBf16;
    s.fp8_execution = config::Fp8Execution::kAuto;
    s.fp8_recipe = kPlainRecipe;
    s.fp8_scenario = config::Fp8Scenario::kNone;
    if (!has_native()) s.fp8_execution = config::Fp8Execution::kRehearse;
    return s;
  }

  void kernels() {
    constexpr double kAbout = 60;
    Progress progress("kernels", kAbout, "checks");
    double done = 0;
    auto found = check_kernels(train::target_of(fp8_settings()), facts_.fake_device,
                               [&](const std::string& id) { progress.set(++done, id); });
    progress.finish();
    add(std::move(found));
  }

  void training() {
    const auto list = recipes();
    Progress progress("training", static_cast<double>(list.size() + 1), "runs");
    double done = 0;
    const auto runs = train_tiny(fp8_settings(), list,
                                 [&](const std::string& name) { progress.set(done++, name); });
    progress.finish();
    add(judge_training(runs, has_native()));
  }

  void speed() {
    std::vector<Finding> found;
    for (const fp8::Recipe recipe : recipes()) {
      if (!has_native() && recipe != fp8::kDefaultRecipe) continue;
      config::Settings s = fp8_settings();
      s.fp8_recipe = recipe;
      found.push_back(judge_speed(measure_layer_speed(train::target_of(s), recipe)));
    }
    if (!on_gpu()) found.push_back(what_was_not_checked());
    add(std::move(found));
  }

  static Finding what_was_not_checked() {
    return {Section::kSpeed,
            "not checked here",
            Status::kNotChecked,
            "",
            "kernels, GEMMs and speed of a GPU: the CPU's were. Run octavo verify --require_gpu "
            "on "
            "the machine that trains",
            ""};
  }

  void before_long_run() {
    Progress progress("the run", 2, "parts");
    progress.set(0, "data, memory and disk");
    LongRun found = gather_long_run(parsed_, facts_);
    progress.set(1, "a stop and a resumption");
    if (!facts_.fake_device) found.resume = rehearse_resume(found);
    progress.finish();
    add(judge_long_run(found));
  }

  const config::Parsed& parsed_;
  const config::Settings& settings_;
  Requirements wanted_;
  const std::function<void(const std::string&)>& show_;
  Facts facts_;
  Report report_;
};

}  // namespace

Report run(const config::Parsed& parsed, const std::function<void(const std::string&)>& show) {
  return Verification(parsed, show).run();
}

}  // namespace octavo::verify
