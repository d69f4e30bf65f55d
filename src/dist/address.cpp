#include "dist/address.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>

#include "base/error.h"

namespace octavo::dist {
namespace {

// The source that the system picks for a datagram; none is sent. "" when there is no way.
std::string source_for(const addrinfo& target) {
  const int fd = socket(target.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return {};
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  char text[NI_MAXHOST] = "";
  const bool found = ::connect(fd, target.ai_addr, target.ai_addrlen) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
                     getnameinfo(reinterpret_cast<const sockaddr*>(&own), size, text, sizeof text,
                                 nullptr, 0, NI_NUMERICHOST) == 0;
  ::close(fd);
  return found ? text : std::string();
}

}  // namespace

std::string address_towards(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* list = nullptr;
  const int status = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(list, &freeaddrinfo);
  if (status != 0)
    fail(ExitCode::kEnvironment, "dist", "the master address '", host,
         "' is no address: ", gai_strerror(status),
         "; check MASTER_ADDR, or --master_address of octavo launch");
  for (const addrinfo* each = list; each != nullptr; each = each->ai_next)
    if (std::string found = source_for(*each); !found.empty()) return found;
  fail(ExitCode::kEnvironment, "dist", "no way from this machine to the master address '", host,
       "'; name a network interface by dist_interface or GLOO_SOCKET_IFNAME");
}

}  // namespace octavo::dist
