#include "rendezvous/server.h"

#include "rendezvous/server_loop.h"

namespace octavo::rendezvous {

Server::Server(const std::string& address, int port, std::string secret, const Limits& limits)
    : loop_(std::make_unique<Loop>(address, port, std::move(secret), limits)) {}

Server::~Server() = default;

const std::string& Server::address() const {
  return loop_->address();
}

int Server::port() const {
  return loop_->port();
}

Counts Server::counts() const {
  return loop_->counts();
}

}  // namespace octavo::rendezvous
