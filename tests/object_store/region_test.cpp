// A request to S3 that fails before the first answer: the process ends with its own exit code.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdio>
#include <string>

#include "base/error.h"
#include "object_store/object_store.h"

namespace octavo::object_store {
namespace {

// Prints the error and gives its exit code; 0 when there was none.
int list_once() {
  try {
    s3()->list("s3://no-such-bucket-zz/team/run");
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  }
  return 0;
}

// Nothing says the region: it is asked for, and not found with or without a network.
void leave_no_region() {
  for (const char* name : {"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL",
                           "AWS_ENDPOINT_URL_S3", "AWS_PROFILE"})
    ::unsetenv(name);
  ::setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
  ::setenv("AWS_ACCESS_KEY_ID", "someone", 1);
  ::setenv("AWS_SECRET_ACCESS_KEY", "a-secret-of-nobody", 1);
}

TEST(S3DeathTest, EndsInOrderWhenTheRegionIsNotFoundAndAsksAgain) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // the module starts threads
  EXPECT_EXIT(
      {
        leave_no_region();
        const int first = list_once();
        std::fprintf(stderr, "again: ");
        const int second = list_once();
        std::exit(first == second ? first : 99);
      },
      testing::ExitedWithCode(static_cast<int>(ExitCode::kEnvironment)),
      "again: .*cannot find the region of s3://no-such-bucket-zz/team/run");
}

}  // namespace
}  // namespace octavo::object_store
