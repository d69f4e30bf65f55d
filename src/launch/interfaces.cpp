#include "launch/interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "launch/variables.h"

namespace octavo::launch {
namespace {

// The address as text; "" for other families and for IPv6 that is valid on one link only.
std::string address_text(const sockaddr* address) {
  if (address == nullptr) return {};
  char text[INET6_ADDRSTRLEN] = {};
  if (address->sa_family == AF_INET) {
    sockaddr_in four{};
    std::memcpy(&four, address, sizeof four);
    inet_ntop(AF_INET, &four.sin_addr, text, sizeof text);
  } else if (address->sa_family == AF_INET6) {
    sockaddr_in6 six{};
    std::memcpy(&six, address, sizeof six);
    if (IN6_IS_ADDR_LINKLOCAL(&six.sin6_addr)) return {};
    inet_ntop(AF_INET6, &six.sin6_addr, text, sizeof text);
  }
  return text;
}

std::string listed(const std::vector<Interface>& all) {
  std::string text;
  for (const Interface& each : all)
    text += str(text.empty() ? "" : ", ", each.name,
                !each.up                 ? " (down)"
                : each.addresses.empty() ? " (no address)"
                                         : " " + each.addresses.front());
  return text;
}

const Interface& usable(const std::vector<Interface>& all, const std::string& name,
                        std::string_view who) {
  const auto found = std::ranges::find(all, name, &Interface::name);
  const char* problem = found == all.end()         ? "is not there"
                        : !found->up               ? "is down"
                        : found->addresses.empty() ? "has no address"
                                                   : nullptr;
  if (problem != nullptr)
    fail(ExitCode::kEnvironment, "launch", who, ": wanted a network interface with an address, ",
         "found that '", name.substr(0, 40), "' ", problem, "; there are: ", listed(all));
  return *found;
}

}  // namespace

std::vector<Interface> interfaces() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0)
    fail(ExitCode::kEnvironment, "launch",
         "wanted this machine's network interfaces, found: ", std::strerror(errno));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  std::vector<Interface> all;
  for (const int family : {AF_INET, AF_INET6, AF_UNSPEC}) {
    for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
      auto known = std::ranges::find(all, entry->ifa_name, &Interface::name);
      if (known == all.end()) {
        all.push_back({entry->ifa_name,
                       (entry->ifa_flags & IFF_UP) != 0,
                       (entry->ifa_flags & IFF_LOOPBACK) != 0,
                       {}});
        known = all.end() - 1;
      }
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      std::string text = address_text(entry->ifa_addr);
      if (!text.empty()) known->addresses.push_back(std::move(text));
    }
  }
  return all;
}

std::string interface_address(const std::string& name) {
  const std::vector<Interface> all = interfaces();
  return usable(all, name, "network interface").addresses.front();
}

bool is_loopback_name(const std::string& name) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, &hints, &first) != 0 || first == nullptr) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(first, freeaddrinfo);
  const std::string text = address_text(first->ai_addr);
  return text.starts_with("127.") || text == "::1";
}

std::vector<std::string> nccl_interfaces(std::string_view pattern, std::string_view who) {
  const std::vector<Interface> all = interfaces();
  std::string_view rest = pattern;
  const bool others = rest.starts_with('^');
  if (others) rest.remove_prefix(1);
  const bool exact = rest.starts_with('=');
  if (exact) rest.remove_prefix(1);
  const std::vector<std::string> names = split(rest, ',');
  const auto meant = [&](const Interface& each) {
    const bool named = std::ranges::any_of(names, [&](const std::string& name) {
      const std::string_view bare = std::string_view(name).substr(0, name.find(':'));
      return exact ? each.name == bare : !bare.empty() && each.name.starts_with(bare);
    });
    return named != others;
  };
  std::vector<std::string> chosen;
  for (const Interface& each : all)
    if (meant(each) && each.up && !each.addresses.empty()) chosen.push_back(each.name);
  if (chosen.empty())
    fail(ExitCode::kEnvironment, "launch", who, ": wanted an interface that is up and has an ",
         "address, found none for '", pattern.substr(0, 80), "'; there are: ", listed(all));
  return chosen;
}

std::string chosen_interface(const std::string& dist_interface, const Variables& variables) {
  const std::vector<Interface> all = interfaces();
  const std::string nccl = variable(variables, "NCCL_SOCKET_IFNAME").value_or("");
  if (!nccl.empty()) nccl_interfaces(nccl, "NCCL_SOCKET_IFNAME");
  const std::string gloo = variable(variables, "GLOO_SOCKET_IFNAME").value_or("");
  const std::vector<std::string> names =
      gloo.empty() ? std::vector<std::string>{} : split(gloo, ',');
  for (const std::string& name : names) usable(all, name, "GLOO_SOCKET_IFNAME");
  if (!dist_interface.empty()) {
    usable(all, dist_interface, "dist_interface");
    if (!names.empty() && std::ranges::find(names, dist_interface) == names.end())
      log_warn(str("dist_interface ", dist_interface, " is used; GLOO_SOCKET_IFNAME=", gloo,
                   " says another"));
    return dist_interface;
  }
  if (names.size() > 1)
    log_warn(str("GLOO_SOCKET_IFNAME=", gloo, ": only the first of ", names.size(), " is used"));
  return names.empty() ? "" : names.front();
}

}  // namespace octavo::launch
