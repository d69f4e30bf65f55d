#pragma once
// The environment variables that the Hugging Face tools share, read in one place: HF_HOME,
// HF_HUB_CACHE, HF_ENDPOINT, HF_HUB_OFFLINE, HF_TOKEN, HF_TOKEN_PATH. Unset and empty are the same.

#include <string>

#include "base/file.h"

namespace octavo::hub {

struct Environment {
  fs::path cache;        // of models--org--name folders
  std::string endpoint;  // without a slash at its end
  bool offline = false;
};

Environment read_environment();

// The user's token, or "". Never printed: it goes into one request header and nowhere else.
std::string read_token();

}  // namespace octavo::hub
