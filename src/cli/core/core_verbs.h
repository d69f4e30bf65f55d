#pragma once

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
int list_checkpoints(const std::string& folder, bool json, const std::string& run);

}  // namespace octavo::cli
