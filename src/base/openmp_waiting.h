#pragma once
// How threads of the OpenMP runtime wait for each other. The runtime is libgomp: torch's wheel
// brings it, and oneDNN shares it. Left alone its threads spin for milliseconds before they sleep,
// and beside another program they spin in the very time slices that the thread they wait for
// needs: a step becomes ten times slower and not twice.

#include <string>

namespace octavo {

// While this lives the environment asks libgomp to spin briefly, unless the user has said
// something about it. libgomp reads its environment once, when it is loaded: load it in this scope.
// Children begin with what the user set.
class BriefSpinning {
 public:
  BriefSpinning();
  ~BriefSpinning();
  BriefSpinning(const BriefSpinning&) = delete;
  BriefSpinning& operator=(const BriefSpinning&) = delete;

 private:
  bool was_set_;
};

// How many turns of libgomp's waiting loop take as long as a thread should spin. The CPU's pause
// instruction takes a few nanoseconds on some and ten times that on others, so it is measured.
long spin_count();

// Of the user's environment ("OMP_WAIT_POLICY=passive"), or "" when it says nothing.
std::string waiting_variable();

// For people: "a waiting thread sleeps after 50 µs".
std::string waiting_words();

// For programs that are linked with libgomp, which is loaded before main: starts the program again
// with the variable set; returns when it is.
void start_again_with_brief_spinning(char** argv);

}  // namespace octavo
