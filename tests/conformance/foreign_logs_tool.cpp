// What foreign_logs reads from a log, for tests/conformance/foreign_logs.py.
//   foreign_logs_tool PATH [LOSS_NAME [VAL_LOSS_NAME]]
// One line of JSON: format, names, counts, remarks, and the steps as [step, loss, seconds, tokens,
// tokens_per_second], evaluations as [step, loss]; null: not finite.

#include <iostream>
#include <nlohmann/json.hpp>

#include "foreign_logs/log.h"
#include "tool_main.h"

int main(int argc, char** argv) {
  using namespace octavo;
  return tool_main([&] {
    if (argc < 2) fail(ExitCode::kUsage, "foreign_logs_tool", "wanted PATH");
    const foreign_logs::Log log = foreign_logs::read_log(
        argv[1], {.loss_name = argc > 2 ? argv[2] : "", .val_loss_name = argc > 3 ? argv[3] : ""});
    const auto number = [](const std::optional<double>& value) {
      return value ? nlohmann::json(*value) : nlohmann::json();
    };
    nlohmann::json out = {{"format", log.format},
                          {"loss_name", log.loss_name},
                          {"val_loss_name", log.val_loss_name},
                          {"bad_lines", log.bad_lines},
                          {"repeated", log.repeated_steps},
                          {"skipped", log.skipped_steps},
                          {"peak_bytes", log.peak_bytes},
                          {"remarks", log.remarks}};
    out["steps"] = nlohmann::json::array();
    for (const auto& [step, point] : log.steps)
      out["steps"].push_back(
          {step, number(point.loss), point.seconds, point.tokens, point.tokens_per_second});
    out["evaluations"] = nlohmann::json::array();
    for (const auto& [step, loss] : log.evaluations)
      out["evaluations"].push_back({step, number(loss)});
    std::cout << out.dump() << "\n";
  });
}
