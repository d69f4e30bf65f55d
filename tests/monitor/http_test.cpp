#include "monitor/http_server.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "expect_failure.h"
#include "monitor/prometheus.h"

namespace octavo::monitor {
namespace {

Fd connect_port(int port) {
  std::string why;
  const auto endpoints = resolve_address("127.0.0.1", port, &why);
  return connect_to(endpoints.at(0), Clock::now() + std::chrono::seconds(5), &why);
}

void say(const Fd& fd, std::string_view bytes) {
  std::string why;
  send_all(fd.get(), bytes, Clock::now() + std::chrono::seconds(5), &why);
}

// All that comes until the other side closes, or five seconds of silence.
std::string hear(const Fd& fd) {
  std::string all;
  std::vector<char> chunk(1 << 16);
  for (pollfd entry{fd.get(), POLLIN, 0}; ::poll(&entry, 1, 5000) > 0;) {
    const ssize_t got = ::recv(fd.get(), chunk.data(), chunk.size(), 0);
    if (got <= 0) break;
    all.append(chunk.data(), static_cast<size_t>(got));
  }
  return all;
}

std::string ask(int port, std::string_view request) {
  const Fd fd = connect_port(port);
  say(fd, request);
  return hear(fd);
}

HttpPage hello(std::string_view path) {
  if (path == "/big") return {.body = std::string(5'000'000, 'x')};
  if (path != "/") return {.status = 404, .body = "no\n"};
  return {.body = "hello\n"};
}

TEST(Http, AnswersGetAndHead) {
  const HttpServer server("127.0.0.1:0", hello);
  const std::string got = ask(server.port(), "GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(got.starts_with("HTTP/1.1 200 OK\r\n")) << got;
  EXPECT_TRUE(got.ends_with("\r\n\r\nhello\n")) << got;
  EXPECT_NE(got.find("Content-Length: 6\r\n"), got.npos);
  const std::string head = ask(server.port(), "HEAD / HTTP/1.0\r\n\r\n");
  EXPECT_TRUE(head.ends_with("\r\n\r\n")) << head;
  EXPECT_NE(head.find("Content-Length: 6\r\n"), head.npos);
  EXPECT_TRUE(ask(server.port(), "GET /?a=b HTTP/1.1\r\n\r\n").ends_with("hello\n"));
  EXPECT_TRUE(ask(server.port(), "GET /other HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404 "));
  EXPECT_GT(ask(server.port(), "GET /big HTTP/1.1\r\n\r\n").size(), 5'000'000u);
}

TEST(Http, ARequestInPiecesIsOne) {
  const HttpServer server("127.0.0.1:0", hello);
  const Fd fd = connect_port(server.port());
  for (const char c : std::string("GET / HTTP/1.1\r\n\r\n")) {
    say(fd, std::string(1, c));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_TRUE(hear(fd).ends_with("hello\n"));
}

TEST(Http, GarbageIsRefused) {
  const HttpServer server("127.0.0.1:0", hello);
  for (const char* request :
       {"\r\n\r\n", "GET\r\n\r\n", "GET / FTP/1.1\r\n\r\n", "GET nothing HTTP/1.1\r\n\r\n",
        "GET /\x01 HTTP/1.1\r\n\r\n", "   \r\n\r\n", "\x16\x03\x01\x02\r\n\r\n"})
    EXPECT_TRUE(ask(server.port(), request).starts_with("HTTP/1.1 400 ")) << request;
  EXPECT_TRUE(ask(server.port(), "POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
  EXPECT_TRUE(ask(server.port(), std::string(4096, 'a')).starts_with("HTTP/1.1 431 "));
  EXPECT_EQ(server.counts().refused, 9);
}

TEST(Http, SlowClientsAreDroppedAndOthersServedMeanwhile) {
  const HttpServer server("127.0.0.1:0", hello, {.patience = std::chrono::milliseconds(300)});
  const Fd slow = connect_port(server.port());
  say(slow, "GET / HT");
  const Fd deaf = connect_port(server.port());  // never reads the answer
  say(deaf, "GET /big HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(ask(server.port(), "GET / HTTP/1.1\r\n\r\n").ends_with("hello\n"));
  const auto start = Clock::now();
  EXPECT_EQ(hear(slow), "");
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(3));
  for (int i = 0; i < 300 && server.counts().too_slow < 2; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(server.counts().too_slow, 2);
}

TEST(Http, ThousandsOfConnectionsDoNotMatter) {
  const HttpServer server("127.0.0.1:0", hello, {.connections = 8, .accepts_per_second = 100'000});
  std::vector<Fd> crowd;
  int64_t opened = 0;
  for (int i = 0; i < 2000; ++i) {
    crowd.push_back(connect_port(server.port()));
    opened += crowd.back().open() ? 1 : 0;
    if (crowd.size() >= 200) crowd.erase(crowd.begin(), crowd.begin() + 100);
  }
  EXPECT_EQ(opened, 2000);
  EXPECT_TRUE(ask(server.port(), "GET / HTTP/1.1\r\n\r\n").ends_with("hello\n"));
  EXPECT_GT(server.counts().pushed_out + server.counts().left, 1000);
}

TEST(Http, AFloodIsTakenInAtItsRate) {
  const HttpServer server("127.0.0.1:0", hello, {.accepts_per_second = 20});
  const auto start = Clock::now();
  for (int i = 0; i < 13; ++i)
    EXPECT_TRUE(ask(server.port(), "GET / HTTP/1.1\r\n\r\n").ends_with("hello\n"));
  // Three at once (a tenth of a second's, and one), the others by 20 a second.
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(450));
}

TEST(Http, AddressesAreStatedInFull) {
  EXPECT_EQ(parse_listen_address("[::1]:9400").host, "::1");
  EXPECT_EQ(parse_listen_address("127.0.0.1:9400").port, 9400);
  for (const char* bad : {"", ":9400", "9400", "127.0.0.1", "127.0.0.1:", "127.0.0.1:70000",
                          "127.0.0.1:-1", "127.0.0.1:94x", "::1:9400", "[]:1"})
    expect_failure(ExitCode::kUsage, "wanted ADDRESS:PORT", [&] { parse_listen_address(bad); });
}

std::string port_in(const std::string& text) {
  return text.substr(text.rfind(':') + 1);
}

TEST(Prometheus, AnAddressInUseIsCountedAndSurvived) {
  const HttpServer first("127.0.0.1:0", hello);
  const auto second = make_prometheus_sink("127.0.0.1:" + port_in(first.address()), "run");
  EXPECT_EQ(second->failures(), 1);
  second->on_step(StepRecord{});
  second->on_eval(EvalRecord{});
  expect_failure(ExitCode::kUsage, "wanted ADDRESS:PORT",
                 [] { make_prometheus_sink("everywhere", "run"); });
}

TEST(Prometheus, MetricsAndHealth) {
  // A port that was free a moment ago.
  const int port = HttpServer("127.0.0.1:0", hello).port();
  const auto sink = make_prometheus_sink("127.0.0.1:" + std::to_string(port), "a \"name\"");
  ASSERT_EQ(sink->failures(), 0);
  const std::string before = ask(port, "GET /healthz HTTP/1.1\r\n\r\n");
  EXPECT_NE(before.find("\"starting\""), before.npos) << before;
  StepRecord r;
  r.step = 12;
  r.loss = 2.25;
  r.grad_norm = INFINITY;
  r.upload_seconds = 1.5;
  r.failed_uploads = 2;
  r.failed_saves = 1;
  sink->on_step(r);
  sink->on_eval({.step = 12, .val_loss = 3.5});
  const std::string page = ask(port, "GET /metrics HTTP/1.1\r\n\r\n");
  for (const char* line :
       {"\noctavo_run_info{run=\"a \\\"name\\\"\"} 1\n", "\noctavo_step 12\n",
        "\n# TYPE octavo_train_loss gauge\noctavo_train_loss 2.25\n", "\noctavo_val_loss 3.5\n",
        "\noctavo_train_grad_norm +Inf\n", "\noctavo_perf_upload_seconds 1.5\n",
        "\noctavo_flags_failed_uploads 2\n", "version=0.0.4"})
    EXPECT_NE(page.find(line), page.npos) << line << page;
  const std::string health = ask(port, "GET /healthz HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(health.starts_with("HTTP/1.1 200 ")) << health;
  EXPECT_NE(health.find("{\"status\":\"ok\",\"step\":12,"), health.npos) << health;
  EXPECT_NE(health.find("\"failed_saves\":1,\"failed_uploads\":2"), health.npos) << health;
  // The last upload: no records, and signs of life.
  const auto quiet = [&] {
    const std::string body = ask(port, "GET /healthz HTTP/1.1\r\n\r\n");
    return std::stod(body.substr(body.find("record\":") + 8));
  };
  std::this_thread::sleep_for(std::chrono::milliseconds(400));
  const double silence = quiet();
  EXPECT_GE(silence, 0.4);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  sink->on_alive();
  EXPECT_LT(quiet(), silence + 2);
}

}  // namespace
}  // namespace octavo::monitor
