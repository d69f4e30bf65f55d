// Logs of other trainers, whatever their kind. A mutated TensorBoard or W&B record would fail its
// checksum: behind the first character e or w a frame that fits is put around it.
#include "foreign_logs/log.h"
#include "fuzz/harness.h"
#include "monitor/wandb.h"
#include "monitor/wire.h"

namespace {

std::string as_event(std::string_view body) {
  using namespace octavo::monitor;
  std::string out;
  append_little_endian(out, static_cast<uint64_t>(body.size()));
  append_little_endian(out, masked_crc32c(out));
  out += body;
  append_little_endian(out, masked_crc32c(body));
  return out;
}

}  // namespace

OCTAVO_FUZZ_TARGET(input) {
  using namespace octavo;
  if (input.empty()) return;
  static fuzz::MemoryFile file;
  const std::string_view body = input.substr(1);
  const std::string content = input[0] == 'e'   ? as_event(body) + as_event(body)
                              : input[0] == 'w' ? monitor::wandb_log_bytes(body, 0)
                                                : std::string(body);
  const fs::path path = file.write(content);
  fuzz::refusal_of([&] {
    const foreign_logs::Log log = foreign_logs::read_log(path, {.step_tokens = 512});
    fuzz::check(!log.steps.empty(), "a log without a step that was not refused");
    fuzz::check(log.steps.begin()->first >= 0, "a negative step");
    int64_t lost = 0;
    for (const auto& [step, point] : log.steps) {
      lost += !point.loss;
      fuzz::check(point.seconds >= 0 && point.tokens >= 0 && point.tokens_per_second >= 0,
                  "a negative time or number of tokens");
    }
    fuzz::check(lost == log.lost_losses, "losses that are not finite were not counted");
  });
}
