#include "launch/supervise.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/rank_status.h"
#include "base/relay.h"
#include "launch/pulse_watch.h"

namespace octavo::launch {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSlowReader = 100, kLookAtNodes = 500;  // ms between two tries, two looks
constexpr int kAskSignal = SIGUSR1;                   // with which ranks are asked to stop

struct Stream {
  int descriptor = -1;
  Relay relay;
};

struct Rank {
  Child child;
  std::unique_ptr<SharedPage> page = std::make_unique<SharedPage>();
  PulseWatch pulse;
  RankEnd end;
  bool running = true;
  std::vector<Stream> streams;
};

class Ranks {
 public:
  Ranks(const Job& job, SignalWatch& signals, int& stop_signal)
      : job_(job), signals_(signals), stop_signal_(stop_signal) {
    if (job_.waits_for_nodes) next_look_ = Clock::now() + job_.look;
  }

  // Whatever goes wrong here, no rank is left behind, and words that were kept are shown.
  ~Ranks() {
    for (Rank& rank : ranks_) {
      for (Stream& stream : rank.streams)
        if (stream.descriptor >= 0) close(stream.descriptor);
      if (!rank.running) continue;
      kill_group(rank);
      wait_a_little(rank.child.pid);
    }
    if (!finished_) finish_streams();
  }

  Outcome run() {
    for (int local = 0; local < job_.first.local_ranks; ++local) start(local);
    while (running() > 0) {
      wait_for_news();
      read_streams();
      handle_signals();
      reap();
      read_streams();  // what the ended said, before others are made to end
      show_last_words();
      find_silent();
      ask_to_stop();
      look_for_nodes();
      if (!deadline_ || Clock::now() < *deadline_) continue;
      if (killed_)
        give_up_the_rest();
      else
        end_the_rest();
    }
    read_streams();
    show_last_words();
    if (repeats_ > 0)
      log_info(str(repeats_, repeats_ == 1 ? " more rank says" : " more ranks say", " the same"));
    finish_streams();
    for (Rank& rank : ranks_) {
      for (const Stream& stream : rank.streams)  // the last line of errors, or else of output
        if (!stream.relay.last_line().empty()) rank.end.last_line = stream.relay.last_line();
      // On a terminal it is the line above. Other nodes have not seen it, and who reads the last
      // line of a log (a sweep does) wants the reason in it.
      const bool is_shown =
          isatty(STDERR_FILENO) != 0 && (job_.log_dir.empty() || rank.end.rank == 0);
      if (has_erred(rank) && is_shown && job_.first.nodes == 1) rank.end.last_line.clear();
    }
    std::vector<RankEnd> ends;
    for (const Rank& rank : ranks_) ends.push_back(rank.end);
    Outcome outcome = outcome_of(ends, stop_signal_ == 0 && asked_ ? kAskSignal : stop_signal_);
    outcome.has_run_folder = std::ranges::any_of(
        ranks_, [](const Rank& rank) { return rank.page->page().has_run_folder != 0; });
    return outcome;
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
    rank.end.rank = rank_info.rank;
    variables[kStatusVariable] = std::to_string(rank.page->descriptor());
    try {
      rank.child = start_child(job_.command, variables, own_output, rank.page->descriptor());
    } catch (const FailureError& error) {
      // A machine that has no process to give now may have one later.
      if (error.failure() != Failure::kHostMemory && error.failure() != Failure::kStorage) throw;
      rank.running = false;
      rank.end.code = static_cast<int>(ExitCode::kEnvironment);
      rank.end.failure = error.failure();
      rank.end.last_line = error.what();
      ranks_.push_back(std::move(rank));
      on_failure(ranks_.back());
      return;
    }
    if (own_output) {
      std::shared_ptr<LogFile> log;
      if (!job_.log_dir.empty())
        log = std::make_shared<LogFile>(fs::path(job_.log_dir) /
                                        str("rank-", rank_info.rank, ".log"));
      const bool shown = as_is || log == nullptr;
      const std::string prefix = as_is ? "" : str("[rank ", rank_info.rank, "] ");
      rank.streams.push_back({rank.child.out, Relay(shown ? STDOUT_FILENO : -1, prefix, log)});
      rank.streams.push_back({rank.child.err, Relay(shown ? STDERR_FILENO : -1, prefix, log)});
      rank.streams.back().relay.keep_last_words();
    }
    ranks_.push_back(std::move(rank));
  }

