// Credentials that are not there at the first request are looked for again by the next.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/socket.h"
#include "object_store/object_store.h"

namespace octavo::object_store {
namespace {

// Refuses every request (403), but gives the credentials of a role from when it may.
class RoleServer {
 public:
  RoleServer() {
    std::thread([this] {
      for (;;) answer();
    }).detach();
  }
  std::string url() const { return str("http://127.0.0.1:", port_of(listener_.get())); }
  std::atomic<bool> gives{false};
  std::atomic<int> with_a_name{0};

 private:
  void answer() {
    wait_readable(listener_.get(), Clock::now() + std::chrono::seconds(60));
    const Fd fd(::accept(listener_.get(), nullptr, nullptr));
    std::string request;
    char bytes[4096];
    while (request.find("\r\n\r\n") == std::string::npos) {
      const ssize_t got = fd.open() ? ::recv(fd.get(), bytes, sizeof bytes, 0) : 0;
      if (got <= 0) return;
      request.append(bytes, static_cast<size_t>(got));
    }
    if (request.find("AWS4-HMAC") != std::string::npos) ++with_a_name;
    const bool role = gives && request.starts_with("GET /role ");
    const std::string body = role ? R"({"AccessKeyId":"someone","SecretAccessKey":"of-nobody",)"
                                    R"("Token":"t","Expiration":"2099-01-01T00:00:00Z"})"
                                  : "";
    const std::string text =
        str("HTTP/1.1 ", role ? "200 OK" : "403 Forbidden", "\r\nContent-Length: ", body.size(),
            "\r\nConnection: close\r\n\r\n", body);
    ::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }

  std::string why_;
  Fd listener_ = listen_on(resolve_address("127.0.0.1", 0, &why_).front());
};

// Prints the error; both are refused, so there is one.
void ask_refused() {
  try {
    s3()->list("s3://bucket/run");
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
}

void leave_no_credentials(const RoleServer& server) {
  for (const char* name :
       {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE",
        "AWS_ENDPOINT_URL_S3", "AWS_ROLE_ARN", "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"})
    ::unsetenv(name);
  ::setenv("HOME", "/nonexistent", 1);
  ::setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
  ::setenv("AWS_ENDPOINT_URL", server.url().c_str(), 1);
}

class S3CredentialsDeathTest : public testing::Test {
 protected:
  S3CredentialsDeathTest() { GTEST_FLAG_SET(death_test_style, "threadsafe"); }
};

TEST_F(S3CredentialsDeathTest, ARoleThatIsAwayIsAskedAgain) {
  EXPECT_EXIT(
      {
        RoleServer server;
        leave_no_credentials(server);
        ::setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", (server.url() + "/role").c_str(), 1);
        ask_refused();
        server.gives = true;
        ask_refused();
        std::exit(server.with_a_name > 0 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "role that AWS_CONTAINER_CREDENTIALS_FULL_URI names");
}

// Nothing names an instance's role; the keys of the environment stand for it.
TEST_F(S3CredentialsDeathTest, ARefusedRequestWithoutANameLooksForOne) {
  EXPECT_EXIT(
      {
        RoleServer server;
        leave_no_credentials(server);
        ask_refused();
        const bool without = server.with_a_name == 0;
        ::setenv("AWS_ACCESS_KEY_ID", "someone", 1);
        ::setenv("AWS_SECRET_ACCESS_KEY", "of-nobody", 1);
        ask_refused();
        std::exit(without && server.with_a_name > 0 ? 0 : 1);
      },
      testing::ExitedWithCode(0), "none were found; the next attempt looks for them again");
}

}  // namespace
}  // namespace octavo::object_store
