#pragma once
// Gloo's backend of c10d. Its headers come from Debian, the library from the torch wheel: they meet
// in gloo.cpp alone, and tests/dist says whether they still fit.

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <string>

namespace octavo::dist {

struct GlooOptions {
  std::string address;  // of this machine, that other ranks connect to
  std::chrono::milliseconds timeout{600'000};
};

// The store's keys must be this group's alone: Gloo adds no prefix of its own, and groups that
// share keys connect to each other without an error.
c10::intrusive_ptr<c10d::Backend> make_gloo(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                            int size, const GlooOptions& options);

}  // namespace octavo::dist
