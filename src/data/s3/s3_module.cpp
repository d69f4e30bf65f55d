#include "data/s3/s3_module.h"

#include <arrow/buffer.h>
#include <arrow/filesystem/s3fs.h>
#include <arrow/io/interfaces.h>
#include <arrow/util/key_value_metadata.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>

#include "base/environment.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"

namespace octavo::data {
namespace {

constexpr std::string_view kScheme = "s3://";

// Messages of Arrow name buckets, keys and hosts, never credentials.
[[noreturn]] void s3_failed(const std::string& address, const arrow::Status& status) {
  fail(ExitCode::kEnvironment, "data", "cannot read ", address, ": ", status.message(),
       "; check the address, AWS_ENDPOINT_URL, AWS_REGION and the credentials in "
       "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN");
}

template <typename T>
T value_of(const std::string& address, arrow::Result<T> result) {
  if (!result.ok()) s3_failed(address, result.status());
  return std::move(result).ValueUnsafe();
}

// "bucket/key" of an address.
std::string path_of(const std::string& address) {
  std::string path = address.substr(kScheme.size());
  const std::string bucket = path.substr(0, path.find('/'));
  if (bucket.find('@') != std::string::npos || bucket.find(':') != std::string::npos)
    fail(ExitCode::kUsage, "data",
         "wanted s3://bucket/key, found a user or a port in the address (not shown); give "
         "credentials in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the host in "
         "AWS_ENDPOINT_URL");
  if (bucket.empty())
    fail(ExitCode::kUsage, "data", "wanted s3://bucket/key, found '", address, "'; name a bucket");
  while (!path.empty() && path.back() == '/') path.pop_back();
  return path;
}

void set_endpoint(arrow::fs::S3Options& options) {
  std::string endpoint = environment_variable("AWS_ENDPOINT_URL_S3");
  if (endpoint.empty()) endpoint = environment_variable("AWS_ENDPOINT_URL");
  if (endpoint.empty()) return;
  const size_t scheme = endpoint.find("://");
  if (scheme != std::string::npos) options.scheme = endpoint.substr(0, scheme);
  options.endpoint_override = endpoint.substr(scheme == std::string::npos ? 0 : scheme + 3);
  while (options.endpoint_override.ends_with('/')) options.endpoint_override.pop_back();
}

void set_region(const std::string& address, arrow::fs::S3Options& options) {
  options.region = environment_variable("AWS_REGION");
  if (options.region.empty()) options.region = environment_variable("AWS_DEFAULT_REGION");
  if (!options.region.empty()) return;
  const std::string path = path_of(address);
  options.region =
      options.endpoint_override.empty()
          ? value_of(address, arrow::fs::ResolveS3BucketRegion(path.substr(0, path.find('/'))))
          : "us-east-1";
}

using FileSystem = std::shared_ptr<arrow::fs::S3FileSystem>;

// Never destroyed: finish_at_exit lets go of it.
FileSystem& shared_file_system() {
  static auto* made = new FileSystem;
  return *made;
}

// Arrow must be told before its own static objects go, some of which come to life with the first
// request. What is registered last runs first, so this is called behind every kind of request.
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

FileSystem file_system(const std::string& address) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  FileSystem& made = shared_file_system();
  if (made) return made;
  arrow::fs::S3GlobalOptions global = arrow::fs::S3GlobalOptions::Defaults();
  global.log_level = arrow::fs::S3LogLevel::Off;
  if (const arrow::Status status = arrow::fs::InitializeS3(global); !status.ok())
    s3_failed(address, status);
  finish_at_exit();
  arrow::fs::S3Options options;
  const std::string key = environment_variable("AWS_ACCESS_KEY_ID");
  const std::string secret = environment_variable("AWS_SECRET_ACCESS_KEY");
  if (key.empty() || secret.empty()) {
    log_info("data: no AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: asking S3 without a name");
    options.ConfigureAnonymousCredentials();
  } else {
    options.ConfigureAccessKey(key, secret, environment_variable("AWS_SESSION_TOKEN"));
  }
  set_endpoint(options);
  set_region(address, options);
  made = value_of(address, arrow::fs::S3FileSystem::Make(options));
  finish_at_exit();
  return made;
}

// Stands for the content, which is not read for its hash alone.
std::string tag_of(const std::string& address, arrow::io::RandomAccessFile& file) {
  const auto metadata = value_of(address, file.ReadMetadata());
  const std::string tag = metadata ? metadata->Get("ETag").ValueOr("") : "";
  const std::string text = str("s3 ", tag, ' ', value_of(address, file.GetSize()));
  return hash_bytes(std::as_bytes(std::span(text.data(), text.size())));
}

class S3Input : public InputFile {
 public:
  explicit S3Input(const Source& source)
      : address_(source.path.string()),
        file_(value_of(address_, file_system(address_)->OpenInputFile(path_of(address_)))),
        bytes_(source.bytes) {
    if (tag_of(address_, *file_) != source.hash)
      fail(ExitCode::kUsage, "data", address_,
           " changed while it was being prepared; run the command again");
  }
  std::string read(uint64_t offset, uint64_t bytes) const override {
    const uint64_t wanted = std::min(bytes, bytes_ - std::min(offset, bytes_));
    std::string text(wanted, '\0');
    const int64_t got = value_of(
        address_,
        file_->ReadAt(static_cast<int64_t>(offset), static_cast<int64_t>(wanted), text.data()));
    if (!read_before_.exchange(true)) finish_at_exit();
    if (static_cast<uint64_t>(got) != wanted)
      fail(ExitCode::kEnvironment, "data", "cannot read ", address_, " at byte ", offset,
           ": it ends early; run the command again");
    return text;
  }

