// The monitor's HTTP server, by its own functions over a pair of sockets; its thread sleeps.
#include <fcntl.h>
#include <sys/socket.h>

#include "fuzz/harness.h"
#include "monitor/http_server.h"

OCTAVO_FUZZ_TARGET(input) {
  using namespace octavo;
  static monitor::HttpServer server("127.0.0.1:0", [](std::string_view path) {
    fuzz::check(path.starts_with('/'), "a path that does not begin with /");
    return monitor::HttpPage{
        .status = path == "/metrics" ? 200 : 404, .type = "text/plain", .body = "x\n"};
  });
  static int ends[2];
  fuzz::check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0, "no sockets");
  const rendezvous::Fd client(ends[1]);
  monitor::HttpServer::Connection connection{.fd = rendezvous::Fd(ends[0]),
                                             .deadline = rendezvous::Clock::now(),
                                             .request = {},
                                             .answer = {}};
  // The first byte says in pieces of how many bytes the rest comes.
  const size_t piece = input.empty() ? 1 : 1 + static_cast<unsigned char>(input[0]) * 16;
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
