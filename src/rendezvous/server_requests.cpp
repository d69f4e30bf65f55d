#include <algorithm>

#include "base/error.h"
#include "base/log.h"
#include "rendezvous/auth.h"
#include "rendezvous/server_loop.h"

namespace octavo::rendezvous {
namespace {

constexpr int kReadsPerRound = 32;  // so that one large value does not hold up the others

}  // namespace

// Of the message that is coming: never more than that is read, so that unauthenticated clients cost
// nothing.
size_t Server::Loop::wanted_bytes(const Connection& connection) {
  if (connection.stage == Connection::Stage::kHello) return kHelloBytes;
  if (connection.stage == Connection::Stage::kProof) return kProofBytes;
  const auto length = parse_frame_length(connection.in);
  return length ? size_t{4} + *length : 4;
}

void Server::Loop::on_readable(const Ptr& connection) {
  for (int i = 0; i < kReadsPerRound; ++i) {
    const size_t before = connection->in.size();
    if (!receive(*connection, wanted_bytes(*connection) - before)) {
      drop(connection, &Counts::left_early);
      return;
    }
    if (!charge(connection)) return;
    const size_t wanted = wanted_bytes(*connection);
    const bool has_header = connection->in.size() >= 4;
    if (has_header && (wanted == 4 || wanted > 4 + kMaxFrameBytes)) {
      drop(connection, &Counts::garbage);
      return;
    }
    if (has_header && connection->in.size() == wanted) break;
    if (connection->in.size() == before) return;  // nothing more for now
  }
  if (connection->in.size() < wanted_bytes(*connection)) return;
  switch (connection->stage) {
    case Connection::Stage::kHello:
      on_hello(connection);
      break;
    case Connection::Stage::kProof:
      on_proof(connection);
      break;
    case Connection::Stage::kAuthenticated:
      on_request(connection);
      break;
  }
}

void Server::Loop::on_hello(const Ptr& connection) {
  const auto hello = parse_hello(connection->in);
  if (!hello) {
    drop(connection, &Counts::garbage);
    return;
  }
  connection->client_hello = std::move(connection->in);
  connection->in.clear();
  connection->server_hello = encode_hello({kVersion, random_nonce()});
  connection->stage = Connection::Stage::kProof;
  connection->out = connection->server_hello;
  const bool other_version = hello->version != kVersion;
  flush(connection);
  if (other_version) drop(connection, &Counts::garbage);  // it has seen our version by now
}

void Server::Loop::on_proof(const Ptr& connection) {
  const std::string wanted =
      proof(secret_, "client", connection->client_hello, connection->server_hello);
  const bool good = same_bytes(connection->in, wanted);
  connection->in.clear();
  const bool room = connections_.size() - unauthenticated_.size() < limits_.connections;
  if (!good || !room) {
    connection->out = std::string(kAnswerBytes, '\0');
    if (good) connection->out[0] = kAnswerFull;
    flush(connection);
    drop(connection, good ? &Counts::turned_away : &Counts::wrong_secret);
    return;
  }
  unauthenticated_.erase(connection->id);
  connection->stage = Connection::Stage::kAuthenticated;
  count(&Counts::let_in);
  connection->out =
      '\1' + proof(secret_, "server", connection->client_hello, connection->server_hello);
  flush(connection);
}

void Server::Loop::on_request(const Ptr& connection) {
  std::string why;
  auto request = parse_request(std::string_view(connection->in).substr(4), &why);
  connection->in = std::string();
  count(&Counts::requests);
  if (request) {
    serve(connection, std::move(*request));
    return;
  }
  count(&Counts::refused);
  reply(connection, {Status::kRefused, 0, {"the request was not understood: " + why}});
}

void Server::Loop::serve(const Ptr& connection, Request request) {
  if (Table::waits(request.op)) {
    const size_t missing = table_.first_missing(request, 0);
    if (missing != Table::kNone && request.wait_ms == 0) {
      reply(connection, {Status::kTimedOut, 0, {}});
      return;
    }
    if (missing != Table::kNone) {
      const auto deadline = Clock::now() + std::chrono::milliseconds(request.wait_ms);
      make_wait(connection, {std::move(request), missing, deadline});
      return;
    }
  }
  const Reply answer = table_.answer(request);
  if (answer.status == Status::kRefused) count(&Counts::refused);
  reply(connection, answer);
  if (Table::writes(request.op)) wake(request);
}

void Server::Loop::make_wait(const Ptr& connection, WaitingRequest waiting) {
  waiting_for_[waiting.request.keys[waiting.next]].insert(connection->id);
  waiting_until_.emplace(waiting.deadline, connection->id);
  connection->waiting = std::move(waiting);
  if (charge(connection)) watch(*connection);
}

WaitingRequest Server::Loop::resume_waiting(Connection& connection) {
  WaitingRequest waiting = std::move(*connection.waiting);
  connection.waiting.reset();
  waiting_until_.erase({waiting.deadline, connection.id});
  const auto same_key = waiting_for_.find(waiting.request.keys[waiting.next]);
  same_key->second.erase(connection.id);
  if (same_key->second.empty()) waiting_for_.erase(same_key);
  return waiting;
}

// Those who waited for one of the keys that were just written.
void Server::Loop::wake(const Request& written) {
  for (const std::string& key : written.keys) {
    const auto same_key = waiting_for_.find(key);
    if (same_key == waiting_for_.end()) continue;
    const std::set<uint64_t> ids = same_key->second;  // a copy: resume_waiting changes it
    for (const uint64_t id : ids) {
      const Ptr connection = connections_.at(id);
      WaitingRequest waiting = resume_waiting(*connection);
      waiting.next = table_.first_missing(waiting.request, waiting.next);
      if (waiting.next == Table::kNone)
        reply(connection, table_.answer(waiting.request));
      else
        make_wait(connection, std::move(waiting));
    }
  }
}

void Server::Loop::reply(const Ptr& connection, const Reply& reply) {
  refresh_counts();
  connection->out = encode(reply);
  connection->out_sent = 0;
  flush(connection);
}

}  // namespace octavo::rendezvous
