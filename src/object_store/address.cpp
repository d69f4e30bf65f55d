#include "object_store/address.h"

#include "base/environment.h"
#include "base/error.h"
#include "base/printable.h"
#include "hub/http.h"

namespace octavo::object_store {
namespace {

constexpr std::string_view kScheme = "s3://";
constexpr const char* kModule = "object_store";

std::string quoted(std::string_view text) {
  return "'" + printable(text) + "'";
}

bool is_name(std::string_view name) {
  if (name.empty() || name == "." || name == "..") return false;
  for (const char c : name)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) return false;
  return true;
}

// Of everything between the slashes.
bool has_names_only(std::string_view path) {
  while (true) {
    const size_t slash = path.find('/');
    if (!is_name(path.substr(0, slash))) return false;
    if (slash == std::string_view::npos) return true;
    path.remove_prefix(slash + 1);
  }
}

}  // namespace

bool is_s3_address(std::string_view text) {
  return text.starts_with(kScheme);
}

std::string path_of(const std::string& address) {
  if (!is_s3_address(address))
    fail(ExitCode::kUsage, kModule, "wanted s3://bucket/prefix, found ", quoted(address));
  std::string path = address.substr(kScheme.size());
  const std::string bucket = path.substr(0, path.find('/'));
  if (bucket.find('@') != std::string::npos || bucket.find(':') != std::string::npos)
    fail(ExitCode::kUsage, kModule,
         "wanted s3://bucket/prefix, found a user or a port in the address (not shown); give "
         "credentials in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, the host in "
         "AWS_ENDPOINT_URL");
  if (bucket.empty())
    fail(ExitCode::kUsage, kModule, "wanted s3://bucket/prefix, found ", quoted(address),
         "; name a bucket");
  while (path.ends_with('/')) path.pop_back();
  if (!has_names_only(path))
    fail(ExitCode::kUsage, kModule, "wanted s3://bucket/prefix with a name between slashes, found ",
         quoted(address));
  return path;
}

std::string join(const std::string& address, std::string_view name) {
  if (!has_names_only(name))
    fail(ExitCode::kDamaged, kModule, "wanted a name below ", address, ", found ", quoted(name));
  std::string joined = address;
  while (joined.ends_with('/')) joined.pop_back();
  return joined + "/" + std::string(name);
}

std::string leaf_of(const std::string& address) {
  const std::string path = path_of(address);
  return path.substr(path.rfind('/') + 1);
}

Endpoint endpoint_of(const std::string& url) {
  Endpoint endpoint;
  if (url.empty()) return endpoint;
  constexpr const char* kVariables = "AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL";
  if (url.find("://") == std::string::npos)
    fail(ExitCode::kUsage, kModule, "wanted https://host:port in ", kVariables,
         ", found an address without https:// (not shown); write https:// before it");
  hub::Origin origin;
  try {
    origin = hub::origin_of(url);
  } catch (const Error&) {
    fail(ExitCode::kUsage, kModule, "wanted https://host:port in ", kVariables,
         ", without a user name, found another address (not shown)");
  }
  if (origin.scheme == "http" && !origin.loopback())
    fail(ExitCode::kUsage, kModule, "wanted https:// in ", kVariables, ", found http://",
         origin.host, ":", origin.port,
         ": data and credentials would be sent in clear; only 127.0.0.0/8, ::1 and localhost may "
         "be asked without TLS");
  endpoint.scheme = origin.scheme;
  endpoint.host = url.substr(url.find("://") + 3);
  while (endpoint.host.ends_with('/')) endpoint.host.pop_back();
  return endpoint;
}

Endpoint endpoint_from_environment() {
  std::string url = environment_variable("AWS_ENDPOINT_URL_S3");
  if (url.empty()) url = environment_variable("AWS_ENDPOINT_URL");
  return endpoint_of(url);
}

}  // namespace octavo::object_store
