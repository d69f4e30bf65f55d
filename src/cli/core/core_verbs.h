#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace octavo::cli {

using CoreArgs = std::span<const std::string>;

int train(CoreArgs args);
int generate(CoreArgs args);
int eval(CoreArgs args);
int checkpoints(CoreArgs args);  // list, verify, export
int verify(CoreArgs args);
int diagnose(CoreArgs args);
int bench(CoreArgs args);
int dry_run(CoreArgs args);  // octavo plan --dry_run, on the fake CUDA device
// `permanent_every`: permanent_checkpoint_freq of the run, whose checkpoints from before they were
// marked are permanent by it.
int list_checkpoints(const std::string& folder, bool json, const std::string& run,
                     int64_t permanent_every = 0);

}  // namespace octavo::cli