 private:
  std::string address_;
  std::shared_ptr<arrow::io::RandomAccessFile> file_;
  uint64_t bytes_;
  mutable std::atomic<bool> read_before_{false};
};

Source source_of(const arrow::fs::FileInfo& info, const std::string& base) {
  Source source;
  const std::string address = std::string(kScheme) + info.path();
  source.path = address;
  source.name = base;
  source.bytes = static_cast<uint64_t>(info.size());
  source.modified_ns = info.mtime().time_since_epoch().count();
  const auto file = value_of(address, file_system(address)->OpenInputFile(info.path()));
  source.hash = tag_of(address, *file);
  return source;
}

void list(const std::string& address, std::vector<Source>& out) {
  const std::string path = path_of(address);
  const auto system = file_system(address);
  const arrow::fs::FileInfo info = value_of(address, system->GetFileInfo(path));
  finish_at_exit();
  const std::string leaf = path.substr(path.rfind('/') + 1);
  if (info.type() == arrow::fs::FileType::NotFound)
    fail(ExitCode::kUsage, "data", "wanted an object or a prefix, found nothing at ", address,
         "; check the name");
  if (info.IsFile()) {
    out.push_back(source_of(info, leaf));
    return;
  }
  arrow::fs::FileSelector selector;
  selector.base_dir = path;
  selector.recursive = true;
  std::vector<arrow::fs::FileInfo> found = value_of(address, system->GetFileInfo(selector));
  std::sort(found.begin(), found.end(),
            [](const auto& a, const auto& b) { return a.path() < b.path(); });
  for (const arrow::fs::FileInfo& item : found)
    if (item.IsFile() && item.size() > 0)
      out.push_back(source_of(item, leaf + item.path().substr(path.size())));
}

}  // namespace
}  // namespace octavo::data

void octavo_s3_list(const std::string* address, std::vector<octavo::data::Source>* out) {
  octavo::data::list(*address, *out);
  octavo::data::finish_at_exit();
}

octavo::data::InputFile* octavo_s3_open(const octavo::data::Source* source) {
  return std::make_unique<octavo::data::S3Input>(*source).release();
}
