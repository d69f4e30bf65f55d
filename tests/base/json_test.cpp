#include "base/json.h"

#include "expect_failure.h"
#include "scratch.h"

namespace octavo {
namespace {

std::string nested(int depth) {
  return std::string(static_cast<size_t>(depth), '[') +
         std::string(static_cast<size_t>(depth), ']');
}

TEST(ParseJson, Accepts) {
  const Json value = parse_json(R"({"a": [1, 2.5, "x", null, true], "b": {"a": -1}})", "test");
  EXPECT_EQ(value["a"].size(), 5u);
  EXPECT_EQ(value["b"]["a"], -1);
  EXPECT_EQ(parse_json("3", "test"), 3);
}

TEST(ParseJson, DepthIsBounded) {
  EXPECT_NO_THROW(parse_json(nested(64), "test"));
  expect_failure(ExitCode::kDamaged, "deeper than 64", [] { parse_json(nested(65), "test"); });
  // Deep enough to overflow the stack of a recursive parser.
  expect_failure(ExitCode::kDamaged, "deeper than 64",
                 [] { parse_json(nested(1'000'000), "test"); });
  std::string objects;
  for (int i = 0; i < 70; ++i) objects += "{\"a\":";
  expect_failure(ExitCode::kDamaged, "deeper", [&] { parse_json(objects, "test"); });
}

TEST(ParseJson, DuplicateKeysAreRefused) {
  expect_failure(ExitCode::kDamaged, "'a' appears twice",
                 [] { parse_json(R"({"a": 1, "b": 2, "a": 3})", "test"); });
  expect_failure(ExitCode::kDamaged, "'k' appears twice",
                 [] { parse_json(R"([{"x": {"k": 1, "k": 1}}])", "test"); });
  EXPECT_NO_THROW(parse_json(R"([{"a": 1}, {"a": 1}, {"b": {"a": 1}}])", "test"));
}

TEST(ParseJson, MalformedNamesTheSource) {
  for (const std::string text : {"", "{", "[1,]", "{\"a\" 1}", "nul", "1 2", "\"\xff\"", "[NaN]"})
    expect_failure(ExitCode::kDamaged, "file.json", [&] { parse_json(text, "file.json"); });
  expect_failure(ExitCode::kDamaged, "NUL",
                 [] { parse_json(std::string_view("1\0garbage", 9), "file.json"); });
}

TEST(ParseJson, SizeIsBounded) {
  const JsonLimits limits{.max_bytes = 10};
  EXPECT_NO_THROW(parse_json("[1, 2, 3] ", "test", limits));
  expect_failure(ExitCode::kDamaged, "at most 10",
                 [&] { parse_json("[1, 2, 3]  ", "test", limits); });
  const Scratch scratch;
  write_file_atomic(scratch / "big.json", "[1, 2, 3]  ");
  expect_failure(ExitCode::kDamaged, "big.json", [&] { read_json(scratch / "big.json", limits); });
}

TEST(JsonField, SaysWhatWasFound) {
  const Json object =
      parse_json(R"({"i": 3, "s": "x", "f": 1.5, "big": 18446744073709551615, "neg": -5})", "test");
  EXPECT_EQ(json_int(object, "i", "test"), 3);
  EXPECT_EQ(json_int(object, "neg", "test"), -5);
  EXPECT_EQ(json_string(object, "s", "test"), "x");
  expect_failure(ExitCode::kDamaged, "'none'", [&] { json_int(object, "none", "test"); });
  expect_failure(ExitCode::kDamaged, "found string", [&] { json_int(object, "s", "test"); });
  expect_failure(ExitCode::kDamaged, "found number", [&] { json_int(object, "f", "test"); });
  expect_failure(ExitCode::kDamaged, "out of range", [&] { json_int(object, "big", "test"); });
  expect_failure(ExitCode::kDamaged, "found number", [&] { json_string(object, "i", "test"); });
  expect_failure(ExitCode::kDamaged, "'i'", [&] { json_int(Json::array(), "i", "test"); });
}

}  // namespace
}  // namespace octavo
