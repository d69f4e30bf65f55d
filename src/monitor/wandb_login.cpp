#include "monitor/wandb_login.h"

#include <algorithm>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/secrets.h"

namespace octavo::monitor {
namespace {

constexpr size_t kMostNetrcBytes = 1 << 20;
constexpr std::string_view kPublicServer = "https://api.wandb.ai";
constexpr std::string_view kBlanks = " \t\r\n";

// Words of a netrc file: between blanks, or in quotes; a backslash takes the next character as it
// is. Comments and macros are left out.
class NetrcWords {
 public:
  explicit NetrcWords(std::string_view text) : text_(text) {}

  // Nothing at the end of the text.
  std::optional<std::string> next() {
    at_ = std::min(text_.size(), text_.find_first_not_of(kBlanks, at_));
    if (at_ == text_.size()) return std::nullopt;
    std::string word;
    char quote = '\0';
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (quote == '\0' && kBlanks.find(c) != kBlanks.npos) break;
      if (c == '\\' && quote != '\'' && at_ + 1 < text_.size())
        word += text_[++at_];
      else if (quote != '\0' ? c == quote : c == '"' || c == '\'')
        quote = quote == '\0' ? c : '\0';
      else
        word += c;
    }
    return word;
  }

  void skip_line() { at_ = std::min(text_.size(), text_.find('\n', at_)); }
  void skip_macro() {  // a macro ends at an empty line
    const size_t end = text_.find("\n\n", at_);
    at_ = end == text_.npos ? text_.size() : end + 2;
  }

 private:
  std::string_view text_;
  size_t at_ = 0;
};

// As wandb looks for it: NETRC, else ~/.netrc, else ~/_netrc.
fs::path netrc_path() {
  const std::string named = environment_variable("NETRC"), home = environment_variable("HOME");
  if (!named.empty()) {
    const bool in_home = named.starts_with("~/") && !home.empty();
    return in_home ? fs::path(home) / named.substr(2) : fs::path(named);
  }
  if (home.empty()) return {};
  std::error_code none;
  const fs::path usual = fs::path(home) / ".netrc", other = fs::path(home) / "_netrc";
  return !fs::exists(usual, none) && fs::exists(other, none) ? other : usual;
}

}  // namespace

std::optional<WandbMode> wandb_mode_named(std::string_view value) {
  if (value.empty() || value == "online" || value == "run" || value == "shared")
    return WandbMode::kOnline;
  if (value == "offline" || value == "dryrun") return WandbMode::kOffline;
  if (value == "disabled") return WandbMode::kDisabled;
  return std::nullopt;
}

WandbMode wandb_mode() {
  const std::string value = environment_variable("WANDB_MODE");
  if (const auto mode = wandb_mode_named(value)) return *mode;
  log_warn_once(str("W&B: WANDB_MODE: wanted online, offline or disabled, found ", value,
                    "; the run is kept offline"));
  return WandbMode::kOffline;
}

std::string netrc_password(std::string_view text, std::string_view machine) {
  NetrcWords words(text);
  bool ours = false;
  while (const auto word = words.next()) {
    if (word->starts_with('#')) {
      words.skip_line();
    } else if (*word == "macdef") {
      words.skip_macro();
    } else if (*word == "default") {
      ours = false;
    } else if (*word == "machine") {
      ours = words.next().value_or("") == machine;
    } else if (*word == "login" || *word == "user" || *word == "account") {
      words.next();
    } else if (*word == "password") {
      std::string password = words.next().value_or("");
      if (ours && !password.empty()) return password;
    }
  }
  return "";
}

std::string netrc_machine(std::string_view address) {
  const size_t scheme = address.find("://");
  if (scheme != address.npos) address.remove_prefix(scheme + 3);
  return std::string(address.substr(0, address.find_first_of("/?#")));
}

std::string wandb_key_place() {
  if (!environment_variable("WANDB_API_KEY").empty()) return "WANDB_API_KEY";
  const fs::path path = netrc_path();
  std::error_code none;
  if (path.empty() || !fs::exists(path, none)) return "";
  const std::string address = environment_variable("WANDB_BASE_URL");
  try {
    const std::string password =
        netrc_password(read_file(path, kMostNetrcBytes),
                       netrc_machine(address.empty() ? kPublicServer : std::string_view(address)));
    if (password.empty()) return "";
    add_secret(password);
    return path.string();
  } catch (const Error& error) {
    log_warn(str("W&B: the netrc file cannot be read: ", error.what()));
    return "";
  }
}

}  // namespace octavo::monitor
