#pragma once
// What the data tests share: a scratch folder, generated text, files as bytes, expected failures.

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "data/prepare.h"
#include "data/token_data.h"
#include "scratch.h"

namespace octavo::data {

// prepare() in a process of its own, which ends with 0 or 1.
inline pid_t start_prepare(const PrepareOptions& options) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  set_log_level(LogLevel::kError);
  try {
    prepare(options);
  } catch (const std::exception& error) {
    log_error(str("a process that prepares: ", error.what()));
    ::_exit(1);
  }
  ::_exit(0);
}

inline void put_file(const fs::path& path, const std::string& content) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << content;
}

inline std::string get_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Tokens of a split of a `bytes` data set as text, '|' for the end of a document.
inline std::string split_text(const fs::path& folder, const std::string& split) {
  const auto data = TokenData::open(folder, split);
  std::vector<int32_t> tokens(data->tokens());
  data->read(0, tokens);
  std::string text;
  for (const int32_t token : tokens) text += token == 256 ? '|' : static_cast<char>(token);
  return text;
}

// Every file of a folder, by name.
inline std::map<std::string, std::string> get_folder(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder))
    files[entry.path().filename().string()] = get_file(entry.path());
  return files;
}

// Lines of words, some with two- and four-byte characters; `bytes` or a few more.
inline std::string make_text(size_t bytes, uint64_t seed) {
  static const char* const kWords[] = {"the", "sea", "naïve", "whale", "€5", "🐳", "old", "Ahab"};
  std::mt19937_64 random(seed);
  std::string text;
  while (text.size() < bytes) {
    text += kWords[random() % std::size(kWords)];
    text += random() % 9 == 0 ? '\n' : ' ';
  }
  return text;
}

inline std::string make_jsonl(size_t bytes, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string text;
  while (text.size() < bytes) {
    std::string words = make_text(20 + random() % 2000, random());
    std::string escaped;
    for (const char c : words) escaped += c == '\n' ? std::string("\\n") : std::string(1, c);
    text += "{\"id\": " + std::to_string(random() % 1000) + ", \"text\": \"" + escaped + "\"}\n";
    if (random() % 50 == 0) text += "\n";
  }
  return text;
}

// What `action` throws must be an octavo::Error with this code and these words in its message.
template <typename Action>
void expect_failure(Action action, ExitCode code, const std::vector<std::string>& words) {
  try {
    action();
    ADD_FAILURE() << "wanted a failure, found none";
  } catch (const Error& error) {
    EXPECT_EQ(static_cast<int>(error.code()), static_cast<int>(code)) << error.what();
    for (const std::string& word : words)
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos)
          << "wanted '" << word << "' in: " << error.what();
  }
}

inline PrepareOptions quiet_options(std::vector<fs::path> inputs, const fs::path& output) {
  PrepareOptions options;
  options.inputs = std::move(inputs);
  options.output = output;
  options.max_skipped_rows = 1;
  options.quiet = true;
  return options;
}

}  // namespace octavo::data
