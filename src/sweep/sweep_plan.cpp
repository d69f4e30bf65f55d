#include "sweep/sweep_plan.h"

#include "base/error.h"
#include "base/json.h"

namespace octavo::sweep {

std::string hash_of(const SweepPlan& plan) {
  const std::string text =
      Json({plan.yaml, plan.config_hash, plan.flags, plan.run_cap, plan.seed}).dump();
  return hash_bytes(std::as_bytes(std::span(text)));
}

std::string plan_text(const SweepPlan& plan) {
  const Json json = {{"source", plan.source},
                     {"yaml", plan.yaml},
                     {"config", plan.config},
                     {"config_hash", plan.config_hash},
                     {"flags", plan.flags},
                     {"folder", plan.folder},
                     {"runs_dir", plan.runs_dir},
                     {"run_cap", plan.run_cap},
                     {"seed", plan.seed},
                     {"attempts", plan.attempts},
                     {"id", plan.id}};
  return json.dump();
}

SweepPlan parse_plan(std::string_view text, const std::string& source) {
  const Json json = parse_json(text, source);
  SweepPlan plan;
  plan.source = json_string(json, "source", source);
  plan.yaml = json_string(json, "yaml", source);
  plan.config = json_string(json, "config", source);
  plan.config_hash = json_string(json, "config_hash", source);
  plan.folder = json_string(json, "folder", source);
  plan.runs_dir = json_string(json, "runs_dir", source);
  plan.id = json_string(json, "id", source);
  plan.run_cap = json_int(json, "run_cap", source);
  plan.seed = json_int(json, "seed", source);
  plan.attempts = json_int(json, "attempts", source);
  for (const Json& flag : json_field(json, "flags", Json::value_t::array, source)) {
    if (!flag.is_string()) fail(ExitCode::kDamaged, "sweep", source, ": a flag is not text");
    plan.flags.push_back(flag.get<std::string>());
  }
  return plan;
}

std::string run_name_of(const std::string& sweep, const std::string& id, int64_t number) {
  std::string name;
  for (const char c : sweep.substr(0, 80)) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '_' || c == '-' || (c == '.' && !name.empty());
    name += plain ? c : '-';
  }
  std::string digits = std::to_string(number);
  digits.insert(0, digits.size() < 4 ? 4 - digits.size() : 0, '0');
  return str(name, "-", id, "-", digits);
}

}  // namespace octavo::sweep
