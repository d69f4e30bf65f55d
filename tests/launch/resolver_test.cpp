// A resolver that does not answer yet, as while a machine boots.

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <netdb.h>

#include <atomic>
#include <string_view>

#include "launch/coordinator.h"
#include "rendezvous/server.h"

namespace {

std::atomic<int> unanswered{0};  // questions for the name "late", which is this machine's then

}  // namespace

// Found before libc's, which it calls.
extern "C" int getaddrinfo(const char* name, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  static const auto resolve =
      reinterpret_cast<decltype(&::getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool is_late = name != nullptr && std::string_view(name) == "late";
  if (is_late && unanswered-- > 0) return EAI_AGAIN;
  return resolve(is_late ? "127.0.0.1" : name, service, hints, found);
}

namespace octavo::launch {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

LaunchCoordinator::Options until_it_answers() {
  return {.interrupted = [] { return false; },
          .connect = seconds(20),
          .listen = seconds(20),
          .resolve = milliseconds(0)};
}

TEST(Resolver, OneThatDoesNotAnswerYetMakesNoNameWrong) {
  unanswered = 1000;
  try {
    const rendezvous::Client client("late", 1, "", milliseconds(50));
    ADD_FAILURE() << "connected";
  } catch (const rendezvous::WrongAddress& error) {
    ADD_FAILURE() << error.what();
  } catch (const rendezvous::Unresolved& error) {
    EXPECT_NE(std::string_view(error.what()).find("'late' does not resolve yet"),
              std::string_view::npos)
        << error.what();
  }
  try {
    const rendezvous::Server server("late", 0, "");
    ADD_FAILURE() << "listens";
  } catch (const rendezvous::WrongAddress& error) {
    ADD_FAILURE() << error.what();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kEnvironment);
  }
}

TEST(Resolver, LaunchersWaitForIt) {
  unanswered = 2;
  LaunchCoordinator first(0, 2, "late", 0, until_it_answers());
  unanswered = 8;  // more than a client asks for in its first second
  testing::internal::CaptureStderr();
  const LaunchCoordinator second(1, 2, "late", first.port(), until_it_answers());
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("'late' does not resolve yet"), std::string::npos) << said;
  EXPECT_NE(said.find("tried again for 20 s"), std::string::npos) << said;
}

}  // namespace
}  // namespace octavo::launch
