// The monitor's HTTP server, by its own functions over a pair of sockets. Few inputs go through its
// port and its thread, which take longer.
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "fuzz/harness.h"
#include "monitor/http_server.h"

namespace {

octavo::monitor::HttpServer& server_of_fuzzing() {
  using namespace octavo;
  static monitor::HttpServer server(
      "127.0.0.1:0",
      [](std::string_view path) {
        fuzz::check(path.starts_with('/'), "a path that does not begin with /");
        return monitor::HttpPage{
            .status = path == "/metrics" ? 200 : 404, .type = "text/plain", .body = "x\n"};
      },
      {.request_bytes = 4096,
       .connections = 2,
       .patience = std::chrono::milliseconds(20),
       .accepts_per_second = 1'000'000});
  return server;
}

void through_the_port(std::string_view request) {
  using namespace octavo;
  const Fd client(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(server_of_fuzzing().port()));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(client.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return;
  ::send(client.get(), request.data(), request.size(), MSG_NOSIGNAL);
  // Most say that they are done; the server waits for the others until its patience ends.
  if (request.size() % 64 != 0) ::shutdown(client.get(), SHUT_WR);
  char answer[64];
  while (::recv(client.get(), answer, sizeof answer, 0) > 0) {
  }
}

}  // namespace

OCTAVO_FUZZ_TARGET(input) {
  using namespace octavo;
  if (input.starts_with("#GET")) return through_the_port(input.substr(1));
  if (input.starts_with('@')) {  // an address to listen at
    fuzz::refusal_of([&] {
      const auto address = monitor::parse_listen_address(std::string(input.substr(1)));
      fuzz::check(address.port >= 0 && address.port <= 65535, "an impossible port");
    });
    return;
  }
  monitor::HttpServer& server = server_of_fuzzing();
  static int ends[2];
  fuzz::check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0, "no sockets");
  const Fd client(ends[1]);
  monitor::HttpServer::Connection connection{
      .fd = Fd(ends[0]), .deadline = Clock::now(), .request = {}, .answer = {}};
  // The first byte says in pieces of how many bytes the rest comes; of one byte only when it is
  // short.
  const size_t asked = input.empty() ? 1 : 1 + static_cast<unsigned char>(input[0]) * 16;
  const size_t piece = std::max(asked, input.size() / 16);
  for (size_t at = 1; at < input.size() && connection.fd.open(); at += piece) {
    const std::string_view part = input.substr(at, piece);
    if (::send(client.get(), part.data(), part.size(), MSG_NOSIGNAL) < 0) break;
    server.serve(connection);
    fuzz::check(connection.request.size() <= 4096 + 2048, "a request beyond its limit");
  }
  char answer[512];
  const ssize_t got = ::recv(client.get(), answer, sizeof answer, 0);
  if (got > 0)
    fuzz::check(std::string_view(answer, static_cast<size_t>(got)).starts_with("HTTP/1.1 "),
                "an answer that is no HTTP");
}
