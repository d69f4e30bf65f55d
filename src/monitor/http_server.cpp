#include "monitor/http_server.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace octavo::monitor {
namespace {

constexpr int kAcceptsPerRound = 16;

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 431:
      return "Request Header Fields Too Large";
    case 503:
      return "Service Unavailable";
    default:
      return "Bad Request";
  }
}

std::string response_bytes(const HttpPage& page, bool with_body) {
  return str("HTTP/1.1 ", page.status, " ", reason_phrase(page.status),
             "\r\nContent-Type: ", page.type, "\r\nContent-Length: ", page.body.size(),
             "\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n",
             with_body ? page.body : std::string());
}

struct RequestLine {
  std::string_view method, path;
  bool valid = false;
};

// "GET /metrics HTTP/1.1"
RequestLine request_line(std::string_view head) {
  const std::string_view line = head.substr(0, head.find("\r\n"));
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == line.npos || first == last) return {};
  RequestLine made{line.substr(0, first), line.substr(first + 1, last - first - 1), true};
  made.valid = line.substr(last + 1).starts_with("HTTP/1.") && made.path.starts_with('/') &&
               std::ranges::all_of(made.path, [](char c) { return c > ' ' && c < 0x7F; });
  made.path = made.path.substr(0, made.path.find('?'));
  return made;
}

}  // namespace

HostAndPort parse_listen_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  HostAndPort made;
  bool good = colon != text.npos && colon > 0;
  if (good) {
    made.host = text.substr(0, colon);
    const char *begin = text.data() + colon + 1, *end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(begin, end, made.port);
    good = error == std::errc{} && stop == end && made.port >= 0 && made.port <= 65535;
    const bool brackets = made.host.front() == '[' && made.host.back() == ']';
    if (brackets) made.host = made.host.substr(1, made.host.size() - 2);
    good = good && !made.host.empty() && (brackets || made.host.find(':') == made.host.npos);
  }
  if (!good)
    fail(ExitCode::kUsage, "monitor",
         "metrics_address: wanted ADDRESS:PORT such as "
         "127.0.0.1:9400 or [::1]:9400, found '",
         text, "'");
  return made;
}

HttpServer::HttpServer(const std::string& address, Pages pages, const HttpLimits& limits)
    : pages_(std::move(pages)), limits_(limits), filled_(Clock::now()) {
  listen(address);
  stop_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop_.open()) fail(ExitCode::kEnvironment, "monitor", "no eventfd: ", std::strerror(errno));
  thread_ = std::thread([this] { run(); });
}

