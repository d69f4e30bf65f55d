#include "launch/supervise.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/relay.h"

namespace octavo::launch {
namespace {

using Clock = std::chrono::steady_clock;

struct Stream {
  int descriptor = -1;
  Relay relay;
};

struct Rank {
  Child child;
  RankEnd end;
  bool running = true;
  std::vector<Stream> streams;
};

class Ranks {
 public:
  Ranks(const Job& job, SignalWatch& signals, int& stop_signal)
      : job_(job), signals_(signals), stop_signal_(stop_signal) {}

  // Whatever goes wrong here, no rank is left behind.
  ~Ranks() {
    for (Rank& rank : ranks_) {
      for (Stream& stream : rank.streams)
        if (stream.descriptor >= 0) close(stream.descriptor);
      if (!rank.running) continue;
      signal_group(rank, SIGKILL);
      waitpid(rank.child.pid, nullptr, 0);
    }
  }

  Outcome run() {
    for (int local = 0; local < job_.first.local_ranks; ++local) start(local);
    while (running() > 0) {
      wait_for_news();
      read_streams();
      handle_signals();
      reap();
      if (deadline_ && Clock::now() >= *deadline_) end_the_rest();
    }
    read_streams();
    for (Rank& rank : ranks_) {
      for (Stream& stream : rank.streams) stream.relay.finish();
      for (const Stream& stream : rank.streams)  // the last line of errors, or else of output
        if (!stream.relay.last_line().empty()) rank.end.last_line = stream.relay.last_line();
    }
    std::vector<RankEnd> ends;
    for (const Rank& rank : ranks_) ends.push_back(rank.end);
    return outcome_of(ends, stop_signal_);
  }

 private:
  void start(int local) {
    RankInfo rank_info = job_.first;
    rank_info.rank += local;
    rank_info.local_rank = local;
    Variables variables = job_.variables;
    variables.merge(variables_of(rank_info));
    // The first rank draws on a terminal itself; elsewhere its last line is worth keeping.
    const bool as_is = rank_info.rank == 0;
    const bool own_output = !as_is || !job_.log_dir.empty() || isatty(STDERR_FILENO) == 0;
    Rank rank;
    rank.child = start_child(job_.command, variables, own_output);
    rank.end.rank = rank_info.rank;
    if (own_output) {
      std::shared_ptr<LogFile> log;
      if (!job_.log_dir.empty())
        log = std::make_shared<LogFile>(fs::path(job_.log_dir) /
                                        str("rank-", rank_info.rank, ".log"));
      const bool shown = as_is || log == nullptr;
      const std::string prefix = as_is ? "" : str("[rank ", rank_info.rank, "] ");
      rank.streams.push_back({rank.child.out, Relay(shown ? STDOUT_FILENO : -1, prefix, log)});
      rank.streams.push_back({rank.child.err, Relay(shown ? STDERR_FILENO : -1, prefix, log)});
    }
    ranks_.push_back(std::move(rank));
  }

  int running() const { return static_cast<int>(std::ranges::count_if(ranks_, &Rank::running)); }

  void wait_for_news() {
    std::vector<pollfd> watched = {{signals_.descriptor(), POLLIN, 0}};
    for (const Rank& rank : ranks_)
      for (const Stream& stream : rank.streams)
        if (stream.descriptor >= 0) watched.push_back({stream.descriptor, POLLIN, 0});
    int timeout = -1;
    if (deadline_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now());
      timeout = static_cast<int>(std::max<int64_t>(0, left.count()));
    }
    if (poll(watched.data(), watched.size(), timeout) < 0 && errno != EINTR)
      fail(ExitCode::kEnvironment, "launch",
           "wanted to wait for ranks, found: ", std::strerror(errno));
  }

  void read_streams() {
    char buffer[16384];
    for (Rank& rank : ranks_)
      for (Stream& stream : rank.streams)
        while (stream.descriptor >= 0) {
          const ssize_t got = read(stream.descriptor, buffer, sizeof buffer);
          if (got > 0) {
            stream.relay.feed({buffer, static_cast<size_t>(got)});
          } else if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            break;
          } else {
            close(stream.descriptor);
            stream.descriptor = -1;
          }
        }
  }

  void handle_signals() {
    while (const std::optional<int> number = signals_.take()) {
      if (*number == SIGCHLD) continue;  // reap() looks at all of them
      if (stop_signal_ == 0) {
        stop_signal_ = *number;
        log_info(str(strsignal(*number), ": passed on to ", running(),
                     " ranks, which save and "
                     "stop"));
        for (const Rank& rank : ranks_)
          if (rank.running) kill(rank.child.pid, *number);
      } else if (*number == SIGINT) {
        log_warn("asked twice: the ranks are ended at once");
        end_the_rest();
      } else {
        log_info(str(strsignal(*number), ": the ranks were told already"));
      }
    }
  }

  void reap() {
    for (Rank& rank : ranks_) {
      int status = 0;
      if (!rank.running || waitpid(rank.child.pid, &status, WNOHANG) != rank.child.pid) continue;
      rank.running = false;
      rank.end.order = ended_++;
      if (WIFSIGNALED(status))
        rank.end.signal = WTERMSIG(status);
      else
        rank.end.code = WEXITSTATUS(status);
      if (!has_failed(rank.end) || rank.end.killed) continue;
      if (job_.on_death) job_.on_death(rank.end.rank, death_text(rank.end));
      if (!deadline_) deadline_ = Clock::now() + job_.grace;
    }
  }

  void end_the_rest() {
    deadline_.reset();
    for (Rank& rank : ranks_) {
      if (!rank.running) continue;
      rank.end.killed = true;
      rank.end.was_stopped = process_state(rank.child.pid) == 'T';
      log_warn(str("rank ", rank.end.rank,
                   rank.end.was_stopped ? " stands still" : " did not leave", " within ",
                   job_.grace.count() / 1000.0, " s; it is killed"));
      signal_group(rank, SIGKILL);
      signal_group(rank, SIGCONT);
    }
  }

  static void signal_group(const Rank& rank, int number) {
    if (rank.running) kill(-rank.child.pid, number);
  }

  const Job& job_;
  SignalWatch& signals_;
  int& stop_signal_;
  std::vector<Rank> ranks_;
  std::optional<Clock::time_point> deadline_;
  int ended_ = 0;
};

}  // namespace

Outcome supervise(const Job& job, SignalWatch& signals, int& stop_signal) {
  return Ranks(job, signals, stop_signal).run();
}

}  // namespace octavo::launch
