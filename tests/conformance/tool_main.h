#pragma once
// The frame of a tool of the tests: an error goes to stderr with its exit code, and output that
// could not be written is one.

#include <cstdio>

#include "base/error.h"

namespace octavo {

template <class Body>
int tool_main(const Body& body) {
  try {
    body();
    return std::fflush(stdout) == 0 ? 0 : 1;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
}

}  // namespace octavo
