#include "rendezvous/client.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <limits>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "base/signals.h"
#include "base/socket.h"
#include "rendezvous/auth.h"
#include "rendezvous/protocol.h"

namespace octavo::rendezvous {
namespace {

constexpr size_t kIdleConnections = 4;
constexpr auto kAttempt = std::chrono::seconds(5);  // one try to connect and shake hands
constexpr auto kFirstPause = std::chrono::milliseconds(20);
constexpr auto kLongestPause = std::chrono::milliseconds(500);
constexpr auto kSayWaiting = std::chrono::seconds(5);
// For a name to resolve: that of a server that starts later does by then (DNS of a cluster
// remembers for 30 s that there was none), a wrong one never.
constexpr auto kUnknownName = std::chrono::seconds(40);
constexpr auto kLookAround = std::chrono::milliseconds(200);

// False and why when it may go better next time; a secret that differs will not.
bool shake_hands(int fd, const std::string& where, const std::string& secret,
                 Clock::time_point deadline, std::string* why) {
  const std::string client_hello = encode_hello({kVersion, random_nonce()});
  std::string server_hello(kHelloBytes, '\0');
  if (!send_all(fd, client_hello, deadline, why) ||
      !receive_all(fd, server_hello.data(), server_hello.size(), deadline, why))
    return false;
  const auto hello = parse_hello(server_hello);
  if (!hello || hello->version != kVersion)
    fail(ExitCode::kEnvironment, "rendezvous", "what listens at ", where, " is ",
         hello ? octavo::str("a rendezvous of version ", hello->version, ", wanted ", kVersion)
               : std::string("no octavo rendezvous"),
         "; see the address and port, and that all nodes run the same octavo");
  std::array<char, kAnswerBytes> answer{};
  if (!send_all(fd, proof(secret, "client", client_hello, server_hello), deadline, why) ||
      !receive_all(fd, answer.data(), answer.size(), deadline, why))
    return false;
  const std::string wanted = proof(secret, "server", client_hello, server_hello);
  if (answer[0] == kAnswerFull) {
    *why = "it has as many connections as it may";
    return false;
  }
  const bool accepted = answer[0] == kAnswerAccepted;
  if (accepted && same_bytes({answer.data() + 1, kProofBytes}, wanted)) return true;
  fail(ExitCode::kUsage, "rendezvous", "the rendezvous at ", where,
       accepted ? " accepted us without knowing the secret itself"
                : " did not let us in: its secret is not ours",
       "; OCTAVO_RENDEZVOUS_SECRET or OCTAVO_RENDEZVOUS_SECRET_FILE must say the same on all "
       "nodes");
}

}  // namespace

class Client::Pool {
 public:
  Pool(std::string address, int port, std::string secret)
      : address_(std::move(address)),
        port_(port),
        secret_(std::move(secret)),
        where_(octavo::str(address_, " port ", port)) {}

  const std::string& address() const { return address_; }
  int port() const { return port_; }
  void set_answer_timeout(Milliseconds patience) { patience_ = patience.count(); }

  void connect_first(Milliseconds timeout) {
    give_back(std::make_shared<Fd>(connect(Clock::now() + timeout, true)));
  }

  void stop() {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    idle_.clear();
    for (const std::weak_ptr<Fd>& one : busy_)
      if (const std::shared_ptr<Fd> connection = one.lock())
        ::shutdown(connection->get(), SHUT_RDWR);
  }

  using Interrupted = std::function<bool()>;

  Reply call(Request request, Milliseconds wait) {
    return *call_unless(std::move(request), wait, nullptr);
  }

  // Nothing: it was interrupted.
  std::optional<Reply> call_unless(Request request, Milliseconds wait,
                                   const Interrupted& interrupted) {
    using Limit = std::numeric_limits<uint32_t>;
    wait = std::clamp(wait, Milliseconds(0), Milliseconds(Limit::max()));
    request.wait_ms = static_cast<uint32_t>(wait.count());
    const std::string frame = encode(request);
    if (frame.size() > kMaxFrameBytes)
      fail(ExitCode::kEnvironment, "rendezvous", "a request of ", frame.size(),
           " bytes was wanted, at most ", kMaxFrameBytes, " are sent at once");
    const auto patience = Milliseconds(patience_);
    const std::shared_ptr<Fd> connection = take(Clock::now() + patience);
    const auto answer =
        exchange(connection->get(), frame, Clock::now() + wait + patience, interrupted);
    if (!answer) return std::nullopt;  // and closed: its answer would be taken for another's
    give_back(connection);
    const Reply& reply = *answer;
    if (reply.status == Status::kTimedOut)
      throw TimedOut(ExitCode::kEnvironment, "rendezvous",
                     octavo::str("no rank set '", request.keys.empty() ? "" : request.keys[0], "'",
                                 request.keys.size() > 1 ? " and others" : "", " within ",
                                 wait.count(), " ms"));
    if (reply.status == Status::kRefused)
      fail(ExitCode::kEnvironment, "rendezvous", where_,
           " refused a request: ", reply.values.empty() ? "no reason given" : reply.values[0]);
    return answer;
  }

