#pragma once
// A process that is watched beside others: what it prints, and how it ends.

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/process.h"
#include "base/relay.h"

namespace octavo {

class WatchedChild {
 public:
  // Its lines go to `log` when there is one, and to standard error behind `prefix` when that is not
  // empty.
  WatchedChild(const std::vector<std::string>& command, const Variables& added,
               const std::string& prefix, const std::shared_ptr<LogFile>& log);
  ~WatchedChild();  // one that still runs is killed
  WatchedChild(const WatchedChild&) = delete;
  WatchedChild& operator=(const WatchedChild&) = delete;

  // Reads what it printed and sees whether it ended; false: it has.
  bool update();
  bool running() const { return running_; }
  void signal(int number) const;  // to the process
  void end_now() const;           // to its group: SIGKILL

  int code() const { return code_; }         // when it ended by itself
  int by_signal() const { return signal_; }  // that ended it; 0: none
  // "exit code 4", "signal 9 (Killed)"
  std::string end_text() const;
  const std::string& last_line() const;  // of its errors, or else of its output

 private:
  friend void wait_for_news(SignalWatch&, std::span<WatchedChild* const>,
                            std::chrono::milliseconds);
  struct Stream {
    int descriptor = -1;
    Relay relay;
  };
  static void read(Stream& stream);

  Child child_;
  Stream out_, err_;
  bool running_ = true;
  int code_ = 0, signal_ = 0;
};

// Until one of them printed or ended, a signal came, or the time is over.
void wait_for_news(SignalWatch& signals, std::span<WatchedChild* const> children,
                   std::chrono::milliseconds timeout);

}  // namespace octavo
