#include "rendezvous/server_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "rendezvous/auth.h"
#include "rendezvous/errors.h"

namespace octavo::rendezvous {
namespace {

constexpr uint64_t kListenerId = 0, kStopId = 1;
constexpr size_t kChunkBytes = size_t{64} << 10;
constexpr int kAcceptsPerRound = 64;
constexpr auto kAcceptPause = std::chrono::milliseconds(20);

// Each rank holds a connection or two. The limit of open files is raised as far as we may.
void allow_open_files(size_t wanted) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min<rlim_t>(wanted, limit.rlim_max);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0)
    log_debug("rendezvous: the limit of open files could not be raised");
}

void add_to_epoll(int epoll, int fd, uint64_t id, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0)
    fail(ExitCode::kEnvironment, "rendezvous", "epoll refused a socket: ", std::strerror(errno));
}

bool is_round(int64_t count) {
  while (count >= 10 && count % 10 == 0) count /= 10;
  return count == 1;
}

const char* reason_of(int64_t Counts::*counter) {
  if (counter == &Counts::garbage) return "did not speak the protocol";
  if (counter == &Counts::wrong_secret) return "did not know the secret";
  if (counter == &Counts::too_slow) return "did not prove the secret in time";
  if (counter == &Counts::left_early) return "left before they were authenticated";
  if (counter == &Counts::turned_away) return "were over the limit of connections or open files";
  if (counter == &Counts::over_memory) return "were over the limit of memory";
  return nullptr;
}

}  // namespace

Server::Loop::Loop(const std::string& address, int port, std::string secret, const Limits& limits)
    : limits_(limits), secret_(std::move(secret)), table_(limits.keys, limits.bytes) {
  open_listener(address, port);
  allow_open_files(limits_.connections + limits_.unauthenticated + 256);
  epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
  stop_event_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  add_to_epoll(epoll_.get(), listener_.get(), kListenerId, EPOLLIN);
  add_to_epoll(epoll_.get(), stop_event_.get(), kStopId, EPOLLIN);
  thread_ = std::thread([this] { run(); });
}

