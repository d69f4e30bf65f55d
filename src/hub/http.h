#pragma once
// HTTP as the hub needs it, over libcurl. Redirects are followed here and not by libcurl, because
// the token may go to the endpoint only: not to another host or port, and not over plain http
// except to this machine.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace octavo::hub {

struct HttpResponse {
  long status = 0;          // 0: no answer, see `problem`
  std::string problem;      // why there was none, or why it broke off
  std::string error_code;   // X-Error-Code: GatedRepo, RepoNotFound, RevisionNotFound, …
  bool worth_retry = true;  // of a problem

  bool good() const { return problem.empty() && (status == 200 || status == 206); }
  bool may_pass() const {  // worth another try
    return problem.empty() ? status == 429 || status == 408 || status >= 500 : worth_retry;
  }
};

// Takes `bytes`, which stand at `offset` of the file; returns "" or why they are refused.
using Sink = std::function<std::string(uint64_t offset, std::string_view bytes)>;

class Http {
 public:
  // `token` may be empty.
  Http(std::string endpoint, std::string token);
  ~Http();
  Http(const Http&) = delete;
  Http& operator=(const Http&) = delete;

  // `path` begins with a slash and is percent-encoded. The body goes to `sink` from byte `from` on,
  // or from 0 when the server does not serve parts.
  HttpResponse get(const std::string& path, uint64_t from, const Sink& sink);

  const std::string& endpoint() const { return endpoint_; }
  bool has_token() const { return !token_.empty(); }

 private:
  struct Transfer;
  HttpResponse one_request(const std::string& url, uint64_t from, const Sink& sink,
                           std::string& next);

  std::string endpoint_, token_;
  std::unique_ptr<void, void (*)(void*)> curl_;
};

// What the rules above are made of.
struct Origin {
  std::string scheme, host, port;
  bool operator==(const Origin&) const = default;
  bool loopback() const;  // localhost, 127.0.0.0/8 or ::1, as written
};
// Fails for an address that is not http or https, or holds a user name.
Origin origin_of(const std::string& url);

// Percent-encodes everything but letters, digits and -._~; keeps '/' when told to.
std::string percent_encode(std::string_view text, bool keep_slashes);

}  // namespace octavo::hub
