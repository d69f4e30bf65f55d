// A run that was trained in both precisions has checkpoints in two folders: `latest` is the newest.

#include "train/state/switched_precision.h"

#include <chrono>
#include <thread>

#include "checkpoint/sample_state.h"
#include "scratch.h"

namespace octavo::train {
namespace {

class SwitchedPrecision : public testing::Test {
 protected:
  void SetUp() override {
    before_ = fs::current_path();
    fs::current_path(scratch_.path());
  }
  void TearDown() override { fs::current_path(before_); }

  static void save(const fs::path& root, int64_t step, const std::string& run = "run",
                   bool best = false) {
    // Which one is newer is told by milliseconds.
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    checkpoint::State state = checkpoint::sample_state(step, 1);
    state.extra["run_name"] = run;
    checkpoint::SaveOptions options;
    options.best = best;
    options.newest_run = true;
    checkpoint::save(root / run, state, options);
  }
  // What a run resumes from in this precision, the one that its file says.
  static std::string resumed(config::Precision precision, const std::string& what = "latest") {
    config::Settings s;
    s.run_name = "run";
    s.resume = what;
    s.mixed_precision = precision;
    return resume_of(s, precision == config::Precision::kFp8);
  }
  static constexpr auto kBf16 = config::Precision::kBf16, kFp8 = config::Precision::kFp8;

  Scratch scratch_;
  fs::path before_;
};

TEST_F(SwitchedPrecision, LatestIsTheNewestOfBothFolders) {
  save("checkpoints", 10);
  EXPECT_EQ(resumed(kBf16), "latest");
  EXPECT_EQ(resumed(kFp8), "checkpoints/run");
  save("checkpoints_fp8", 20);
  EXPECT_EQ(resumed(kBf16), "checkpoints_fp8/run");
  EXPECT_EQ(checkpoint::resolve("checkpoints", resumed(kBf16)).filename(), "step-00000020");
  EXPECT_EQ(resumed(kFp8), "latest");
  save("checkpoints", 30);
  EXPECT_EQ(resumed(kBf16), "latest");
  EXPECT_EQ(resumed(kFp8), "checkpoints/run");
  EXPECT_EQ(checkpoint::resolve("checkpoints_fp8", resumed(kFp8)).filename(), "step-00000030");
}

TEST_F(SwitchedPrecision, AnotherRunOrFolderIsNotTaken) {
  save("checkpoints", 10, "run", true);
  save("checkpoints_fp8", 20, "other", true);
  EXPECT_EQ(resumed(kBf16), "latest");
  save("checkpoints_fp8", 20, "run", true);
  EXPECT_EQ(resumed(kBf16, "best"), "best");  // losses of two precisions say little together
  EXPECT_EQ(resumed(kBf16, "step-00000010"), "step-00000010");
  config::Settings s;
  s.run_name = "run";
  s.resume = "latest";
  s.mixed_precision = kBf16;
  s.checkpoint_dir = "checkpoints";
  EXPECT_EQ(resume_of(s, false), "latest");
}

// A verb that reads looks where the run of the settings has its checkpoints.
TEST_F(SwitchedPrecision, ReadersLookWhereTheNamedRunIs) {
  save("checkpoints", 10, "plain");
  save("checkpoints_fp8", 20, "low", true);
  config::Settings s;
  s.mixed_precision = kBf16;
  for (const char* what : {"latest", "best", "step-00000020"}) {
    s.checkpoint = what;
    s.run_name = "low";
    EXPECT_EQ(root_of_checkpoint(s), "checkpoints_fp8") << what;
    s.run_name = "plain";
    EXPECT_EQ(root_of_checkpoint(s), "checkpoints") << what;
    s.run_name = "";
    EXPECT_EQ(root_of_checkpoint(s), "checkpoints") << what;
  }
  s.checkpoint = "low";
  EXPECT_EQ(root_of_checkpoint(s), "checkpoints_fp8");
}

}  // namespace
}  // namespace octavo::train
