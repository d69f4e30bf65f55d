#include "hub/http.h"

#include <arpa/inet.h>
#include <curl/curl.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "base/error.h"
#include "base/log.h"
#include "base/signals.h"
#include "base/text.h"

namespace octavo::hub {
namespace {

constexpr int kMaxRedirects = 8;
constexpr long kConnectSeconds = 30, kStallSeconds = 60;
constexpr const char* kAgent = "octavo/0.1 (libcurl)";

struct CurlText {
  char* text = nullptr;
  ~CurlText() { curl_free(text); }
};

std::string url_part(CURLU* url, CURLUPart part, unsigned flags = 0) {
  CurlText value;
  return curl_url_get(url, part, &value.text, flags) == CURLUE_OK ? value.text : "";
}

void* new_handle() {
  // Once per process; libcurl's own check is not safe when two threads begin.
  static const CURLcode kReady = curl_global_init(CURL_GLOBAL_DEFAULT);
  CURL* handle = kReady == CURLE_OK ? curl_easy_init() : nullptr;
  if (handle == nullptr)
    fail(ExitCode::kEnvironment, "hub", "libcurl could not be started; see its installation");
  return handle;
}

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && ::strncasecmp(a.data(), b.data(), a.size()) == 0;
}

int stop_wanted(void*, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return stop_requested() ? 1 : 0;
}

template <typename T>
void option(CURL* curl, CURLoption name, T value) {
  const CURLcode code = curl_easy_setopt(curl, name, value);
  if (code != CURLE_OK)
    fail(ExitCode::kEnvironment, "hub", "libcurl refused option ", static_cast<int>(name), ": ",
         curl_easy_strerror(code), "; wanted libcurl 7.85 or newer");
}

// What every request has, whatever is done with its answer.
void set_common(CURL* curl, const std::string& url, const Origin& origin) {
  option(curl, CURLOPT_URL, url.c_str());
  option(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  option(curl, CURLOPT_FOLLOWLOCATION, 0L);
  option(curl, CURLOPT_NOSIGNAL, 1L);
  option(curl, CURLOPT_USERAGENT, kAgent);
  option(curl, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  option(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  option(curl, CURLOPT_LOW_SPEED_TIME, kStallSeconds);
  option(curl, CURLOPT_NOPROGRESS, 0L);
  option(curl, CURLOPT_XFERINFOFUNCTION, &stop_wanted);
  // A proxy has no business between this machine and itself.
  if (origin.loopback()) option(curl, CURLOPT_NOPROXY, "*");
  // Companies with a proxy that opens TLS give their certificate this way; libcurl does not look.
  for (const char* name : {"CURL_CA_BUNDLE", "SSL_CERT_FILE"})  // the last one wins
    if (const char* file = std::getenv(name); file != nullptr && *file != '\0')
      option(curl, CURLOPT_CAINFO, file);
}

}  // namespace

// One request while it runs.
struct Http::Transfer {
  CURL* curl;
  const Sink& sink;
  uint64_t from, received = 0;
  bool part_answered = false;  // a Content-Range was seen
  uint64_t part_begin = 0;
  std::string refusal, error_code;
  std::exception_ptr thrown;

  static size_t on_header(char* data, size_t, size_t count, void* self) {
    static_cast<Transfer*>(self)->header(std::string_view(data, count));
    return count;
  }
  static size_t on_body(char* data, size_t, size_t count, void* self) {
    return static_cast<Transfer*>(self)->body(std::string_view(data, count)) ? count : 0;
  }

  void header(std::string_view line) {
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) return;
    const std::string_view name = line.substr(0, colon), value = trim(line.substr(colon + 1));
    if (equals_ignoring_case(name, "X-Error-Code")) error_code = value.substr(0, 64);
    if (!equals_ignoring_case(name, "Content-Range") || !value.starts_with("bytes ")) return;
    const char* begin = value.data() + std::strlen("bytes ");
    const auto result = std::from_chars(begin, value.data() + value.size(), part_begin);
    part_answered = result.ec == std::errc{};
  }

  bool body(std::string_view bytes) {
    long status = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    if (status != 200 && status != 206) {
      received += bytes.size();
      return received < (1u << 20);  // a page about an error: read a little, keep nothing
    }
    if (status == 206 && (!part_answered || part_begin != from)) {
      refusal = str("the server was asked for the part from byte ", from, " and sent another");
      return false;
    }
    try {
      refusal = sink((status == 206 ? from : 0) + received, bytes);
    } catch (...) {  // must not pass through libcurl's C code
      thrown = std::current_exception();
      return false;
    }
    received += bytes.size();
    return refusal.empty();
  }
};

Http::Http(std::string endpoint, std::string token)
    : endpoint_(std::move(endpoint)),
      token_(std::move(token)),
      curl_(new_handle(), [](void* handle) { curl_easy_cleanup(handle); }) {
  const Origin origin = origin_of(endpoint_);
  if (endpoint_.find_first_of("?#") != std::string::npos)
    fail(ExitCode::kUsage, "hub", "HF_ENDPOINT: wanted scheme, host and perhaps a path, found ",
         endpoint_);
  if (!token_.empty() && origin.scheme != "https" && !origin.loopback()) {
    log_warn(str("[hub] the token is not sent to ", endpoint_,
                 ": plain http can be read on the way; use an https endpoint"));
    token_.clear();
  }
}

Http::~Http() = default;

HttpResponse Http::get(const std::string& path, uint64_t from, const Sink& sink) {
  std::string url = endpoint_ + path;
  for (int redirects = 0; redirects <= kMaxRedirects; ++redirects) {
    std::string next;
    HttpResponse answer = one_request(url, from, sink, next);
    if (next.empty()) return answer;
    const Origin here = origin_of(url), there = origin_of(next);
    if (here.scheme == "https" && there.scheme != "https")
      return {answer.status, "the server sent us on from https to plain http", {}, false};
    url = std::move(next);
  }
  return {0, str("more than ", kMaxRedirects, " redirects"), {}, false};
}

HttpResponse Http::one_request(const std::string& url, uint64_t from, const Sink& sink,
                               std::string& next) {
  CURL* curl = curl_.get();
  curl_easy_reset(curl);  // keeps connections
  const Origin origin = origin_of(url);
  Transfer transfer{.curl = curl, .sink = sink, .from = from};
  char message[CURL_ERROR_SIZE] = {};
  set_common(curl, url, origin);
  option(curl, CURLOPT_ERRORBUFFER, message);
  option(curl, CURLOPT_HEADERFUNCTION, &Transfer::on_header);
  option(curl, CURLOPT_HEADERDATA, &transfer);
  option(curl, CURLOPT_WRITEFUNCTION, &Transfer::on_body);
  option(curl, CURLOPT_WRITEDATA, &transfer);
  const std::string range = std::to_string(from) + "-";
  if (from > 0) option(curl, CURLOPT_RANGE, range.c_str());
  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> headers(nullptr, curl_slist_free_all);
  if (!token_.empty() && origin == origin_of(endpoint_))
    headers.reset(curl_slist_append(nullptr, ("Authorization: Bearer " + token_).c_str()));
  option(curl, CURLOPT_HTTPHEADER, headers.get());

  const CURLcode code = curl_easy_perform(curl);
  if (transfer.thrown) std::rethrow_exception(transfer.thrown);
  HttpResponse answer;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &answer.status);
  answer.error_code = transfer.error_code;
  if (stop_requested())
    fail(ExitCode::kStopped, "hub", "download stopped by ", stop_reason(),
         "; run the same command again and it resumes where it stopped");
  const bool page_cut = code == CURLE_WRITE_ERROR && transfer.refusal.empty();
  if (!transfer.refusal.empty()) {
    answer.problem = transfer.refusal;
    answer.worth_retry = false;
  } else if (code != CURLE_OK && !page_cut) {
    answer.problem = message[0] != '\0' ? message : curl_easy_strerror(code);
    answer.worth_retry = code != CURLE_PEER_FAILED_VERIFICATION && code != CURLE_URL_MALFORMAT;
  } else if (answer.status >= 300 && answer.status < 400) {
    char* target = nullptr;
    curl_easy_getinfo(curl, CURLINFO_REDIRECT_URL, &target);
    if (target == nullptr) return {answer.status, "a redirect without an address", {}, false};
    next = target;
  }
  return answer;
}

bool Origin::loopback() const {
  in_addr v4{};
  if (::inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  return host == "localhost" || host == "[::1]";
}

Origin origin_of(const std::string& url) {
  const std::unique_ptr<CURLU, decltype(&curl_url_cleanup)> parsed(curl_url(), curl_url_cleanup);
  const bool read = curl_url_set(parsed.get(), CURLUPART_URL, url.c_str(), 0) == CURLUE_OK;
  Origin origin;
  if (read) {
    origin = {url_part(parsed.get(), CURLUPART_SCHEME), url_part(parsed.get(), CURLUPART_HOST),
              url_part(parsed.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT)};
    for (char& c : origin.host)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  const bool web = origin.scheme == "http" || origin.scheme == "https";
  // Not shown: an address that is refused may hold a password.
  if (!read || !web || !url_part(parsed.get(), CURLUPART_USER).empty())
    fail(ExitCode::kUsage, "hub",
         "wanted an http or https address without a user name, found another one; see HF_ENDPOINT");
  return origin;
}

std::string percent_encode(std::string_view text, bool keep_slashes) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') ||
                       (byte >= 'a' && byte <= 'z') || std::strchr("-._~", c) != nullptr;
    if ((plain && c != '\0') || (c == '/' && keep_slashes)) {
      result += c;
    } else {
      result += '%';
      result += kDigits[byte >> 4];
      result += kDigits[byte & 15];
    }
  }
  return result;
}

}  // namespace octavo::hub
