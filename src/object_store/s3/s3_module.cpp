#include "object_store/s3/s3_module.h"

#include <arrow/buffer.h>
#include <arrow/filesystem/s3fs.h>
#include <arrow/io/interfaces.h>
#include <arrow/util/key_value_metadata.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <mutex>

#include "base/environment.h"
#include "base/error.h"
#include "base/log.h"
#include "base/secrets.h"
#include "object_store/address.h"

namespace octavo::object_store {
namespace {

constexpr const char* kModule = "object_store";
// Of one request, by the SDK; whoever asks tries again later, and longer.
constexpr int64_t kAttempts = 3;
constexpr double kConnectSeconds = 10;
// Arrow's parts have 10 MiB, of which S3 takes 10,000.
constexpr uint64_t kPartBytes = 10 << 20, kMaxObject = kPartBytes * 10'000;
// What may be on the way at a time: Arrow sends in the background and would take all of a file.
constexpr uint64_t kInFlight = 8 * kPartBytes;

// No credentials were found. When a request fails then, the instance's role may only have been away
// as they were looked for: the next request looks again.
std::atomic<bool> without_credentials{false}, look_again{false};

// Messages of Arrow name buckets, keys and hosts, never credentials.
[[noreturn]] void s3_failed(const char* action, const std::string& address,
                            const arrow::Status& status) {
  if (without_credentials) look_again = true;
  fail(ExitCode::kEnvironment, kModule, "cannot ", action, " ", address, ": ", status.message(),
       "; check the address, AWS_ENDPOINT_URL, AWS_REGION, AWS_CA_BUNDLE and the credentials "
       "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a profile, or a role)",
       without_credentials ? ", of which none were found; the next attempt looks for them again"
                           : "");
}

void check(const char* action, const std::string& address, const arrow::Status& status) {
  if (!status.ok()) s3_failed(action, address, status);
}

template <typename T>
T value_of(const char* action, const std::string& address, arrow::Result<T> result) {
  check(action, address, result.status());
  return std::move(result).ValueUnsafe();
}

// Arrow's libraries were built on another Linux: they look for certificates where that one has
// them.
std::string certificates() {
  for (const char* name : {"AWS_CA_BUNDLE", "SSL_CERT_FILE"})
    if (std::string file = environment_variable(name); !file.empty()) return file;
  constexpr std::array kFiles = {"/etc/ssl/certs/ca-certificates.crt",
                                 "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/ca-bundle.pem",
                                 "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
                                 "/etc/ssl/cert.pem"};
  std::error_code none;
  for (const char* file : kFiles)
    if (std::filesystem::exists(file, none)) return file;
  return "";
}

std::string region_of(const std::string& address, const arrow::fs::S3Options& options) {
  for (const char* name : {"AWS_REGION", "AWS_DEFAULT_REGION"})
    if (std::string region = environment_variable(name); !region.empty()) return region;
  if (!options.endpoint_override.empty()) return "us-east-1";
  const std::string path = path_of(address);
  return value_of("find the region of", address,
                  arrow::fs::ResolveS3BucketRegion(path.substr(0, path.find('/'))));
}

// A role that is named and gives nothing is away: to ask without a name would be of no use.
void refuse_missing_role(const std::string& address) {
  for (const char* name :
       {"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI"})
    if (!environment_variable(name).empty())
      fail(ExitCode::kEnvironment, kModule, "cannot ask ", address,
           ": wanted the credentials of the role that ", name,
           " names, found none; see whether its server can be reached, or unset ", name);
}

void set_credentials(arrow::fs::S3Options& options, const std::string& address) {
  options.ConfigureDefaultCredentials();
  without_credentials = options.GetAccessKey().empty();
  if (without_credentials) {
    refuse_missing_role(address);
    static std::once_flag said;
    std::call_once(said, [] {
      log_info(
          "object_store: no credentials in the environment, a profile, or a role: asking S3 "
          "without a name");
    });
    options.ConfigureAnonymousCredentials();
    return;
  }
  add_secret(options.GetSecretKey());
  if (const std::string token = options.GetSessionToken(); !token.empty()) add_secret(token);
}

using FileSystem = std::shared_ptr<arrow::fs::S3FileSystem>;

// Never destroyed: finish_at_exit lets go of it.
FileSystem& shared_file_system() {
  static auto* made = new FileSystem;
  return *made;
}

// Arrow must be told before its own static objects go, some of which come to life with the first
// request. What is registered last runs first, so a Request calls this at its end.
void finish_at_exit() {
  std::atexit([] {
    static bool done = false;
    if (done) return;
    done = true;
    shared_file_system().reset();
    // Nothing can be done about a failure at the very end.
    static_cast<void>(arrow::fs::EnsureS3Finalized().ok());
  });
}

// Around what asks S3. A kind of request has a flag of its own: one that failed may have made
// fewer of Arrow's static objects than the next, so its failures count as well as its first
// success.
class Request {
 public:
  explicit Request(std::atomic<bool>& succeeded)
      : succeeded_(succeeded), exceptions_(std::uncaught_exceptions()) {}
  Request(const Request&) = delete;
  Request& operator=(const Request&) = delete;
  ~Request() {
    const bool failed = std::uncaught_exceptions() > exceptions_;
    if (failed || !succeeded_.exchange(true)) finish_at_exit();
  }