HttpServer::~HttpServer() {
  stopping_ = true;
  const uint64_t one = 1;
  while (::write(stop_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  thread_.join();
}

void HttpServer::listen(const std::string& address) {
  const HostAndPort wanted = parse_listen_address(address);
  std::string why;
  for (const auto& endpoint : resolve_address(wanted.host, wanted.port, &why)) {
    listener_ = listen_on(endpoint);
    if (!listener_.open()) {
      why = std::strerror(errno);
      continue;
    }
    port_ = port_of(listener_.get());
    address_ = endpoint.text.find(':') == std::string::npos ? str(endpoint.text, ":", port_)
                                                            : str("[", endpoint.text, "]:", port_);
    if (endpoint.wildcard)
      log_warn(str("metrics_address ", address,
                   " is every interface of this machine: whoever "
                   "reaches it reads the run's metrics"));
    return;
  }
  fail(ExitCode::kEnvironment, "monitor", "cannot listen at '", address, "' (", why, ")");
}

void HttpServer::run() {
  // Signals are the training thread's.
  sigset_t all;
  sigfillset(&all);
  ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
  ::pthread_setname_np(::pthread_self(), "octavo-http");
  while (!stopping_) {
    wait();
    for (size_t i = 0; i < connections_.size(); ++i)
      if (ready_[i] != 0) serve(connections_[i]);
    drop_late();
    if (listener_ready_) accept_some();
  }
}

void HttpServer::wait() {
  const auto now = Clock::now();
  const double most = limits_.accepts_per_second;
  may_accept_ = std::min(most / 10 + 1,
                         may_accept_ + most * std::chrono::duration<double>(now - filled_).count());
  filled_ = now;
  std::vector<pollfd> entries = {{stop_.get(), POLLIN, 0},
                                 {may_accept_ >= 1 ? listener_.get() : -1, POLLIN, 0}};
  // Without an allowance the listener is left out until there is one again.
  int64_t milliseconds = may_accept_ >= 1 ? 60'000 : 100;
  for (const Connection& c : connections_) {
    entries.push_back({c.fd.get(), static_cast<short>(c.answer.empty() ? POLLIN : POLLOUT), 0});
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(c.deadline - now).count();
    milliseconds = std::clamp<int64_t>(left, 0, milliseconds);
  }
  const bool some = ::poll(entries.data(), entries.size(), static_cast<int>(milliseconds)) > 0;
  listener_ready_ = some && entries[1].revents != 0;
  ready_.assign(connections_.size(), 0);
  for (size_t i = 0; some && i < ready_.size(); ++i) ready_[i] = entries[i + 2].revents;
}

void HttpServer::accept_some() {
  for (int i = 0; i < kAcceptsPerRound && may_accept_ >= 1; ++i) {
    Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.open()) {
      // No file descriptors left: they will be there again, and until then poll would spin.
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS) {
        may_accept_ = 0;
        ++counts_.refused;
      }
      return;
    }
    may_accept_ -= 1;
    if (connections_.size() >= limits_.connections) {
      connections_.erase(connections_.begin());  // the oldest had the most time
      ++counts_.pushed_out;
    }
    connections_.push_back(Connection{.fd = std::move(fd),
                                      .deadline = Clock::now() + limits_.patience,
                                      .request = {},
                                      .answer = {}});
  }
}

void HttpServer::serve(Connection& connection) {
  if (connection.answer.empty() && !read_request(connection)) return;
  if (!connection.answer.empty()) send_some(connection);
}

// True when there is something to answer.
bool HttpServer::read_request(Connection& connection) {
  std::array<char, 2048> chunk{};
  const ssize_t got = ::recv(connection.fd.get(), chunk.data(), chunk.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  if (got <= 0) {
    ++counts_.left;
    connection.fd.reset();
    return false;
  }
  connection.request.append(chunk.data(), static_cast<size_t>(got));
  const size_t end = connection.request.find("\r\n\r\n");
  if (end != std::string::npos) {
    answer(connection, std::string_view(connection.request).substr(0, end));
    return true;
  }
  if (connection.request.size() < limits_.request_bytes) return false;
  ++counts_.refused;
  connection.answer = response_bytes({.status = 431, .body = "the request is too long\n"}, true);
  return true;
}

void HttpServer::answer(Connection& connection, std::string_view head) {
  const RequestLine line = request_line(head);
  HttpPage page;
  if (!line.valid)
    page = {.status = 400, .body = "this is no HTTP request\n"};
  else if (line.method != "GET" && line.method != "HEAD")
    page = {.status = 405, .body = "GET or HEAD\n"};
  else
    page = pages_(line.path);
  ++(page.status == 400 || page.status == 405 ? counts_.refused : counts_.answered);
  connection.answer = response_bytes(page, line.method != "HEAD");
}

void HttpServer::send_some(Connection& connection) {
  const std::string& all = connection.answer;
  const ssize_t sent = ::send(connection.fd.get(), all.data() + connection.sent,
                              all.size() - connection.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (sent < 0) {
    ++counts_.left;
    connection.fd.reset();
    return;
  }
  connection.sent += static_cast<size_t>(sent);
  if (connection.sent == all.size()) connection.fd.reset();
}

void HttpServer::drop_late() {
  const auto now = Clock::now();
  std::erase_if(connections_, [&](const Connection& c) {
    if (!c.fd.open()) return true;
    if (now < c.deadline) return false;
    ++counts_.too_slow;
    return true;
  });
}

}  // namespace octavo::monitor