Server::Loop::~Loop() {
  stopping_ = true;
  const uint64_t one = 1;
  while (::write(stop_event_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  thread_.join();
}

void Server::Loop::open_listener(const std::string& address, int port) {
  if (port < 0 || port > 65535)
    fail(ExitCode::kUsage, "rendezvous", "no such port: ", port, "; wanted 0 to 65535");
  std::string why = "no address";
  std::vector<Endpoint> endpoints;
  bool is_here = false;  // one of them is an address of this machine
  bool is_late = false;  // which no resolver says yet
  if (!address.empty()) endpoints = resolve_address(address, port, &why, &is_late);
  // A machine's own name often means loopback first, where others cannot reach it.
  std::stable_partition(endpoints.begin(), endpoints.end(),
                        [](const Endpoint& e) { return !e.loopback; });
  for (const Endpoint& endpoint : endpoints) {
    if (endpoint.wildcard)
      fail(ExitCode::kUsage, "rendezvous", "'", address,
           "' means every interface of this machine; state the one address (or the name) at which "
           "the other ranks reach it");
    require_secret(endpoint.text, endpoint.loopback, secret_);
    listener_ = listen_on(endpoint);
    if (listener_.open()) {
      address_ = endpoint.text;
      port_ = port_of(listener_.get());
      if (endpoint.loopback && address != endpoint.text && address != "localhost")
        log_warn(octavo::str("rendezvous: '", address, "' is ", address_,
                             " on this machine, which no other machine can reach; for ranks on "
                             "several nodes state the address of a network"));
      return;
    }
    is_here = is_here || errno != EADDRNOTAVAIL;
    why = octavo::str(endpoint.text, " port ", port, ": ", std::strerror(errno));
  }
  const std::string message = octavo::str("cannot listen at '", address, "' (", why,
                                          "); state an address of this machine and a free port");
  if (!is_here && !is_late) throw WrongAddress(ExitCode::kEnvironment, "rendezvous", message);
  throw Error(ExitCode::kEnvironment, "rendezvous", message);
}

Counts Server::Loop::counts() const {
  const std::lock_guard lock(counts_mutex_);
  return counts_;
}

// A connection that is dropped is said at the 1st, 10th, 100th … of its kind: a flood of them must
// not become a flood of lines.
void Server::Loop::count(Counter counter, const Connection* connection) {
  int64_t now = 0;
  {
    const std::lock_guard lock(counts_mutex_);
    now = ++(counts_.*counter);
  }
  const char* reason = reason_of(counter);
  if (connection == nullptr || reason == nullptr || !is_round(now)) return;
  log_warn(octavo::str("rendezvous at ", address_, ": ", now, " dropped that ", reason,
                       ", the last from ",
                       digits_with_port(connection->peer, connection->peer_size)));
}

void Server::Loop::refresh_counts() {
  const std::lock_guard lock(counts_mutex_);
  counts_.keys = static_cast<int64_t>(table_.keys());
  counts_.bytes = static_cast<int64_t>(table_.bytes());
  counts_.connections = static_cast<int64_t>(connections_.size() - unauthenticated_.size());
}

void Server::Loop::run() {
  while (!stopping_) {
    try {
      run_once();
    } catch (const std::exception& error) {
      log_error(octavo::str("rendezvous: ", error.what(), "; continuing"));
    }
  }
}

void Server::Loop::run_once() {
  std::array<epoll_event, 256> events{};
  const int ready = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                 wait_milliseconds());
  for (int i = 0; i < ready; ++i) {
    const uint64_t id = events[static_cast<size_t>(i)].data.u64;
    if (id == kStopId) return;
    if (id == kListenerId) {
      accept_some();
      continue;
    }
    const auto found = connections_.find(id);
    if (found == connections_.end()) continue;  // dropped earlier in this round
    const Ptr connection = found->second;
    try {
      on_event(connection, events[static_cast<size_t>(i)].events);
    } catch (const std::exception& error) {
      log_warn(octavo::str("rendezvous: a connection was dropped: ", error.what()));
      drop(connection, &Counts::over_memory);
    }
  }
  end_overdue();
}

int Server::Loop::wait_milliseconds() const {
  auto next = Clock::now() + std::chrono::hours(1);
  if (!unauthenticated_.empty())
    next = std::min(next, connections_.at(*unauthenticated_.begin())->handshake_deadline);
  if (!waiting_until_.empty()) next = std::min(next, waiting_until_.begin()->first);
  if (!accepting_) next = std::min(next, accept_again_);
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Clock::now()).count();
  return static_cast<int>(std::max<int64_t>(left, 0));
}

void Server::Loop::end_overdue() {
  const auto now = Clock::now();
  while (!unauthenticated_.empty()) {
    const Ptr oldest = connections_.at(*unauthenticated_.begin());
    if (oldest->handshake_deadline > now) break;
    drop(oldest, &Counts::too_slow);
  }
  while (!waiting_until_.empty() && waiting_until_.begin()->first <= now) {
    const Ptr connection = connections_.at(waiting_until_.begin()->second);
    resume_waiting(*connection);
    reply(connection, {Status::kTimedOut, 0, {}});
  }
  if (!accepting_ && accept_again_ <= now) {
    add_to_epoll(epoll_.get(), listener_.get(), kListenerId, EPOLLIN);
    accepting_ = true;
  }
}

