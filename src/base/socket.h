#pragma once
// Sockets that never block, and addresses that know what they are.

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/fd.h"

namespace octavo {

using Clock = std::chrono::steady_clock;

struct Endpoint {
  sockaddr_storage address{};
  socklen_t size = 0;
  std::string text;  // in digits
  bool loopback = false;
  bool wildcard = false;  // 0.0.0.0, ::, and their like
};

// The addresses of a name or of digits; none, and why, when there are none. `is_late`: no resolver
// answers yet (a network that is not up), which says nothing of the name.
std::vector<Endpoint> resolve_address(const std::string& address, int port, std::string* why,
                                      bool* is_late = nullptr);

// Bound and listening; not open, and errno, when that fails.
Fd listen_on(const Endpoint& endpoint);
int port_of(int fd);  // that a listening socket was given

// A peer that vanished without a word (power, cable) is noticed within half a minute.
void keep_alive(int fd);

// Connected within the deadline, or not open and why.
Fd connect_to(const Endpoint& endpoint, Clock::time_point deadline, std::string* why);

// All of `bytes`, or false and why.
bool send_all(int fd, std::string_view bytes, Clock::time_point deadline, std::string* why);
bool receive_all(int fd, char* bytes, size_t size, Clock::time_point deadline, std::string* why);

// Something to read, or an end, before the deadline.
bool wait_readable(int fd, Clock::time_point deadline);

// True when an idle connection has been closed, or has bytes that nobody asked for.
bool is_stale(int fd);

std::string digits_with_port(const sockaddr_storage& address, socklen_t size);  // for messages

}  // namespace octavo
