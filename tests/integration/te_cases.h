#pragma once
// A list of named cases, each run for itself: one that fails is printed and counted.

#include <cstdio>
#include <exception>
#include <functional>
#include <string>

#include "base/error.h"

namespace octavo {

class Cases {
 public:
  explicit Cases(std::string where) : where_(std::move(where)) {}

  // `body` returns what is wrong, or "".
  void run(const std::string& name, const std::function<std::string()>& body) {
    ++count_;
    std::string wrong;
    try {
      wrong = body();
    } catch (const std::exception& error) {
      wrong = error.what();
    }
    if (wrong.empty()) return;
    ++failed_;
    std::printf("FAILED %s, %s: %s\n", where_.c_str(), name.c_str(), wrong.c_str());
  }
  void accepts(const std::string& name, const std::function<void()>& body) {
    run(name, [&] {
      body();
      return std::string();
    });
  }
  // The body must end in an Error whose message has `part` in it.
  void refuses(const std::string& name, const std::string& part,
               const std::function<void()>& body) {
    run("refused: " + name, [&]() -> std::string {
      try {
        body();
      } catch (const Error& error) {
        const std::string said = error.what();
        return said.find(part) != std::string::npos ? "" : "wanted '" + part + "' in: " + said;
      }
      return "was not refused; wanted '" + part + "'";
    });
  }

  // The last line, and the exit code.
  int finish() const {
    std::printf("cases=%d failed=%d\n", count_, failed_);
    return failed_ == 0 ? 0 : 1;
  }

 private:
  std::string where_;
  int count_ = 0, failed_ = 0;
};

// On the fake CUDA device, with the real library.
int check_acceptance(int capability);
// In the CPU's memory, with the stand-in of te_double/. `all`: every format of a recipe,
// and every way to train for every model.
int check_steps(bool all);

}  // namespace octavo
