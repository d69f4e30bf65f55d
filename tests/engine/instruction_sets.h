#pragma once

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <functional>

namespace octavo::engine {

// Calls `body` with the kernels of each instruction set that this machine has.
inline void for_each_instruction_set(const std::function<void()>& body) {
  const auto use = [](int64_t targets) {
    hwy::SetSupportedTargetsForTest(targets);
    hwy::GetChosenTarget().DeInit();
  };
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    use(target);
    SCOPED_TRACE(hwy::TargetName(target));
    body();
  }
  use(0);
}

}  // namespace octavo::engine
