#pragma once

#include <string>

namespace octavo::dist {

// The address, in digits, that this machine would speak to that one from.
std::string address_towards(const std::string& host, int port);

}  // namespace octavo::dist
