#pragma once
// A refusal is an Error with exit code 2 whose message holds every given part.

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/parse.h"

namespace octavo::config {

using Words = std::vector<std::string>;

template <typename Action>
void expect_refused(Action&& action, std::initializer_list<std::string> parts) {
  try {
    action();
    ADD_FAILURE() << "was not refused; wanted a message with: " << *parts.begin();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kUsage);
    for (const std::string& part : parts)
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
          << "wanted '" << part << "' in: " << error.what();
  }
}

}  // namespace octavo::config
