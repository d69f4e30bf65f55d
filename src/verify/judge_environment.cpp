#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "verify/judge.h"
#include "verify/variables.h"

namespace octavo::verify {
namespace {

Finding environment_finding(std::string id, Status status, std::string wanted, std::string found,
                            std::string fix) {
  return {Section::kEnvironment, std::move(id),    status,
          std::move(wanted),     std::move(found), std::move(fix)};
}

Finding judge_set(const Variable& variable, const std::string& value, const Facts& facts) {
  Verdict verdict;
  if (variable.judge != nullptr) verdict = variable.judge(value, facts);
  const std::string shown = variable.secret ? "set (not shown)" : value.empty() ? "empty" : value;
  return environment_finding(
      std::string(variable.name), verdict.status, std::string(variable.wanted),
      str(shown, verdict.remark.empty() ? "" : ": ", verdict.remark, ". Meaning: ", variable.does),
      verdict.fix);
}

// A name of a family that is not in the table.
Finding judge_of_family(const Family& family, const std::string& name, const std::string& value) {
  if (std::ranges::find(family.names, name) != family.names.end())
    return environment_finding(name, Status::kNote, "", str(value, ": ", family.do_what), "");
  std::vector<std::string_view> known(family.names.begin(), family.names.end());
  for (const Variable& v : variables())
    if (v.name.starts_with(family.prefix)) known.push_back(v.name);
  const std::string nearest = nearest_name(name, known);
  return environment_finding(
      name, Status::kWarn, str("a name that ", family.library, " reads"),
      str(value, ": ", family.library, " reads no such variable"),
      nearest.empty() ? "unset it" : str("did you mean ", nearest, "? Otherwise unset it"));
}

}  // namespace

std::vector<Finding> judge_environment(const Facts& facts) {
  std::vector<Finding> out;
  std::vector<std::string> others;
  for (const Variable& variable : variables()) {
    const auto it = facts.environment.find(std::string(variable.name));
    if (it != facts.environment.end())
      out.push_back(judge_set(variable, it->second, facts));
    else if (variable.in_guides)
      out.push_back(environment_finding(std::string(variable.name), Status::kOk,
                                        std::string(variable.wanted),
                                        str("not set. Meaning: ", variable.does), ""));
  }
  for (const auto& entry : facts.environment) {
    const std::string &name = entry.first, &value = entry.second;
    if (find_variable(name) != nullptr || name.ends_with("_SOCKET_IFNAME")) continue;
    const auto all = families();
    const auto family =
        std::ranges::find_if(all, [&](const Family& f) { return name.starts_with(f.prefix); });
    if (family != all.end())
      out.push_back(judge_of_family(*family, name, value));
    else
      others.push_back(name);
  }
  if (!others.empty())
    out.push_back(environment_finding("others", Status::kNote, "",
                                      "set and not looked at: " + join(others, ", "), ""));
  return out;
}

}  // namespace octavo::verify
