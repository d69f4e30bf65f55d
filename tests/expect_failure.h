#pragma once
// What a test wants of a mistake: an Error with its exit code, and a message that names the matter.

#include <gtest/gtest.h>

#include <string>

#include "base/error.h"

namespace octavo {

// `action` must fail with `code` and a message that holds `part`.
template <typename Action>
void expect_failure(ExitCode code, const std::string& part, Action&& action) {
  try {
    action();
    ADD_FAILURE() << "was not refused; wanted a message with: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
        << "wanted '" << part << "' in: " << error.what();
  }
}

}  // namespace octavo