 private:
  std::atomic<bool>& succeeded_;
  int exceptions_;
};

// Once for the process; the caller has the mutex.
void begin(const std::string& address) {
  if (arrow::fs::IsS3Initialized()) return;
  arrow::fs::S3GlobalOptions global = arrow::fs::S3GlobalOptions::Defaults();
  global.log_level = arrow::fs::S3LogLevel::Off;
  check("begin with", address, arrow::fs::InitializeS3(global));
}

FileSystem file_system(const std::string& address) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  FileSystem& made = shared_file_system();
  if (made && !look_again.exchange(false)) return made;
  static std::atomic<bool> made_before{false};
  const Request request(made_before);
  begin(address);
  arrow::fs::S3Options options;
  const Endpoint endpoint = endpoint_from_environment();
  options.scheme = endpoint.scheme;
  options.endpoint_override = endpoint.host;
  options.tls_ca_file_path = certificates();
  options.connect_timeout = kConnectSeconds;
  options.retry_strategy = arrow::fs::S3RetryStrategy::GetAwsStandardRetryStrategy(kAttempts);
  options.allow_delayed_open = true;  // one request for a small object
  set_credentials(options, address);
  options.region = region_of(address, options);
  made = value_of("ask", address, arrow::fs::S3FileSystem::Make(options));
  return made;
}

class S3Reader : public ObjectReader {
 public:
  explicit S3Reader(const std::string& address)
      : address_(address),
        file_(value_of("read", address, file_system(address)->OpenInputFile(path_of(address)))),
        bytes_(static_cast<uint64_t>(value_of("read", address, file_->GetSize()))) {}

  uint64_t bytes() const override { return bytes_; }

  std::string tag() const override {
    const auto metadata = value_of("read", address_, file_->ReadMetadata());
    return metadata ? metadata->Get("ETag").ValueOr("") : "";
  }

  std::string read(uint64_t offset, uint64_t bytes) const override {
    static std::atomic<bool> read_before{false};
    const Request request(read_before);
    std::string text(bytes, '\0');
    const int64_t got = value_of(
        "read", address_,
        file_->ReadAt(static_cast<int64_t>(offset), static_cast<int64_t>(bytes), text.data()));
    if (static_cast<uint64_t>(got) != bytes)
      fail(ExitCode::kEnvironment, kModule, "cannot read ", address_, " at byte ", offset,
           ": it ends early; run the command again");
    return text;
  }

