#include "base/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/error.h"

namespace octavo {
namespace {

void set_option(int fd, int level, int name, int value) {
  // Wishes only: a system without one of them serves as well.
  static_cast<void>(::setsockopt(fd, level, name, &value, sizeof value));
}

void classify(Endpoint& endpoint) {
  uint32_t v4 = 0;
  if (endpoint.address.ss_family == AF_INET) {
    sockaddr_in address{};
    std::memcpy(&address, &endpoint.address, sizeof address);
    v4 = ntohl(address.sin_addr.s_addr);
  } else {
    sockaddr_in6 address{};
    std::memcpy(&address, &endpoint.address, sizeof address);
    if (!IN6_IS_ADDR_V4MAPPED(&address.sin6_addr)) {
      endpoint.loopback = IN6_IS_ADDR_LOOPBACK(&address.sin6_addr);
      endpoint.wildcard = IN6_IS_ADDR_UNSPECIFIED(&address.sin6_addr);
      return;
    }
    std::memcpy(&v4, &address.sin6_addr.s6_addr[12], 4);
    v4 = ntohl(v4);
  }
  endpoint.loopback = (v4 >> 24) == 127;
  endpoint.wildcard = v4 == 0;
}

std::string digits_of(const sockaddr_storage& address, socklen_t size, bool with_port) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host.data(), host.size(),
                    port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return "?";
  return with_port ? str(host.data(), " port ", port.data()) : std::string(host.data());
}

// False when the time is over first.
bool wait_for(int fd, short events, Clock::time_point deadline, std::string* why) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 3'600'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) {
      *why = std::strerror(errno);
      return false;
    }
    if (Clock::now() >= deadline) {
      *why = "no answer in time";
      return false;
    }
  }
}

}  // namespace

std::vector<Endpoint> resolve_address(const std::string& address, int port, std::string* why,
                                      bool* is_late) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &list);
  std::vector<Endpoint> endpoints;
  if (is_late != nullptr) *is_late = error == EAI_AGAIN;
  if (error != 0) {
    const char* found = error == EAI_AGAIN ? "' does not resolve yet (" : "' is no address here (";
    *why = str("'", address, found, ::gai_strerror(error), ")");
    return endpoints;
  }
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    if (entry->ai_addrlen > sizeof(sockaddr_storage)) continue;
    Endpoint endpoint;
    std::memcpy(&endpoint.address, entry->ai_addr, entry->ai_addrlen);
    endpoint.size = entry->ai_addrlen;
    endpoint.text = digits_of(endpoint.address, endpoint.size, false);
    classify(endpoint);
    endpoints.push_back(std::move(endpoint));
  }
  ::freeaddrinfo(list);
  return endpoints;
}

Fd listen_on(const Endpoint& endpoint) {
  Fd fd(::socket(endpoint.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.open()) return fd;
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&endpoint.address), endpoint.size) != 0 ||
      ::listen(fd.get(), SOMAXCONN) != 0) {
    const int error = errno;
    fd.reset();
    errno = error;
  }
  return fd;
}

int port_of(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  sockaddr_in v4{};  // the port stands at the same place in both families
  std::memcpy(&v4, &address, sizeof v4);
  return ntohs(v4.sin_port);
}

void keep_alive(int fd) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 25'000);
}

Fd connect_to(const Endpoint& endpoint, Clock::time_point deadline, std::string* why) {
  Fd fd(::socket(endpoint.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.open()) {
    *why = std::strerror(errno);
    return fd;
  }
  keep_alive(fd.get());
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&endpoint.address), endpoint.size) == 0)
    return fd;
  int error = errno;
  if (error == EINPROGRESS || error == EINTR) {
    if (!wait_for(fd.get(), POLLOUT, deadline, why)) return {};
    socklen_t size = sizeof error;
    if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  }
  if (error == 0) return fd;
  *why = std::strerror(error);
  return {};
}

bool send_all(int fd, std::string_view bytes, Clock::time_point deadline, std::string* why) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd, POLLOUT, deadline, why)) return false;
    } else if (errno != EINTR) {
      *why = std::strerror(errno);
      return false;
    }
  }
  return true;
}

bool receive_all(int fd, char* bytes, size_t size, Clock::time_point deadline, std::string* why) {
  while (size > 0) {
    const ssize_t got = ::recv(fd, bytes, size, 0);
    if (got > 0) {
      bytes += got;
      size -= static_cast<size_t>(got);
    } else if (got == 0) {
      *why = "the other side closed the connection";
      return false;
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd, POLLIN, deadline, why)) return false;
    } else if (errno != EINTR) {
      *why = std::strerror(errno);
      return false;
    }
  }
  return true;
}

bool wait_readable(int fd, Clock::time_point deadline) {
  std::string why;
  return wait_for(fd, POLLIN, deadline, &why);
}

bool is_stale(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) != 0;
}

std::string digits_with_port(const sockaddr_storage& address, socklen_t size) {
  return digits_of(address, size, true);
}

}  // namespace octavo
