// The rendezvous: the message parsers as functions, and the server's loop, turned by hand, with one
// connection over a pair of sockets. The first byte says whether the handshake is done properly and
// in pieces of how many bytes the rest comes.
#include <sys/epoll.h>
#include <sys/socket.h>

#include "fuzz/harness.h"
#include "rendezvous/auth.h"
#include "rendezvous/server_loop.h"

namespace {

using namespace octavo;
using namespace octavo::rendezvous;

// A loop whose thread has ended.
Server::Loop& stopped_loop() {
  static auto* loop = [] {
    auto* made = new Server::Loop("127.0.0.1", 0, "",
                                  {.keys = 64, .bytes = 1 << 16, .buffer_bytes = 1 << 20});
    made->stopping_ = true;
    const uint64_t one = 1;
    fuzz::check(::write(made->stop_event_.get(), &one, sizeof one) == sizeof one, "no event");
    made->thread_.join();
    ::epoll_ctl(made->epoll_.get(), EPOLL_CTL_DEL, made->stop_event_.get(), nullptr);
    made->stopping_ = false;
    return made;
  }();
  return *loop;
}

std::string received(int fd) {
  char bytes[4096];
  const ssize_t got = ::recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
  return got > 0 ? std::string(bytes, static_cast<size_t>(got)) : "";
}

void shake_hands(Server::Loop& loop, int client) {
  const std::string hello = encode_hello({kVersion, std::string(kNonceBytes, 'n')});
  ::send(client, hello.data(), hello.size(), MSG_NOSIGNAL);
  loop.run_once();
  const std::string theirs = received(client);
  fuzz::check(theirs.size() == kHelloBytes, "no hello");
  const std::string mine = proof("", "client", hello, theirs);
  ::send(client, mine.data(), mine.size(), MSG_NOSIGNAL);
  loop.run_once();
  const std::string answer = received(client);
  fuzz::check(answer.size() == kAnswerBytes && answer[0] == kAnswerAccepted, "not authenticated");
}

void drive_loop(std::string_view input) {
  Server::Loop& loop = stopped_loop();
  int ends[2];
  fuzz::check(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0, "no sockets");
  Fd client(ends[1]);
  auto connection = std::make_shared<Connection>();
  connection->fd = Fd(ends[0]);
  connection->peer.ss_family = AF_UNIX;
  loop.admit(connection);
  const auto first = static_cast<unsigned char>(input[0]);
  if ((first & 1) != 0) shake_hands(loop, client.get());
  const size_t piece = std::max(1 + (first >> 1) * size_t{32}, input.size() / 16);
  for (size_t at = 1; at < input.size() && connection->fd.open(); at += piece) {
    const std::string_view part = input.substr(at, piece);
    if (::send(client.get(), part.data(), part.size(), MSG_NOSIGNAL) < 0) break;
    loop.run_once();
    received(client.get());
    if (connection->waiting) break;  // it waits, and nobody will come
  }
  loop.drop(connection, &Counts::left_early);
  fuzz::check(loop.connections_.empty() && loop.unauthenticated_.empty() && loop.buffered_ == 0 &&
                  loop.waiting_for_.empty() && loop.waiting_until_.empty(),
              "something is left of a connection that is gone");
  fuzz::check(loop.table_.keys() <= 64 && loop.table_.bytes() <= 1 << 16, "more than the limits");
}

}  // namespace

OCTAVO_FUZZ_TARGET(input) {
  if (input.empty()) return;
  std::string why;
  if (const auto request = parse_request(input.substr(1), &why)) {
    const auto again = parse_request(std::string_view(encode(*request)).substr(4), &why);
    fuzz::check(again && encode(*again) == encode(*request), "a request that reads back otherwise");
    Table table(16, 4096);
    if (!Table::waits(request->op) || table.first_missing(*request, 0) == Table::kNone)
      table.answer(*request);
    fuzz::check(table.bytes() <= 4096, "a table beyond its limit");
  } else {
    fuzz::check(!why.empty(), "refused without a reason");
  }
  if (const auto reply = parse_reply(input.substr(1), &why))
    fuzz::check(parse_reply(std::string_view(encode(*reply)).substr(4), &why).has_value(),
                "a reply");
  parse_hello(input.substr(1));
  parse_frame_length(input.substr(1));
  drive_loop(input);
}
