#pragma once
// The insides of Server: one thread around epoll.

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/socket.h"
#include "rendezvous/protocol.h"
#include "rendezvous/server.h"
#include "rendezvous/table.h"

namespace octavo::rendezvous {

// A request that waits for its keys; `next` is the one it lacks.
struct WaitingRequest {
  Request request;
  size_t next = 0;
  Clock::time_point deadline;
};

// One request at a time: while it is waiting, or its reply is not yet out, nothing more is read.
struct Connection {
  uint64_t id = 0;  // never used twice, unlike the descriptor
  Fd fd;
  sockaddr_storage peer{};
  socklen_t peer_size = 0;
  enum class Stage { kHello, kProof, kAuthenticated } stage = Stage::kHello;
  Clock::time_point handshake_deadline;
  std::string client_hello, server_hello;
  std::string in;   // of the message that is coming
  std::string out;  // of the reply that is going
  size_t out_sent = 0;
  std::optional<WaitingRequest> waiting;
  size_t charged = 0;     // of Limits::buffer_bytes
  uint32_t interest = 0;  // as epoll knows it
};

class Server::Loop {
 public:
  Loop(const std::string& address, int port, std::string secret, const Limits& limits);
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  const std::string& address() const { return address_; }
  int port() const { return port_; }
  Counts counts() const;

 private:
  using Ptr = std::shared_ptr<Connection>;
  using Counter = int64_t Counts::*;

  // server_loop.cpp: sockets
  void open_listener(const std::string& address, int port);
  void run();
  void run_once();
  int wait_milliseconds() const;
  void accept_some();
  void admit(Ptr connection);
  void pause_accepting();
  void on_event(const Ptr& connection, uint32_t events);
  bool receive(Connection& connection, size_t want);
  void flush(const Ptr& connection);
  void watch(Connection& connection);
  bool charge(const Ptr& connection);
  void drop(const Ptr& which, Counter reason);
  void count(Counter counter, const Connection* connection = nullptr);
  void refresh_counts();
  void end_overdue();

  // server_requests.cpp: what the bytes mean
  void on_readable(const Ptr& connection);
  void on_hello(const Ptr& connection);
  void on_proof(const Ptr& connection);
  void on_request(const Ptr& connection);
  void serve(const Ptr& connection, Request request);
  void make_wait(const Ptr& connection, WaitingRequest waiting);
  WaitingRequest resume_waiting(Connection& connection);
  void wake(const Request& written);
  void reply(const Ptr& connection, const Reply& reply);
  static size_t wanted_bytes(const Connection& connection);

  Limits limits_;
  std::string secret_, address_;
  int port_ = 0;
  Fd listener_, epoll_, stop_event_;
  bool accepting_ = true;
  Clock::time_point accept_again_;
  uint64_t next_id_ = 2;  // 0: the listener, 1: the stop event
  std::unordered_map<uint64_t, Ptr> connections_;
  std::set<uint64_t> unauthenticated_;  // oldest first
  std::unordered_map<std::string, std::set<uint64_t>> waiting_for_;
  std::set<std::pair<Clock::time_point, uint64_t>> waiting_until_;
  size_t buffered_ = 0;
  Table table_;
  mutable std::mutex counts_mutex_;
  Counts counts_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace octavo::rendezvous
