// Addresses of objects and servers: what is refused before anything is sent.
#include "object_store/address.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.h"

namespace octavo::object_store {
namespace {

std::string refusal(const std::function<void()>& body, ExitCode code = ExitCode::kUsage) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was refused";
  return "";
}

TEST(Address, IsABucketAndNames) {
  EXPECT_TRUE(is_s3_address("s3://bucket/a"));
  EXPECT_FALSE(is_s3_address("/s3/bucket"));
  EXPECT_EQ(path_of("s3://bucket"), "bucket");
  EXPECT_EQ(path_of("s3://bucket/some/run///"), "bucket/some/run");
  EXPECT_EQ(leaf_of("s3://bucket/some/run/"), "run");
  EXPECT_EQ(join("s3://bucket/some/", "a/b"), "s3://bucket/some/a/b");
}

TEST(Address, RefusesWhatIsNone) {
  for (const char* text : {"bucket/a", "s3://", "s3:///a", "s3://bucket//a", "s3://bucket/../other",
                           "s3://bucket/./a", "s3://bucket/a\nb"})
    refusal([&] { path_of(text); });
}

TEST(Address, ShowsNoPassword) {
  for (const char* text : {"s3://user:hunter2@bucket/a", "s3://bucket:hunter2/a"})
    EXPECT_EQ(refusal([&] { path_of(text); }).find("hunter2"), std::string::npos);
  EXPECT_EQ(refusal([] { endpoint_of("https://user:hunter2@host"); }).find("hunter2"),
            std::string::npos);
}

TEST(Address, NamesOfAServerStayBelow) {
  for (const char* name : {"..", "a/../../b", "", "/a", "a//b", "a/", "a\x01"})
    refusal([&] { join("s3://bucket/run", name); }, ExitCode::kDamaged);
}

TEST(Endpoint, IsTlsOrLoopback) {
  EXPECT_EQ(endpoint_of("").scheme, "https");
  EXPECT_EQ(endpoint_of("").host, "");
  for (const char* url : {"minio:9000", "minio.local", "user:hunter2@minio", "127.0.0.1:9000"}) {
    const std::string message = refusal([&] { endpoint_of(url); });
    EXPECT_NE(message.find("write https:// before it"), std::string::npos) << message;
    EXPECT_EQ(message.find(url), std::string::npos) << message;
  }
  EXPECT_EQ(endpoint_of("https://minio:9000/").host, "minio:9000");
  for (const char* url :
       {"http://127.0.0.1:9000", "http://localhost:9000", "http://[::1]:9000", "http://127.8.9.1"})
    EXPECT_EQ(endpoint_of(url).scheme, "http") << url;
  for (const char* url :
       {"http://minio:9000", "http://10.0.0.1", "http://127.0.0.1.example.com",
        "http://localhost.example.com", "http://128.0.0.1", "HTTP://example.com", "http://[::2]"})
    EXPECT_NE(refusal([&] { endpoint_of(url); }).find("in clear"), std::string::npos) << url;
  for (const char* url : {"ftp://host", "http://", "file:///etc/passwd"})
    refusal([&] { endpoint_of(url); });
}

}  // namespace
}  // namespace octavo::object_store