 private:
  [[noreturn]] void unreachable(const std::string& why) const {
    throw Unreachable(ExitCode::kEnvironment, "rendezvous",
                      octavo::str("the rendezvous at ", where_, " cannot be reached: ", why,
                                  "; see whether the process that hosts it still runs, and the "
                                  "address, port and firewall between"));
  }

  [[noreturn]] static void no_address(const std::string& why, bool is_late) {
    const std::string message =
        octavo::str("wanted the address of the rendezvous, found that ", why,
                    "; check the name (MASTER_ADDR, --master_address), /etc/hosts and DNS");
    if (is_late) throw Unresolved(ExitCode::kEnvironment, "rendezvous", message);
    throw WrongAddress(ExitCode::kEnvironment, "rendezvous", message);
  }

  // Given back when all went well; otherwise closed when the caller lets go of it.
  std::shared_ptr<Fd> take(Clock::time_point deadline) {
    {
      const std::lock_guard lock(mutex_);
      while (!idle_.empty() && !stopped_) {
        std::shared_ptr<Fd> connection = std::move(idle_.back());
        idle_.pop_back();
        if (is_stale(connection->get())) continue;
        busy_.push_back(connection);
        return connection;
      }
    }
    auto connection = std::make_shared<Fd>(connect(deadline));
    const std::lock_guard lock(mutex_);
    if (stopped_) unreachable("this client was stopped");
    busy_.push_back(connection);
    return connection;
  }

  void give_back(std::shared_ptr<Fd> connection) {
    const std::lock_guard lock(mutex_);
    if (idle_.size() < kIdleConnections) idle_.push_back(std::move(connection));
    std::erase_if(busy_, [&](const std::weak_ptr<Fd>& one) {
      const std::shared_ptr<Fd> held = one.lock();
      return !held || std::find(idle_.begin(), idle_.end(), held) != idle_.end();
    });
  }

  std::optional<Reply> exchange(int fd, const std::string& frame, Clock::time_point deadline,
                                const Interrupted& interrupted) const {
    std::string why;
    std::array<char, 4> header{};
    if (!send_all(fd, frame, deadline, &why)) unreachable(why);
    if (interrupted)
      while (!wait_readable(fd, std::min(deadline, Clock::now() + kLookAround))) {
        if (interrupted()) return std::nullopt;
        if (Clock::now() >= deadline) break;  // which receive_all says
      }
    if (!receive_all(fd, header.data(), header.size(), deadline, &why)) unreachable(why);
    const uint32_t length = *parse_frame_length({header.data(), header.size()});
    if (length > kMaxFrameBytes) unreachable("its answer is too large");
    std::string body(length, '\0');
    if (!receive_all(fd, body.data(), body.size(), deadline, &why)) unreachable(why);
    auto reply = parse_reply(body, &why);
    if (!reply) unreachable(why);
    return reply;
  }

  struct Try {
    Fd connection;  // not open: nobody answered
    std::string why = "no address";
    bool resolved = false;
    bool is_late = false;  // no resolver answered
  };

  // One try at every address of the name.
  Try try_connect(Clock::time_point deadline) const {
    Try result;
    const std::vector<Endpoint> endpoints =
        resolve_address(address_, port_, &result.why, &result.is_late);
    result.resolved = !endpoints.empty();
    for (const Endpoint& endpoint : endpoints) {
      require_secret(endpoint.text, endpoint.loopback, secret_);
      Fd fd = connect_to(endpoint, deadline, &result.why);
      if (!fd.open() || !shake_hands(fd.get(), where_, secret_, deadline, &result.why)) continue;
      result.connection = std::move(fd);
      break;
    }
    return result;
  }

  // Before the first connection no rank has done anything yet: a signal that asks for a stop ends
  // the wait. Later ones belong to a run that is to save before it stops.
  Fd connect(Clock::time_point deadline, bool is_first = false) const {
    const auto start = Clock::now();
    Clock::time_point wrong_since = Clock::time_point::max();
    Milliseconds pause = kFirstPause;
    std::string why;
    bool said = false;
    for (int tries = 1;; ++tries) {
      if (stopped_) unreachable("this client was stopped");
      if (is_first && stop_requested())
        fail(ExitCode::kStopped, "rendezvous", "asked to stop (", stop_reason(),
             ") before the rendezvous at ", where_, " was reached; no step ran");
      Try now = try_connect(std::min(deadline, Clock::now() + kAttempt));
      // A try that the deadline cuts short knows less than those before it.
      if (why.empty() || Clock::now() < deadline) why = now.why;
      if (now.connection.open()) {
        if (said) log_info(octavo::str("reached the rendezvous at ", where_, " at try ", tries));
        return std::move(now.connection);
      }
      const bool over = Clock::now() + pause >= deadline;
      const bool is_wrong = !now.resolved && !now.is_late;
      wrong_since = is_wrong ? std::min(wrong_since, Clock::now()) : Clock::time_point::max();
      const bool stays_wrong = is_wrong && is_first && Clock::now() - wrong_since >= kUnknownName;
      if (!now.resolved && (over || stays_wrong)) no_address(now.why, now.is_late);
      if (over) unreachable(octavo::str(why, " (", tries, tries == 1 ? " try)" : " tries)"));
      // A name that does not resolve is said at once, unless the caller waits for less than that.
      const bool is_long = deadline - start > kSayWaiting;
      if (!said && (Clock::now() - start > kSayWaiting || (!now.resolved && is_long))) {
        log_warn(octavo::str("still trying to reach the rendezvous at ", where_, ": ", why));
        said = true;
      }
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, Milliseconds(kLongestPause));
    }
  }

