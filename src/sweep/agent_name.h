#pragma once
// Who an agent is, such that another process can tell whether it still lives.

#include <string>

namespace octavo::sweep {

// "host/boot/namespace/pid/start": one process of one machine, and no later one with its number.
std::string own_agent_name();

enum class AgentState { kAlive, kGone, kUnknown };  // unknown: it is on another machine
AgentState state_of_agent(const std::string& agent);

std::string shown_agent(const std::string& agent);  // "host, process 123"

}  // namespace octavo::sweep
