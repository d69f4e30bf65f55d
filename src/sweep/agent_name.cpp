#include "sweep/agent_name.h"

#include <unistd.h>

#include "base/error.h"
#include "base/host.h"
#include "base/process.h"
#include "base/text.h"
#include "config/key_makers.h"

namespace octavo::sweep {
namespace {

// The machine, since its last start, as this container sees it.
std::string place_name() {
  const auto [boot, space] = process_space();
  std::string name = str(host_name(), "/", boot.substr(0, 13), "/");
  for (const char c : space)
    if (c >= '0' && c <= '9') name += c;
  return name;
}

}  // namespace

std::string own_agent_name() {
  return str(place_name(), "/", getpid(), "/", process_start(getpid()));
}

AgentState state_of_agent(const std::string& agent) {
  const std::vector<std::string> parts = split(agent, '/');
  if (parts.size() != 5 || str(parts[0], "/", parts[1], "/", parts[2]) != place_name())
    return AgentState::kUnknown;
  const auto pid = config::parse_number<pid_t>(parts[3]);
  if (!pid) return AgentState::kUnknown;
  const bool lives = process_lives(*pid, parts[4]);
  return lives ? AgentState::kAlive : AgentState::kGone;
}

std::string shown_agent(const std::string& agent) {
  const std::vector<std::string> parts = split(agent, '/');
  return parts.size() == 5 ? str(parts[0], ", process ", parts[3]) : agent;
}

}  // namespace octavo::sweep
