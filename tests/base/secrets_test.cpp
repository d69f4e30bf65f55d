#include "base/secrets.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>

namespace octavo {
namespace {

TEST(Secrets, AreKnownByTheirNames) {
  for (const char* name : {"HF_TOKEN", "hf_hub_token", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY",
                           "AWS_ACCESS_KEY_ID", "OCTAVO_RENDEZVOUS_SECRET", "X-Amz-Signature",
                           "wandb.api_key", "DB_PASSWORD", "token", "sig"})
    EXPECT_TRUE(is_secret_name(name)) << name;
  for (const char* name : {"", "OCTAVO_RENDEZVOUS_SECRET_FILE", "HF_TOKEN_PATH", "MAX_TOKENS",
                           "TOKENIZERS_PARALLELISM", "num_key_value_heads", "run_name", "KEYBOARD"})
    EXPECT_FALSE(is_secret_name(name)) << name;
}

TEST(Secrets, LeaveAddresses) {
  EXPECT_EQ(without_secrets("cannot read https://me:word@host/x and s3://k:s@b: 403"),
            "cannot read https://***@host/x and s3://***@b: 403");
  EXPECT_EQ(without_secrets("'https://host/x?a=1&token=abc&b=2#y?sig=q'"),
            "'https://host/x?a=1&token=***&b=2#y?sig=***'");
  EXPECT_EQ(without_secrets("key 'x.jsonl?X-Amz-Signature=abc'"),
            "key 'x.jsonl?X-Amz-Signature=***'");
  for (const char* plain : {"https://host/a@b", "what? token = 3", "mail me@example.org", "a?b=c",
                            "s3://bucket/key", "https://host/?page=2", "://", "?", "?token="}) {
    EXPECT_EQ(without_secrets(plain), plain);
    EXPECT_FALSE(has_secret_address(plain)) << plain;
  }
  EXPECT_TRUE(has_secret_address("http://me:x@proxy:1"));
}

TEST(Secrets, ThatWereAddedAreNotSaid) {
  EXPECT_EQ(without_secrets("it is abcdefgh12345"), "it is abcdefgh12345");
  add_secret("abcdefgh12345");
  add_secret("short");
  EXPECT_EQ(without_secrets("abcdefgh12345"), "***");
  EXPECT_EQ(without_secrets("it is abcdefgh12345, abcdefgh12345 or short, abcdefgh1234"),
            "it is ***, *** or short, abcdefgh1234");
}

TEST(Secrets, AreNotInCores) {
  add_secret("another of some length");
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_CORE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, 0u);
  std::ifstream file("/proc/self/coredump_filter");
  if (std::string filter; file >> filter)
    EXPECT_EQ(filter.find_first_not_of('0'), filter.npos) << filter;
}

}  // namespace
}  // namespace octavo
