#pragma once
// A small key-value store over TCP at which the ranks of a run rendezvous. One thread serves
// everybody and never waits for anybody: sockets do not block, an operation that waits for a key is
// kept until the key comes or its time is over, and whoever has not proven the secret within the
// deadline is dropped and counted. It listens on the one address it was given.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace octavo::rendezvous {

struct Limits {
  size_t connections = 65536;    // that have proven the secret
  size_t unauthenticated = 512;  // that have not yet; one more, and the oldest is dropped
  size_t keys = size_t{1} << 20;
  size_t bytes = size_t{512} << 20;         // keys and values kept
  size_t buffer_bytes = size_t{256} << 20;  // requests and replies on their way, all together
  std::chrono::milliseconds handshake{5000};
};

struct Counts {
  int64_t accepted = 0;  // connections, good and bad
  int64_t let_in = 0;    // proved the secret
  int64_t garbage = 0;   // did not speak the protocol
  int64_t wrong_secret = 0;
  int64_t too_slow = 0;     // no proof within the deadline, or pushed out by newer connections
  int64_t left_early = 0;   // closed before they were authenticated
  int64_t turned_away = 0;  // over the limit of connections or of open files
  int64_t over_memory = 0;  // dropped because all buffers together were full
  int64_t requests = 0;
  int64_t refused = 0;      // requests answered with a refusal (limits, wrong form)
  int64_t connections = 0;  // now, authenticated
  int64_t keys = 0;         // now
  int64_t bytes = 0;        // now, as Limits::bytes counts
};

class Server {
 public:
  // Port 0: the system picks one. 0.0.0.0 and :: are refused; so is a missing secret, unless the
  // address is loopback.
  Server(const std::string& address, int port, std::string secret, const Limits& limits = {});
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::string& address() const;  // in digits
  int port() const;
  Counts counts() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace octavo::rendezvous
