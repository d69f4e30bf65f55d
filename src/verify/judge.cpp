#include "verify/judge.h"

#include <iterator>

#include "base/error.h"

namespace octavo::verify {

Requirements requirements_of(const config::Parsed& parsed) {
  const config::Settings& s = parsed.settings;
  const fp8::Request request = fp8::request_of(s);
  // The key's default is bf16, but who asks whether a machine is able asks about FP8.
  const bool plain = parsed.given("mixed_precision") && !fp8::wants_fp8(s);
  const bool rehearsed = request.execution == config::Fp8Execution::kRehearse ||
                         request.backend == config::Fp8Backend::kRehearse;
  return {.fp8 = !plain && !rehearsed,
          .require_gpu = s.require_gpu || s.device == config::DeviceChoice::kCuda ||
                         request.execution == config::Fp8Execution::kNative,
          .te = request.backend == config::Fp8Backend::kTe,
          .recipe = request.wanted.recipe};
}

std::vector<Finding> judge(const Facts& facts, const Requirements& wanted) {
  std::vector<Finding> all;
  for (auto part : {judge_gpus(facts, wanted), judge_libraries(facts, wanted),
                    judge_environment(facts), judge_network(facts), judge_host(facts)})
    all.insert(all.end(), std::make_move_iterator(part.begin()),
               std::make_move_iterator(part.end()));
  return all;
}

}  // namespace octavo::verify
