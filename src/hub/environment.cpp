#include "hub/environment.h"

#include <algorithm>

#include "base/environment.h"
#include "base/error.h"
#include "base/secrets.h"
#include "base/text.h"

namespace octavo::hub {
namespace {

constexpr const char* kPublicHub = "https://huggingface.co";
constexpr size_t kMaxToken = 4096;

fs::path user_folder(std::string path) {
  const bool home = path == "~" || path.starts_with("~/");
  return home ? fs::path(environment_variable("HOME") + path.substr(1)) : fs::path(std::move(path));
}

fs::path hugging_face_home() {
  if (const std::string home = environment_variable("HF_HOME"); !home.empty())
    return user_folder(home);
  const std::string cache = environment_variable("XDG_CACHE_HOME");
  return user_folder(cache.empty() ? "~/.cache" : cache) / "huggingface";
}

bool is_true(std::string value) {
  std::transform(value.begin(), value.end(), value.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return value == "1" || value == "ON" || value == "YES" || value == "TRUE";
}

}  // namespace

Environment read_environment() {
  Environment result;
  const std::string cache = environment_variable("HF_HUB_CACHE");
  result.cache = cache.empty() ? hugging_face_home() / "hub" : user_folder(cache);
  result.endpoint = environment_variable("HF_ENDPOINT");
  if (result.endpoint.empty()) result.endpoint = kPublicHub;
  while (result.endpoint.ends_with('/')) result.endpoint.pop_back();
  result.offline = is_true(environment_variable("HF_HUB_OFFLINE"));
  return result;
}

std::string read_token() {
  std::string token(trim(environment_variable("HF_TOKEN")));
  if (token.empty()) {
    const std::string given = environment_variable("HF_TOKEN_PATH");
    const fs::path path = given.empty() ? hugging_face_home() / "token" : user_folder(given);
    std::error_code none;
    if (fs::is_regular_file(path, none)) token = trim(read_file(path, kMaxToken));
    if (!token.empty()) add_secret(token);
  }
  const bool printable = std::all_of(token.begin(), token.end(), [](unsigned char c) {
    return c > 0x20 && c < 0x7f;  // a line break would end the header and begin another
  });
  if (!printable || token.size() > kMaxToken)
    fail(ExitCode::kUsage, "hub",
         "wanted a token of printable characters in HF_TOKEN or the token file, found others (not "
         "shown); copy it again");
  return token;
}

}  // namespace octavo::hub
