#pragma once
// The other side of Server. Every operation may be called from any thread: each takes a connection
// of its own from a small pool for as long as it lasts, so that one that waits holds up no other.
// Waiting happens in the server (no polling) and always ends: by the key, by the time, or by a
// connection that broke.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/errors.h"

namespace octavo::rendezvous {

// Which of prefix0 … prefix(n-1) are not there: how many, and the first 16 of them.
struct Missing {
  int64_t count = 0;
  std::vector<int64_t> first;
};

class Client {
 public:
  using Milliseconds = std::chrono::milliseconds;

  // Tries to connect until `timeout` is over (the server may start later than its clients).
  // A wrong secret fails at once, a name that does not resolve after some seconds (WrongAddress).
  Client(const std::string& address, int port, std::string secret, Milliseconds timeout);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void set(const std::string& key, const std::string& value);
  // Waits for the key; TimedOut when it does not come.
  std::string get(const std::string& key, Milliseconds timeout);
  std::optional<std::string> try_get(const std::string& key);
  // The new value. A key that is not there counts as 0; one that is no number is refused.
  int64_t add(const std::string& key, int64_t delta);
  bool check(const std::vector<std::string>& keys);  // all there?
  void wait(const std::vector<std::string>& keys, Milliseconds timeout);
  // The same, until `interrupted` says so, which is asked a few times a second without a message:
  // false then. The server may still hold the wait for a moment.
  bool wait_unless(const std::vector<std::string>& keys, Milliseconds timeout,
                   const std::function<bool()>& interrupted);
  // Sets `desired` when the value is `expected` (a missing key: when `expected` is empty), and
  // returns what is there afterwards (a missing key: `expected`), as c10d's stores do.
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired);
  bool remove(const std::string& key);               // was it there?
  int64_t remove_prefix(const std::string& prefix);  // how many were there
  int64_t size();
  void append(const std::string& key, const std::string& value);
  std::vector<std::string> multi_get(const std::vector<std::string>& keys, Milliseconds timeout);
  // Does not wait: "" for a key that is not there. One message for all of them.
  std::vector<std::string> multi_try_get(const std::vector<std::string>& keys);
  void multi_set(const std::vector<std::string>& keys, const std::vector<std::string>& values);
  Missing missing(const std::string& prefix, int64_t n);

  // How long an operation that waits for no key may take until the server counts as unreachable
  // (30 s unless set). A waiting one may take this much longer than its own timeout.
  void set_answer_timeout(Milliseconds patience);

  // Operations that are under way in other threads end with Unreachable, and so do later ones.
  void stop();

  const std::string& address() const;  // as given
  int port() const;

 private:
  class Pool;
  std::unique_ptr<Pool> pool_;
};

}  // namespace octavo::rendezvous
