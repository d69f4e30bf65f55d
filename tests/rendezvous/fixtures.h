#pragma once
// A server on loopback, and raw connections that misbehave.

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "base/socket.h"
#include "rendezvous/client.h"
#include "rendezvous/protocol.h"
#include "rendezvous/server.h"

namespace octavo::rendezvous {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline const std::string kSecret = "a secret of more than sixteen bytes";

inline std::unique_ptr<Client> client_of(const Server& server,
                                         const std::string& secret = kSecret) {
  return std::make_unique<Client>("127.0.0.1", server.port(), secret, seconds(5));
}

// A connection that has said nothing yet.
inline Fd knock(const Server& server) {
  std::string why;
  const auto endpoints = resolve_address("127.0.0.1", server.port(), &why);
  Fd fd = connect_to(endpoints.at(0), Clock::now() + seconds(5), &why);
  EXPECT_TRUE(fd.open()) << why;
  return fd;
}

inline bool say(const Fd& fd, std::string_view bytes) {
  std::string why;
  return send_all(fd.get(), bytes, Clock::now() + seconds(5), &why);
}

// Everything that comes until the other side closes, or `limit` bytes.
inline std::string hear(const Fd& fd, size_t limit, milliseconds patience = seconds(5)) {
  std::string heard, why;
  char byte = 0;
  const auto deadline = Clock::now() + patience;
  while (heard.size() < limit && receive_all(fd.get(), &byte, 1, deadline, &why)) heard += byte;
  return heard;
}

inline bool becomes_true(const std::function<bool()>& condition,
                         milliseconds patience = seconds(5)) {
  const auto deadline = Clock::now() + patience;
  while (!condition() && Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(5));
  return condition();
}

}  // namespace octavo::rendezvous