  // In the user's eyes: it would come again, on every rank.
  static bool has_erred(const Rank& rank) {
    return !rank.running && rank.end.signal == 0 &&
           rank.end.code == static_cast<int>(ExitCode::kUsage);
  }

  // Of wrong use that ranks say alike the first one's words are enough: they are shown as soon as
  // it has ended, and repeats are left out. Others' last words are shown as soon as it is known
  // that they are none of these.
  void show_last_words() {
    for (Rank& rank : ranks_) {
      if (rank.running) continue;
      for (Stream& stream : rank.streams) {
        const bool is_new = !has_erred(rank) || said_.insert(stream.relay.last_line()).second;
        if (is_new)
          stream.relay.show_last_words();
        else if (stream.relay.leave_out_last_words())
          ++repeats_;
      }
    }
  }

  void finish_streams() {
    finished_ = true;
    for (Rank& rank : ranks_)
      for (Stream& stream : rank.streams) stream.relay.finish();
  }

  int running() const { return static_cast<int>(std::ranges::count_if(ranks_, &Rank::running)); }

  void wait_for_news() {
    std::vector<pollfd> watched = {{signals_.descriptor(), POLLIN, 0}};
    for (const Rank& rank : ranks_)
      for (const Stream& stream : rank.streams)
        if (stream.descriptor >= 0) watched.push_back({stream.descriptor, POLLIN, 0});
    int timeout = slow_reader() ? kSlowReader : job_.wants_stop ? kLookAtNodes : -1;
    for (const Rank& rank : ranks_) {
      const auto look = static_cast<int>(PulseWatch::interval(rank.page->page()).count());
      if (rank.running) timeout = timeout < 0 ? look : std::min(timeout, look);
    }
    for (const std::optional<Clock::time_point>& end : {deadline_, next_look_}) {
      if (!end) continue;
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*end - Clock::now());
      const int wait = static_cast<int>(std::max<int64_t>(0, left.count()));
      timeout = timeout < 0 ? wait : std::min(timeout, wait);
    }
    if (poll(watched.data(), watched.size(), timeout) < 0 && errno != EINTR)
      fail(ExitCode::kEnvironment, "launch",
           "wanted to wait for ranks, found: ", std::strerror(errno));
  }

  // One who does not take what ranks print is asked again now and then.
  bool slow_reader() const {
    return std::ranges::any_of(ranks_, [](const Rank& rank) {
      return std::ranges::any_of(rank.streams,
                                 [](const Stream& each) { return each.relay.has_pending(); });
    });
  }

