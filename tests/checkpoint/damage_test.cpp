#include <random>

#include "checkpoint/manifest.h"
#include "checkpoint/sample_state.h"

namespace octavo::checkpoint {
namespace {

class Damage : public ::testing::Test {
 protected:
  void SetUp() override { path_ = save(folder_.path(), sample_state(5, 1.5), {}); }

  // The one problem that verify() and load() find.
  std::string problem() {
    auto problems = verify(path_);
    EXPECT_FALSE(problems.empty());
    std::string message = error_of(ExitCode::kDamaged, [&] { load(path_); });
    if (problems.empty()) return "";
    EXPECT_TRUE(has(message, problems[0])) << message << " / " << problems[0];
    return problems[0];
  }

  Scratch folder_;
  fs::path path_;
};

// The expected name of the part that byte `at` of a shard belongs to.
std::string part_at(const SafetensorsReader& reader, size_t at) {
  for (const auto& item : reader.tensors()) {
    auto bytes = reader.tensor_bytes(item.first);
    auto begin = static_cast<size_t>(bytes.data() - reader.bytes().data());
    if (at >= begin && at < begin + bytes.size()) return "\"" + item.first + "\" is damaged";
  }
  return "header is damaged";
}

TEST_F(Damage, EveryFlippedBitOfAShardIsFoundAndNamed) {
  std::mt19937 random(7);
  for (const char* name : {"model.safetensors", "optimizer.safetensors"}) {
    fs::path file = path_ / name;
    const std::string good = read_text(file);
    const SafetensorsReader sound(file);
    std::vector<std::string> parts;
    for (size_t at = 0; at < good.size(); ++at) parts.push_back(part_at(sound, at));
    for (size_t at = 0; at < good.size(); ++at) {
      std::string bad = good;
      bad[at] ^= static_cast<char>(1 << random() % 8);
      write_text(file, bad);
      auto problems = verify(path_);
      ASSERT_FALSE(problems.empty()) << name << " byte " << at;
      EXPECT_TRUE(has(problems[0], name)) << problems[0];
      bool in_header = parts[at] == "header is damaged";
      // In the header a flip may also rename or move a tensor, which is then named.
      EXPECT_TRUE(has(problems[0], parts[at]) || (in_header && has(problems[0], "tensor ")))
          << "byte " << at << ": " << problems[0];
      if (at % 97 == 0) problem();
    }
    write_text(file, good);
    EXPECT_TRUE(verify(path_).empty());
  }
}

TEST_F(Damage, EveryFlippedBitOfTheManifestIsFound) {
  fs::path file = path_ / "manifest.json";
  const std::string good = read_text(file);
  for (size_t at = 0; at < good.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[at] ^= static_cast<char>(1 << bit);
      std::string message =
          error_of(ExitCode::kDamaged, [&] { parse_manifest(bad, file.string()); });
      EXPECT_TRUE(has(message, "manifest.json")) << message;
    }
  }
  for (size_t size : {size_t{0}, size_t{1}, size_t{30}, good.size() / 2, good.size() - 1}) {
    write_text(file, good.substr(0, size));
    EXPECT_TRUE(has(problem(), "manifest.json"));
  }
  write_text(file, good + "\n");
  EXPECT_TRUE(has(problem(), "manifest.json"));
  write_text(file, good);
  EXPECT_TRUE(verify(path_).empty());
}

TEST_F(Damage, TruncatedGrownMissingAndReplacedFiles) {
  fs::path file = path_ / "model.safetensors";
  const std::string good = read_text(file);
  for (size_t size : {size_t{0}, size_t{7}, good.size() / 2, good.size() - 1}) {
    write_text(file, good.substr(0, size));
    EXPECT_TRUE(has(problem(), "model.safetensors: wanted"));
  }
  write_text(file, good + "x");
  EXPECT_TRUE(has(problem(), "model.safetensors: wanted"));
  fs::remove(file);
  EXPECT_TRUE(has(problem(), "model.safetensors: missing"));
  write_text(folder_ / "elsewhere", good);
  fs::create_symlink(folder_ / "elsewhere", file);
  EXPECT_TRUE(has(problem(), "model.safetensors: not a plain file"));
  fs::remove(file);
  fs::create_directory(file);
  EXPECT_TRUE(has(problem(), "model.safetensors: not a plain file"));
  fs::remove(file);
  // A sound safetensors file, but another one.
  State other = sample_state(5, 2.5);
  write_safetensors(file, other.groups["model"], {{"format", "pt"}});
  EXPECT_EQ(verify(path_).size(), 2);  // both of its tensors
  fs::remove(path_ / "manifest.json");
  EXPECT_TRUE(has(problem(), "no manifest.json"));
}

// A forged manifest has a right hash, so its fields are checked as well.
std::string forged(const std::string& good, const std::string& from, const std::string& to) {
  size_t at = good.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  std::string bad = good;
  bad.replace(at, from.size(), to);
  size_t start = bad.find("\",\n") + 3;
  std::string body = "{\n" + bad.substr(start);
  std::string hash = hash_bytes(std::as_bytes(std::span(body.data(), body.size())));
  return "{\n  \"manifest_hash\": \"" + hash + "\",\n" + body.substr(2);
}

TEST_F(Damage, ForgedManifestsAreRefused) {
  const std::string good = read_text(path_ / "manifest.json");
  EXPECT_NO_THROW(parse_manifest(forged(good, "\"step\": 5", "\"step\": 6"), "m"));
  auto refused = [&](const std::string& from, const std::string& to, const char* wanted) {
    std::string message = error_of(
        ExitCode::kDamaged, [&] { parse_manifest(forged(good, from, to), "manifest.json"); });
    EXPECT_TRUE(has(message, wanted) && has(message, "manifest.json")) << message;
    EXPECT_EQ(message.find('\x1b'), std::string::npos);
  };
  for (const char* name :
       {"../model.safetensors", "/etc/model.safetensors", "sub/model.safetensors", "..",
        ".model.safetensors", "a/../../model.safetensors", "", "model.bin", "manifest.json",
        "model\\u0000.safetensors", "\\u001b[2J.safetensors", "a\\\\b.safetensors"})
    refused("\"name\": \"model.safetensors\"", std::string("\"name\": \"") + name + "\"",
            "refused");
  refused("\"name\": \"optimizer.safetensors\"", "\"name\": \"model.safetensors\"", "listed twice");
  refused("\"version\": 1", "\"version\": 3", "version");
  refused("\"version\": 1", "\"version\": 2", "save_id");
  refused("\"version\": 1", "\"version\": \"1\"", "version");
  refused("\"step\": 5", "\"step\": -5", "negative");
  refused("\"step\": 5", "\"step\": 18446744073709551615", "out of range");
  refused("\"step\": 5", "\"step\": 5.5", "step");
  refused("\"step\": 5", "\"step\": 5, \"step\": 5", "twice");
  refused("\"step\": 5", "\"other\": 5", "step");
  refused("\"tokens\": 5120", "\"tokens\": -1", "negative");
  refused("\"precision\": \"FP8\"", "\"precision\": \"\\u001b[2J\"", "printable");
  refused("\"recipe\": \"delayed\"", "\"recipe\": 1", "recipe");
  refused("\"tensors\": 2", "\"tensors\": 3", "number of tensors");
  refused("\"files\": [", "\"files\": [1, ", "name");
  refused("\"hash\": \"", "\"hash\": \"x", "not a hash");
  refused("\"size\": ", "\"size\": -", "negative");
}

}  // namespace
}  // namespace octavo::checkpoint