 private:
  std::string address_;
  std::shared_ptr<arrow::io::RandomAccessFile> file_;
  uint64_t bytes_;
};

void write_all(arrow::io::OutputStream& stream, const std::string& address,
               const ObjectStore::NextBytes& next) {
  uint64_t total = 0, in_flight = 0;
  for (auto bytes = next(); !bytes.empty(); bytes = next()) {
    total += bytes.size();
    if (total > kMaxObject)
      fail(ExitCode::kUsage, kModule, "cannot write ", address, ": wanted at most ", kMaxObject,
           " bytes in an object, found more; more ranks make smaller files");
    check("write", address, stream.Write(bytes.data(), static_cast<int64_t>(bytes.size())));
    in_flight += bytes.size();
    if (in_flight < kInFlight) continue;
    check("write", address, stream.Flush());
    in_flight = 0;
  }
}

arrow::fs::FileInfo info_of(const char* action, const std::string& address) {
  static std::atomic<bool> asked_before{false};
  const Request request(asked_before);
  return value_of(action, address, file_system(address)->GetFileInfo(path_of(address)));
}

class S3Store : public ObjectStore {
 public:
  std::vector<Object> list(const std::string& address) override {
    static std::atomic<bool> listed_before{false};
    const arrow::fs::FileInfo info = info_of("list", address);
    if (info.type() == arrow::fs::FileType::NotFound) return {};
    if (info.IsFile()) return {object_of(info, "")};
    const Request request(listed_before);
    const std::string path = path_of(address);
    arrow::fs::FileSelector selector;
    selector.base_dir = path;
    selector.recursive = true;
    selector.allow_not_found = true;  // removed meanwhile
    std::vector<Object> objects;
    for (const arrow::fs::FileInfo& item :
         value_of("list", address, file_system(address)->GetFileInfo(selector)))
      if (item.IsFile() && item.path().size() > path.size() + 1)
        objects.push_back(object_of(item, item.path().substr(path.size() + 1)));
    std::ranges::sort(objects, {}, &Object::name);
    return objects;
  }

  std::unique_ptr<ObjectReader> open(const std::string& address) override {
    static std::atomic<bool> opened_before{false};
    const Request request(opened_before);
    return std::make_unique<S3Reader>(address);
  }

  void put(const std::string& address, const NextBytes& next) override {
    static std::atomic<bool> put_before{false};
    const Request request(put_before);
    const auto stream = value_of("write", address,
                                 file_system(address)->OpenOutputStream(path_of(address), nullptr));
    try {
      write_all(*stream, address, next);
      check("write", address, stream->Close());
    } catch (...) {
      // Its destructor would make an object of what is there. When the server cannot be told, the
      // parts stay on it, invisible, until its lifecycle rule removes them.
      static_cast<void>(stream->Abort().ok());
      throw;
    }
  }

  void remove(const std::string& address) override {
    static std::atomic<bool> removed_before{false};
    if (!info_of("remove", address).IsFile()) return;
    const Request request(removed_before);
    check("remove", address, file_system(address)->DeleteFile(path_of(address)));
  }

  void remove_below(const std::string& address) override {
    static std::atomic<bool> removed_before{false};
    const std::string path = path_of(address);
    if (path.find('/') == std::string::npos)
      fail(ExitCode::kUsage, kModule, "wanted a prefix to empty, found the whole bucket ", address);
    if (info_of("remove", address).type() != arrow::fs::FileType::Directory) return;
    const Request request(removed_before);
    check("remove", address, file_system(address)->DeleteDir(path));
  }

 private:
  static Object object_of(const arrow::fs::FileInfo& info, std::string name) {
    return {std::move(name), static_cast<uint64_t>(std::max<int64_t>(info.size(), 0)),
            info.mtime().time_since_epoch().count()};
  }
};

}  // namespace
}  // namespace octavo::object_store

octavo::object_store::ObjectStore* octavo_s3_store() {
  return std::make_unique<octavo::object_store::S3Store>().release();
}
