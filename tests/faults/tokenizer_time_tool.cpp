// Encodes texts for tests/faults/tokenizer_time.py: tokenizer_time_tool TOKENIZER REPEATS TEXT…
// For each file TEXT prints the median of the seconds of processor time that encoding took, and
// "same" when decoding gives back the text, or what is in TEXT.back. TEXT.ids gets the ids (i32) of
// texts up to a megabyte.

#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "conformance/tool_main.h"
#include "tokenizer/tokenizer.h"

namespace {

constexpr uint64_t kLongest = uint64_t{64} << 20;
constexpr size_t kShown = size_t{1} << 20;

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void measure(const octavo::tokenizer::Tokenizer& tokenizer, int repeats, const std::string& path) {
  const std::string text = octavo::read_file(path, kLongest);
  std::vector<octavo::tokenizer::TokenId> ids;
  std::vector<double> seconds;
  for (int i = 0; i < repeats; ++i) {
    ids.clear();
    const double begin = processor_seconds();
    tokenizer.encode(text, ids);
    seconds.push_back(processor_seconds() - begin);
  }
  std::sort(seconds.begin(), seconds.end());
  const std::string back = path + ".back";
  const std::string expected = octavo::fs::exists(back) ? octavo::read_file(back, kLongest) : text;
  const bool is_same = tokenizer.decode(ids, false) == expected;
  if (text.size() <= kShown) {
    octavo::FileWriter out(path + ".ids");
    out.write(std::as_bytes(std::span(ids)));
    out.close();
  }
  std::printf("%s bytes=%zu ids=%zu seconds=%.6f %s\n", path.c_str(), text.size(), ids.size(),
              seconds[seconds.size() / 2], is_same ? "same" : "other");
  std::fflush(stdout);
}

void measure_all(const std::vector<std::string>& words) {
  if (words.size() < 3)
    octavo::fail(octavo::ExitCode::kUsage, "tokenizer_time_tool", "wanted TOKENIZER REPEATS TEXT…");
  const auto tokenizer = octavo::tokenizer::load_tokenizer(words[0]);
  for (size_t i = 2; i < words.size(); ++i)
    measure(*tokenizer, std::atoi(words[1].c_str()), words[i]);
}

}  // namespace

int main(int argc, char** argv) {
  return octavo::tool_main([&] { measure_all({argv + 1, argv + argc}); });
}
