#pragma once
// A very small HTTP server for pages that are in memory: GET and HEAD, one answer a connection, one
// thread that never waits for a client. Its clients are untrusted, so everything is bounded: bytes
// of a request, time for it, connections at a time and a second. Its own, and not prometheus-cpp's
// civetweb, because that one has none of these bounds, wants several threads and knows no second
// page.

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/socket.h"

namespace octavo::monitor {

struct HttpLimits {
  size_t request_bytes = 4096;
  size_t connections = 32;  // one more, and the oldest is closed
  std::chrono::milliseconds patience{5000};
  int accepts_per_second = 200;  // more have to wait: training needs the processor
};

struct HttpPage {
  int status = 200;
  std::string type = "text/plain; charset=utf-8";
  std::string body;
};

class HttpServer {
 public:
  using Pages = std::function<HttpPage(std::string_view path)>;
  struct Counts {
    std::atomic<int64_t> answered{0}, refused{0}, too_slow{0}, pushed_out{0}, left{0};
  };

  // "127.0.0.1:9400", "[::1]:9400", "name:9400"; port 0 takes a free one. What is none of these
  // fails as wrong use; an address that cannot be listened at, as environment.
  HttpServer(const std::string& address, Pages pages, const HttpLimits& limits = {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  int port() const { return port_; }
  const std::string& address() const { return address_; }  // in digits, with the port
  const Counts& counts() const { return counts_; }

 private:
  struct Connection {
    Fd fd;
    Clock::time_point deadline;
    std::string request, answer;
    size_t sent = 0;
  };
  void listen(const std::string& address);
  void run();
  void wait();
  void accept_some();
  void serve(Connection& connection);
  bool read_request(Connection& connection);
  void answer(Connection& connection, std::string_view head);
  void send_some(Connection& connection);
  void drop_late();

  Pages pages_;
  HttpLimits limits_;
  Fd listener_, stop_;
  std::string address_;
  int port_ = 0;
  std::vector<Connection> connections_;
  std::vector<short> ready_;  // what poll said of each connection
  bool listener_ready_ = false;
  double may_accept_ = 0;  // a bucket that fills by accepts_per_second
  Clock::time_point filled_;
  Counts counts_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

struct HostAndPort {
  std::string host;
  int port = 0;
};
HostAndPort parse_listen_address(const std::string& text);  // or an error of wrong use

}  // namespace octavo::monitor