  const std::string address_;
  const int port_;
  const std::string secret_, where_;
  std::atomic<int64_t> patience_{30'000};  // milliseconds
  std::mutex mutex_;
  std::vector<std::shared_ptr<Fd>> idle_;
  std::vector<std::weak_ptr<Fd>> busy_;
  std::atomic<bool> stopped_{false};
};

Client::Client(const std::string& address, int port, std::string secret, Milliseconds timeout)
    : pool_(std::make_unique<Pool>(address, port, std::move(secret))) {
  pool_->connect_first(timeout);
}

Client::~Client() = default;

const std::string& Client::address() const {
  return pool_->address();
}

int Client::port() const {
  return pool_->port();
}

void Client::stop() {
  pool_->stop();
}

void Client::set_answer_timeout(Milliseconds patience) {
  pool_->set_answer_timeout(patience);
}

void Client::set(const std::string& key, const std::string& value) {
  pool_->call({Op::kSet, 0, 0, {key}, {value}}, Milliseconds(0));
}

std::string Client::get(const std::string& key, Milliseconds timeout) {
  return multi_get({key}, timeout)[0];
}

std::optional<std::string> Client::try_get(const std::string& key) {
  try {
    return get(key, Milliseconds(0));
  } catch (const TimedOut&) {
    return std::nullopt;
  }
}

int64_t Client::add(const std::string& key, int64_t delta) {
  return pool_->call({Op::kAdd, 0, delta, {key}, {}}, Milliseconds(0)).number;
}

bool Client::check(const std::vector<std::string>& keys) {
  return pool_->call({Op::kCheck, 0, 0, keys, {}}, Milliseconds(0)).number == 1;
}

void Client::wait(const std::vector<std::string>& keys, Milliseconds timeout) {
  pool_->call({Op::kWait, 0, 0, keys, {}}, timeout);
}

bool Client::wait_unless(const std::vector<std::string>& keys, Milliseconds timeout,
                         const std::function<bool()>& interrupted) {
  return pool_->call_unless({Op::kWait, 0, 0, keys, {}}, timeout, interrupted).has_value();
}

std::string Client::compare_set(const std::string& key, const std::string& expected,
                                const std::string& desired) {
  const Reply reply =
      pool_->call({Op::kCompareSet, 0, 0, {key}, {expected, desired}}, Milliseconds(0));
  return reply.values.empty() ? "" : reply.values[0];
}

bool Client::remove(const std::string& key) {
  return pool_->call({Op::kDelete, 0, 0, {key}, {}}, Milliseconds(0)).number != 0;
}

int64_t Client::remove_prefix(const std::string& prefix) {
  return pool_->call({Op::kDeletePrefix, 0, 0, {prefix}, {}}, Milliseconds(0)).number;
}

int64_t Client::size() {
  return pool_->call({Op::kSize, 0, 0, {}, {}}, Milliseconds(0)).number;
}

void Client::append(const std::string& key, const std::string& value) {
  pool_->call({Op::kAppend, 0, 0, {key}, {value}}, Milliseconds(0));
}

namespace {
std::vector<std::string> values_of(Reply reply, size_t wanted) {
  if (reply.values.size() != wanted)
    fail(ExitCode::kEnvironment, "rendezvous", "asked for ", wanted, " values, got ",
         reply.values.size());
  return std::move(reply.values);
}
}  // namespace

std::vector<std::string> Client::multi_get(const std::vector<std::string>& keys,
                                           Milliseconds timeout) {
  return values_of(pool_->call({Op::kMultiGet, 0, 0, keys, {}}, timeout), keys.size());
}

std::vector<std::string> Client::multi_try_get(const std::vector<std::string>& keys) {
  return values_of(pool_->call({Op::kMultiTryGet, 0, 0, keys, {}}, Milliseconds(0)), keys.size());
}

void Client::multi_set(const std::vector<std::string>& keys,
                       const std::vector<std::string>& values) {
  pool_->call({Op::kMultiSet, 0, 0, keys, values}, Milliseconds(0));
}

Missing Client::missing(const std::string& prefix, int64_t n) {
  const Reply reply = pool_->call({Op::kMissing, 0, n, {prefix}, {}}, Milliseconds(0));
  Missing missing;
  missing.count = reply.number;
  for (const std::string& text : reply.values) {
    int64_t index = 0;
    std::from_chars(text.data(), text.data() + text.size(), index);
    missing.first.push_back(index);
  }
  return missing;
}

}  // namespace octavo::rendezvous