void Server::Loop::accept_some() {
  for (int i = 0; i < kAcceptsPerRound; ++i) {
    auto connection = std::make_shared<Connection>();
    connection->peer_size = sizeof connection->peer;
    connection->fd = Fd(::accept4(listener_.get(), reinterpret_cast<sockaddr*>(&connection->peer),
                                  &connection->peer_size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (connection->fd.open()) {
      admit(std::move(connection));
      continue;
    }
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
      pause_accepting();
    return;  // nobody more, or one that left again
  }
}

void Server::Loop::admit(Ptr connection) {
  if (unauthenticated_.size() >= limits_.unauthenticated)
    drop(connections_.at(*unauthenticated_.begin()), &Counts::too_slow);
  connection->id = next_id_++;
  connection->handshake_deadline = Clock::now() + limits_.handshake;
  connection->interest = EPOLLIN | EPOLLRDHUP;
  keep_alive(connection->fd.get());
  add_to_epoll(epoll_.get(), connection->fd.get(), connection->id, connection->interest);
  unauthenticated_.insert(connection->id);
  connections_.emplace(connection->id, std::move(connection));
  count(&Counts::accepted);
}

// Out of descriptors: the older half of the unauthenticated makes room, and the queue waits a
// moment.
void Server::Loop::pause_accepting() {
  log_warn_once(octavo::str("rendezvous at ", address_,
                            ": out of open files; raise their limit (ulimit -n) to more than twice "
                            "the number of ranks"));
  for (size_t left = unauthenticated_.size() / 2; unauthenticated_.size() > left;)
    drop(connections_.at(*unauthenticated_.begin()), &Counts::turned_away);
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener_.get(), nullptr);
  accepting_ = false;
  accept_again_ = Clock::now() + kAcceptPause;
}

void Server::Loop::on_event(const Ptr& connection, uint32_t events) {
  const bool idle = connection->out.empty() && !connection->waiting;
  if ((events & EPOLLIN) != 0 && idle)
    on_readable(connection);
  else if ((events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0)
    drop(connection, &Counts::left_early);
  else if ((events & EPOLLOUT) != 0)
    flush(connection);
}

// More of the message that is coming; false when the other side is gone.
bool Server::Loop::receive(Connection& connection, size_t want) {
  std::array<char, kChunkBytes> chunk;  // NOLINT: filled before it is read
  const ssize_t got = ::recv(connection.fd.get(), chunk.data(), std::min(want, chunk.size()), 0);
  if (got > 0) connection.in.append(chunk.data(), static_cast<size_t>(got));
  return got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR));
}

void Server::Loop::flush(const Ptr& connection) {
  while (connection->out_sent < connection->out.size()) {
    const ssize_t sent = ::send(connection->fd.get(), connection->out.data() + connection->out_sent,
                                connection->out.size() - connection->out_sent, MSG_NOSIGNAL);
    if (sent >= 0) {
      connection->out_sent += static_cast<size_t>(sent);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      break;
    } else if (errno != EINTR) {
      drop(connection, &Counts::left_early);
      return;
    }
  }
  if (connection->out_sent == connection->out.size()) {
    connection->out = std::string();
    connection->out_sent = 0;
  }
  if (charge(connection)) watch(*connection);
}

void Server::Loop::watch(Connection& connection) {
  uint32_t interest = EPOLLRDHUP;
  if (!connection.out.empty())
    interest |= EPOLLOUT;
  else if (!connection.waiting)
    interest |= EPOLLIN;
  if (interest == connection.interest) return;
  connection.interest = interest;
  epoll_event event{};
  event.events = interest;
  event.data.u64 = connection.id;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.fd.get(), &event);
}

// What this connection holds of the memory for messages; false when it had to go.
bool Server::Loop::charge(const Ptr& connection) {
  size_t bytes = connection->in.size() + connection->out.size();
  if (connection->waiting)
    for (const std::string& key : connection->waiting->request.keys)
      bytes += key.size() + sizeof(std::string);
  buffered_ = buffered_ - connection->charged + bytes;
  connection->charged = bytes;
  if (buffered_ <= limits_.buffer_bytes) return true;
  drop(connection, &Counts::over_memory);
  return false;
}

void Server::Loop::drop(const Ptr& which, Counter reason) {
  const auto kept = connections_.extract(which->id);  // which may be this very entry
  if (kept.empty()) return;
  const Ptr& connection = kept.mapped();
  if (connection->waiting) resume_waiting(*connection);
  buffered_ -= connection->charged;
  connection->charged = 0;
  const bool unauthenticated = unauthenticated_.erase(connection->id) != 0;
  // A rank that ends closes its connection, and that is no news.
  if (unauthenticated || reason != &Counts::left_early) count(reason, connection.get());
  connection->fd.reset();
  refresh_counts();
}

}  // namespace octavo::rendezvous
