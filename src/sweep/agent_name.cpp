#include "sweep/agent_name.h"

#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "base/file.h"
#include "base/host.h"
#include "base/process.h"
#include "base/text.h"
#include "config/key_makers.h"

namespace octavo::sweep {
namespace {

// When the process began, in ticks since the boot; "" when there is none.
std::string start_of(pid_t pid) {
  std::ifstream file(str("/proc/", pid, "/stat"));
  std::string text;
  std::getline(file, text, '\0');
  const size_t name_end = text.rfind(')');
  if (name_end == text.npos || name_end + 2 >= text.size()) return "";
  const std::vector<std::string> fields = split(std::string_view(text).substr(name_end + 2), ' ');
  constexpr size_t kStart = 19;  // field 22, counted from the state, which is field 3
  return fields.size() > kStart ? fields[kStart] : "";
}

// The machine, since its last start, as this container sees it.
std::string place_name() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  std::error_code error;
  const std::string space = fs::read_symlink("/proc/self/ns/pid", error).string();
  std::string name = str(host_name(), "/", boot.substr(0, 13), "/");
  for (const char c : space)
    if (c >= '0' && c <= '9') name += c;
  return name;
}

}  // namespace

std::string own_agent_name() {
  return str(place_name(), "/", getpid(), "/", start_of(getpid()));
}

AgentState state_of_agent(const std::string& agent) {
  const std::vector<std::string> parts = split(agent, '/');
  if (parts.size() != 5 || str(parts[0], "/", parts[1], "/", parts[2]) != place_name())
    return AgentState::kUnknown;
  const auto pid = config::parse_number<pid_t>(parts[3]);
  if (!pid) return AgentState::kUnknown;
  const bool lives = start_of(*pid) == parts[4] && process_state(*pid) != 'Z';
  return lives ? AgentState::kAlive : AgentState::kGone;
}

std::string shown_agent(const std::string& agent) {
  const std::vector<std::string> parts = split(agent, '/');
  return parts.size() == 5 ? str(parts[0], ", process ", parts[3]) : agent;
}

}  // namespace octavo::sweep
