#pragma once
// Addresses of objects, "s3://bucket/prefix/name", and of the server that keeps them.

#include <string>
#include <string_view>

namespace octavo::object_store {

bool is_s3_address(std::string_view text);  // "s3://…"

// "bucket/prefix/name" without slashes at its end. An error, which shows no user or password, for
// what is not s3://bucket/…; "." and ".." are no names there.
std::string path_of(const std::string& address);

// `name` below an address; refused when it could leave it.
std::string join(const std::string& address, std::string_view name);

// The last name of an address.
std::string leaf_of(const std::string& address);

// Where S3 is asked. Data and signed requests go over TLS, or over loopback: an address that would
// send them in clear is an error, which is here so that it comes before the first request.
struct Endpoint {
  std::string scheme = "https";
  std::string host;  // with its port; "": Amazon's own
};
Endpoint endpoint_of(const std::string& url);
Endpoint endpoint_from_environment();  // AWS_ENDPOINT_URL_S3, then AWS_ENDPOINT_URL

}  // namespace octavo::object_store
