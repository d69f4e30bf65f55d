#pragma once
// Which network interface ranks talk over: dist_interface, GLOO_SOCKET_IFNAME, NCCL_SOCKET_IFNAME.
// A name that is not there, is down or has no address is an Error that lists those that are.

#include <string>
#include <string_view>
#include <vector>

#include "launch/rank_info.h"

namespace octavo::launch {

struct Interface {
  std::string name;
  bool up = false, loopback = false;
  std::vector<std::string> addresses;  // IPv4 first, then IPv6; link-local ones are left out
};
std::vector<Interface> interfaces();  // of this machine, in its order

// The address that a rank is reached at over this interface.
std::string interface_address(const std::string& name);

// Does the name stand for this machine alone (127.0.1.1, as some systems give their own name)?
bool is_loopback_name(const std::string& name);

// NCCL's forms: "eth" (all that begin so), "=eth0" (this one), "^docker" and "^=docker0" (all
// others), each with commas. Fails when no usable interface is meant. `who` names the setting.
std::vector<std::string> nccl_interfaces(std::string_view pattern, std::string_view who);

// The interface for Gloo and the rendezvous: the key's, else the first of GLOO_SOCKET_IFNAME, else
// "" (the one that the address chooses). Both variables are checked, whichever is used.
std::string chosen_interface(const std::string& dist_interface, const Variables& variables);

}  // namespace octavo::launch
