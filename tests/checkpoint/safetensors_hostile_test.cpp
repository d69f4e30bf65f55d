#include <sys/stat.h>

#include <random>

#include "checkpoint/safetensors.h"
#include "checkpoint/test_util.h"

namespace octavo::checkpoint {
namespace {

struct Hostile {
  const char* what;
  std::string file;
  const char* wanted;  // a part of the message
};

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return '"' + name + R"(":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" +
         offsets + "}";
}

// One F32 tensor "a" of two elements, or what a case makes of it, before 8 bytes of data.
std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets,
                size_t data = 8) {
  return raw_safetensors("{" + entry("a", dtype, shape, offsets) + "}", data);
}

std::string two(const std::string& first, const std::string& second, size_t data) {
  return raw_safetensors(
      "{" + entry("a", "U8", "[4]", first) + "," + entry("b", "U8", "[4]", second) + "}", data);
}

std::string length_only(uint64_t length, const std::string& rest) {
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) file[i] = static_cast<char>(length >> (8 * i));
  return file + rest;
}

std::string repeat(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

std::vector<Hostile> hostile_framing() {
  const std::string good = one("F32", "[2]", "[0,8]");
  return {
      {"empty file", "", "8 bytes"},
      {"seven bytes", "\x01\x02\x03\x04\x05\x06\x07", "8 bytes"},
      {"length 0", length_only(0, ""), "start with"},
      {"length 0 with data", length_only(0, "12345678"), "start with"},
      {"length beyond the file", length_only(64, "{}"), "truncated"},
      {"length one beyond the file", length_only(3, "{}"), "truncated"},
      {"length 2^64-1", length_only(UINT64_MAX, "{}"), "at most"},
      {"length 2^63", length_only(uint64_t{1} << 63, "{}"), "at most"},
      {"length 2^64-8: wraps when 8 is added", length_only(UINT64_MAX - 7, "{}"), "at most"},
      {"length just above the limit", length_only(100'000'001, "{}"), "at most"},
      {"data cut by one byte", good.substr(0, good.size() - 1), "truncated"},
      {"data cut off", good.substr(0, good.size() - 8), "truncated"},
      {"header cut", good.substr(0, 30), "truncated"},
      {"one trailing byte", good + "x", "belong to no tensor"},
      {"data without tensors", raw_safetensors("{}", 1), "belong to no tensor"},
      {"leading space", raw_safetensors(" {}", 0), "start with"},
      {"header is an array", raw_safetensors("[]", 0), "start with"},
      {"header is binary", raw_safetensors(std::string("{\0\1\2}", 5), 0), "JSON"},
      {"not UTF-8", raw_safetensors("{\"\xff\":1}", 0), "JSON"},
      {"two documents", raw_safetensors("{}{}", 0), "JSON"},
      {"unclosed", raw_safetensors("{\"a\":", 0), "JSON"},
      {"nested arrays", raw_safetensors("{\"a\":" + repeat("[", 100'000), 0), "nested"},
      {"nested objects", raw_safetensors("{\"a\":" + repeat("{\"a\":", 100'000), 0), "nested"},
      {"document after a NUL", raw_safetensors(std::string("{}\0{}", 5), 0), "JSON"},
      {"padded with zeros", raw_safetensors(std::string("{}\0\0", 4), 0), "JSON"},
  };
}

std::vector<Hostile> hostile_tensors() {
  return {
      {"unknown dtype", one("F31", "[2]", "[0,8]"), "not known"},
      {"lower case dtype", one("f32", "[2]", "[0,8]"), "not known"},
      {"empty dtype", one("", "[2]", "[0,8]"), "not known"},
      {"dtype is a number",
       raw_safetensors(R"({"a":{"dtype":1,"shape":[2],"data_offsets":[0,8]}})", 8), "\"dtype\""},
      {"dtype too small", one("F16", "[2]", "[0,8]"), "make 4 bytes"},
      {"dtype too large", one("F64", "[2]", "[0,8]"), "make 16 bytes"},
      {"negative size", one("F32", "[-2]", "[0,8]"), "whole sizes"},
      {"two negative sizes", one("F32", "[-2,-1]", "[0,8]"), "whole sizes"},
      {"fractional size", one("F32", "[2.0]", "[0,8]"), "whole sizes"},
      {"size as text", one("F32", "[\"2\"]", "[0,8]"), "whole sizes"},
      {"size null", one("F32", "[null]", "[0,8]"), "whole sizes"},
      {"size nested", one("F32", "[[2]]", "[0,8]"), "whole sizes"},
      {"size 2^63", one("F32", "[9223372036854775808]", "[0,8]"), "whole sizes"},
      {"size 10^30", one("F32", "[1000000000000000000000000000000]", "[0,8]"), "whole sizes"},
      {"size 2^62 of 4 bytes", one("F32", "[4611686018427387904]", "[0,8]"), "overflows"},
      {"product wraps to 2", one("F32", "[9223372036854775807,2]", "[0,8]"), "overflows"},
      {"product wraps to 0", one("U8", "[4294967296,4294967296]", "[0,0]", 0), "overflows"},
      {"zero hides an overflow", one("U8", "[0,4294967296,4294967296]", "[0,0]", 0), "overflows"},
      {"shape an object", one("F32", "{}", "[0,8]"), "\"shape\""},
      {"shape a number", one("F32", "2", "[0,8]"), "\"shape\""},
      {"65 dimensions", one("F32", "[" + repeat("1,", 64) + "2]", "[0,8]"), "\"shape\""},
      {"zero size with bytes", one("F32", "[0]", "[0,8]"), "make 0 bytes"},
      {"scalar with 8 bytes", one("F32", "[]", "[0,8]"), "make 4 bytes"},
      {"offsets backwards", one("F32", "[2]", "[8,0]"), "do not fit"},
      {"offsets negative", one("F32", "[2]", "[-8,0]"), "data_offsets"},
      {"offsets fractional", one("F32", "[2]", "[0,8.0]"), "data_offsets"},
      {"one offset", one("F32", "[2]", "[8]"), "data_offsets"},
      {"three offsets", one("F32", "[2]", "[0,8,8]"), "data_offsets"},
      {"offsets null", one("F32", "[2]", "null"), "data_offsets"},
      {"end beyond the data", one("F32", "[4]", "[0,16]"), "do not fit"},
      {"offsets near 2^64", one("U8", "[1]", "[18446744073709551614,18446744073709551615]"),
       "do not fit"},
      {"offset above 2^64", one("F32", "[2]", "[0,18446744073709551624]"), "data_offsets"},
      {"first tensor not at 0", one("F32", "[1]", "[4,8]"), "hole"},
      {"hole between", two("[0,4]", "[5,9]", 9), "hole"},
      {"overlap by one", two("[0,4]", "[3,7]", 7), "overlaps"},
      {"same bytes twice", two("[0,4]", "[0,4]", 4), "overlaps"},
      {"hole at the end", two("[0,4]", "[4,8]", 12), "belong to no tensor"},
      {"offsets wrong way round", two("[4,0]", "[4,8]", 8), "do not fit"},
  };
}

std::vector<Hostile> hostile_names() {
  const std::string body = R"(:{"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
  auto named = [&](const std::string& key) { return raw_safetensors("{" + key + body + "}", 0); };
  auto metadata = [](const std::string& value) {
    return raw_safetensors("{\"__metadata__\":" + value + "}", 0);
  };
  return {
      {"empty name", named("\"\""), "empty"},
      {"line break", named("\"a\\nb\""), "control character"},
      {"terminal escape", named("\"\\u001b[2J\""), "control character"},
      {"escape by C1", named("\"\\u009b2J\""), "control character"},
      {"delete", named("\"\\u007f\""), "control character"},
      {"nul", named("\"a\\u0000b\""), "control character"},
      {"1025 bytes", named('"' + std::string(1025, 'a') + '"'), "bytes"},
      {"same name twice", raw_safetensors("{\"a\"" + body + ",\"a\"" + body + "}", 0), "twice"},
      {"same name, one escaped", raw_safetensors("{\"a\"" + body + ",\"\\u0061\"" + body + "}", 0),
       "twice"},
      {"metadata twice", raw_safetensors(R"({"__metadata__":{},"__metadata__":{}})", 0), "twice"},
      {"metadata key twice", metadata(R"({"a":"1","a":"2"})"), "twice"},
      {"metadata a list", metadata("[]"), "__metadata__"},
      {"metadata a tensor", named("\"__metadata__\""), "wanted a string"},
      {"metadata a number", metadata(R"({"a":1})"), "wanted a string"},
      {"metadata nested", metadata(R"({"a":{"b":"c"}})"), "wanted a string"},
      {"metadata null", metadata(R"({"a":null})"), "wanted a string"},
      {"tensor null", raw_safetensors(R"({"a":null})", 0), "exactly the fields"},
      {"tensor a list", raw_safetensors(R"({"a":["U8",[0],[0,0]]})", 0), "exactly the fields"},
      {"no dtype", raw_safetensors(R"({"a":{"shape":[0],"data_offsets":[0,0]}})", 0), "exactly"},
      {"no shape", raw_safetensors(R"({"a":{"dtype":"U8","data_offsets":[0,0]}})", 0), "exactly"},
      {"no offsets", raw_safetensors(R"({"a":{"dtype":"U8","shape":[0]}})", 0), "exactly"},
      {"one field more",
       raw_safetensors(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1}})", 0),
       "exactly the fields"},
      {"shape twice",
       raw_safetensors(R"({"a":{"dtype":"U8","shape":[0],"shape":[0],"data_offsets":[0,0]}})", 0),
       "twice"},
  };
}

void expect_refused(const std::vector<Hostile>& cases) {
  Scratch folder;
  fs::path path = folder / "hostile.safetensors";
  for (const Hostile& hostile : cases) {
    SCOPED_TRACE(hostile.what);
    write_text(path, hostile.file);
    std::string message = error_of(ExitCode::kDamaged, [&] { SafetensorsReader reader(path); });
    EXPECT_NE(message.find("hostile.safetensors"), std::string::npos) << message;
    EXPECT_NE(message.find(hostile.wanted), std::string::npos) << message;
    EXPECT_EQ(message.find('\x1b'), std::string::npos) << "an escape reached the message";
  }
}

TEST(SafetensorsHostile, Framing) {
  expect_refused(hostile_framing());
}
TEST(SafetensorsHostile, Tensors) {
  expect_refused(hostile_tensors());
}
TEST(SafetensorsHostile, NamesAndMetadata) {
  expect_refused(hostile_names());
}

// The cases above differ from a sound file by one thing only: without it, the file is accepted.
TEST(SafetensorsHostile, SoundNeighboursAreAccepted) {
  Scratch folder;
  for (const std::string& file :
       {one("F32", "[2]", "[0,8]"), one("F32", "[]", "[0,4]", 4), one("U8", "[0,7]", "[0,0]", 0),
        two("[0,4]", "[4,8]", 8), two("[4,8]", "[0,4]", 8), raw_safetensors("{}", 0),
        raw_safetensors("{}    ", 0), raw_safetensors(R"({"__metadata__":{"a":"b"}})", 0)}) {
    write_text(folder / "x", file);
    EXPECT_NO_THROW(SafetensorsReader(folder / "x")) << file;
  }
}

TEST(SafetensorsHostile, BoolBytesMustBeZeroOrOne) {
  Scratch folder;
  std::string file = one("BOOL", "[2]", "[0,2]", 2);
  file.back() = 2;
  write_text(folder / "x", file);
  SafetensorsReader reader(folder / "x");
  error_of(ExitCode::kDamaged, [&] { reader.tensor("a"); });
}

TEST(SafetensorsHostile, PipesAndFoldersAreRefused) {
  Scratch folder;
  error_of(ExitCode::kUsage, [&] { SafetensorsReader reader(folder.path()); });
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  error_of(ExitCode::kUsage, [&] { SafetensorsReader reader(folder / "pipe"); });
  error_of(ExitCode::kEnvironment, [&] { SafetensorsReader reader(folder / "missing"); });
}

// Whatever a mutated file says, either it is refused as damaged or every tensor lies inside it.
TEST(SafetensorsHostile, MutatedFilesNeverEscape) {
  Scratch folder;
  fs::path path = folder / "x.safetensors";
  write_safetensors(path,
                    {{"weight", at::ones({4, 3})},
                     {"bias", at::ones({5}, at::kBFloat16)},
                     {"mask", at::ones({7}, at::kBool)}},
                    {{"format", "pt"}});
  const std::string good = read_text(path);
  std::mt19937 random(20240601);
  int refused = 0, accepted = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string bad = good;
    for (int edits = 1 + random() % 3; edits > 0; --edits) {
      size_t at = random() % (round % 2 ? 8 + 200 : bad.size());
      switch (random() % 4) {
        case 0:
          bad[at] = static_cast<char>(random());
          break;
        case 1:
          bad[at] ^= static_cast<char>(1 << random() % 8);
          break;
        case 2:
          bad.erase(at, 1 + random() % 4);
          break;
        default:
          bad[at] = "0123456789[]{},:\"-"[random() % 18];
      }
    }
    write_text(path, bad);
    try {
      SafetensorsReader reader(path);
      size_t sum = 0;
      for (const auto& item : reader.tensors())
        for (std::byte byte : reader.tensor_bytes(item.first)) sum += std::to_integer<size_t>(byte);
      EXPECT_LT(sum, size_t{255} * bad.size());
      ++accepted;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ExitCode::kDamaged) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(accepted, 10);
}

}  // namespace
}  // namespace octavo::checkpoint
