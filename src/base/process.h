#pragma once
// One child process: in a process group of its own, and ended when this process ends.

#include <signal.h>
#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace octavo {

using Variables = std::map<std::string, std::string, std::less<>>;  // of an environment

struct Child {
  pid_t pid = -1;
  int out = -1, err = -1;  // read ends of its stdout and stderr; -1: it has this process's
};

// `added` goes over this process's variables. Standard input is empty. Fails (FailureError) when
// the program cannot be started. `kept`: a descriptor that the child has, too, under the same
// number.
Child start_child(const std::vector<std::string>& command, const Variables& added, bool own_output,
                  int kept = -1);

// The path of the program of that name in PATH, or "".
std::string find_program(const std::string& name);

// When the process began, in ticks since the boot, so that a number that is used again is not taken
// for it; "" when there is none.
std::string process_start(pid_t pid);
// Whether the process of that number which began then is there and has not ended.
bool process_lives(pid_t pid, const std::string& start);

// Where process numbers mean the same: this start of this machine, this container. Empty where the
// system does not say.
struct ProcessSpace {
  std::string boot, space;
};
ProcessSpace process_space();

// As ps shows it: R runs, S and D wait, T stands still (SIGSTOP), Z has ended; 0: there is none.
char process_state(pid_t pid);

// SIGCHLD, SIGTERM, SIGINT, SIGUSR1 and SIGHUP (unless nohup has it ignored) arrive in a descriptor
// while this lives, and a reader of our output that is gone (SIGPIPE) does not end us. Made before
// any thread is, so that no thread takes them.
class SignalWatch {
 public:
  SignalWatch();
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  int descriptor() const { return descriptor_; }
  std::optional<int> take();  // the next signal that came, if any

 private:
  int descriptor_ = -1;
  sigset_t before_{};
};

}  // namespace octavo
