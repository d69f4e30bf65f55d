#include "base/signals.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace octavo {
namespace {

// In processes of their own: the state lasts as long as the process.
void stop_by(int number) {
  install_stop_handlers();
  if (stop_requested() || *stop_reason() != '\0') _exit(1);
  ::raise(number);
  _exit(stop_requested() && stop_reason() == std::string(number == SIGTERM  ? "SIGTERM"
                                                         : number == SIGINT ? "SIGINT"
                                                                            : "SIGUSR1")
            ? 0
            : 2);
}

TEST(Signals, AskForAStop) {
  for (const int number : {SIGTERM, SIGINT, SIGUSR1})
    EXPECT_EXIT(stop_by(number), testing::ExitedWithCode(0), "") << number;
}

TEST(Signals, SecondInterruptEndsAtOnce) {
  const auto twice = [] {
    install_stop_handlers();
    ::raise(SIGINT);
    ::raise(SIGTERM);  // asks again, politely
    ::raise(SIGINT);
    _exit(0);
  };
  EXPECT_EXIT(twice(), testing::ExitedWithCode(130), "");
}

}  // namespace
}  // namespace octavo