  void read_streams() {
    char buffer[16384];
    for (Rank& rank : ranks_)
      for (Stream& stream : rank.streams) stream.relay.flush();
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
        say_continues(false);  // nor is what was asked to stop for a resize started again
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
      if (WIFSIGNALED(status))
        rank.end.signal = WTERMSIG(status);
      else
        rank.end.code = WEXITSTATUS(status);
      rank.end.failure = rank.page->failure();
      rank.end.hanging = static_cast<int>(rank.page->page().hanging - 1);
      on_failure(rank);
    }
  }

  // Of a rank that has ended: its peers are told, and are given some time to leave.
  void on_failure(Rank& rank) {
    rank.end.order = ended_++;
    if (!has_failed(rank.end) || rank.end.killed) return;
    if (job_.on_death) job_.on_death(rank.end.rank, death_text(rank.end));
    if (!deadline_) deadline_ = Clock::now() + job_.grace;
  }

  // A rank whose process does not run: its peers are told, and leave; it is killed with the rest.
  void find_silent() {
    for (Rank& rank : ranks_) {
      if (!rank.running || killed_ || !rank.pulse.look(Clock::now(), rank.page->page())) continue;
      if (process_state(rank.child.pid) == 't') {
        log_info(str("rank ", rank.end.rank, " stands still in a debugger; it is left alone"));
        continue;
      }
      rank.end.silent_seconds = rank.pulse.silent_seconds();
      const std::string text = str("hangs: no sign of life of its process for ",
                                   static_cast<int64_t>(rank.end.silent_seconds), " s at step ",
                                   rank.page->page().step.load(), " (process ", rank.child.pid,
                                   ", state ", process_state(rank.child.pid), ")");
      log_error(str("rank ", rank.end.rank, " ", text));
      if (job_.on_death) job_.on_death(rank.end.rank, text);
      if (!deadline_) deadline_ = Clock::now() + job_.grace;
    }
  }

  void ask_to_stop() {
    if (!job_.wants_stop || deadline_ || ranks_.empty()) return;
    const int64_t step = ranks_.front().page->page().step;
    if (first_step_ < 0) first_step_ = step;
    const bool ends = ranks_.front().page->page().makes_no_more_steps != 0;
    if (!job_.wants_stop(step > first_step_ && !ends) || asked_ || stop_signal_ != 0) return;
    asked_ = true;
    say_continues(true);
    for (const Rank& rank : ranks_)
      if (rank.running) kill(rank.child.pid, kAskSignal);
  }

  void look_for_nodes() {
    if (!next_look_ || Clock::now() < *next_look_) return;
    next_look_.reset();
    if (!deadline_ && stop_signal_ == 0 && job_.waits_for_nodes())
      next_look_ = Clock::now() + job_.look;
  }

  // The ranks tell people what continues the run; they cannot know who sent the signal.
  void say_continues(bool continues) {
    for (Rank& rank : ranks_) rank.page->page().launcher_continues = continues ? 1 : 0;
  }

  void end_the_rest() {
    deadline_ = Clock::now() + job_.last_grace;
    killed_ = true;
    for (Rank& rank : ranks_) {
      if (!rank.running) continue;
      rank.end.killed = true;
      rank.end.was_stopped = process_state(rank.child.pid) == 'T';
      log_warn(str("rank ", rank.end.rank,
                   rank.end.was_stopped ? " stands still" : " did not leave", " within ",
                   job_.grace.count() / 1000.0, " s; it is killed"));
      kill_group(rank);
    }
  }

  // A process that waits in the kernel (state D) does not end before that wait does, which may be
  // never: it is left behind, named, and nothing is restarted beside it.
  void give_up_the_rest() {
    deadline_.reset();
    for (Rank& rank : ranks_) {
      if (!rank.running) continue;
      rank.running = false;
      rank.end.unkillable = true;
      rank.end.order = ended_++;
      log_error(str("rank ", rank.end.rank, " (process ", rank.child.pid, ", state ",
                    process_state(rank.child.pid), ") is still there ",
                    job_.last_grace.count() / 1000.0, " s after SIGKILL; it is not waited for"));
    }
  }

  // The group, and the process itself, which may have left its group.
  void kill_group(const Rank& rank) const {
    if (job_.kill_group) return job_.kill_group(rank.child.pid);
    kill(-rank.child.pid, SIGKILL);
    kill(rank.child.pid, SIGKILL);
    kill(-rank.child.pid, SIGCONT);
  }

  void wait_a_little(pid_t pid) const {
    const Clock::time_point latest = Clock::now() + job_.last_grace;
    while (waitpid(pid, nullptr, WNOHANG) == 0 && Clock::now() < latest) poll(nullptr, 0, 10);
  }

  const Job& job_;
  SignalWatch& signals_;
  int& stop_signal_;
  std::vector<Rank> ranks_;
  std::optional<Clock::time_point> deadline_, next_look_;
  bool killed_ = false, asked_ = false, finished_ = false;
  std::set<std::string> said_;  // the last lines of ranks that ended by wrong use
  int repeats_ = 0;             // of them, that were not shown
  int64_t first_step_ = -1;     // that this node's first rank made
  int ended_ = 0;
};

}  // namespace

Outcome supervise(const Job& job, SignalWatch& signals, int& stop_signal) {
  return Ranks(job, signals, stop_signal).run();
}

}  // namespace octavo::launch
