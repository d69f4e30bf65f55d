#pragma once
// Authentication: a secret that every rank of a run shares, proven over two nonces and never sent.

#include <string>
#include <string_view>

#include "rendezvous/protocol.h"

namespace octavo::rendezvous {

inline constexpr size_t kMinSecretBytes = 16;

// From OCTAVO_RENDEZVOUS_SECRET, or from the file that OCTAVO_RENDEZVOUS_SECRET_FILE names (which
// others must not be able to read); "" when neither is set. Never printed.
std::string secret_from_environment();

// Fails unless `secret` will do for `address` (resolved): loopback alone may do without.
void require_secret(const std::string& address, bool is_loopback, const std::string& secret);

std::string random_nonce();
std::string new_secret();  // as text, for an environment

// HMAC-SHA256 over the role ("client", "server") and both hellos as they were sent.
std::string proof(std::string_view secret, std::string_view role, std::string_view client_hello,
                  std::string_view server_hello);

// In a time that does not tell where they differ.
bool same_bytes(std::string_view a, std::string_view b);

}  // namespace octavo::rendezvous
