// The C++ side of accumulators.py.
//   FORMAT_A FORMAT_B ROWS_A ROWS_B TERMS PROMOTION
//       codes of a, then of b, on stdin; float32 [ROWS_A, ROWS_B] on stdout. FORMAT: e4m3, e5m2;
//       PROMOTION: fast (never), promoted (every 128 terms).

#include <charconv>
#include <cstdio>
#include <string>
#include <vector>

#include "base/error.h"
#include "fp8/accumulator.h"
#include "tool_main.h"

namespace octavo::fp8 {
namespace {

[[noreturn]] void wrong_use(const std::string& found) {
  fail(ExitCode::kUsage, "accumulators_tool",
       "wanted e4m3|e5m2 e4m3|e5m2 ROWS_A ROWS_B TERMS fast|promoted, found '", found, "'");
}

Format format_of(const std::string& name) {
  if (name != "e4m3" && name != "e5m2") wrong_use(name);
  return name == "e4m3" ? Format::kE4M3 : Format::kE5M2;
}

int64_t number_of(const std::string& text) {
  int64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size() || number < 1 || number > 1 << 20)
    wrong_use(text);
  return number;
}

std::vector<uint8_t> codes_from_stdin(int64_t count) {
  std::vector<uint8_t> codes(static_cast<size_t>(count));
  if (std::fread(codes.data(), 1, codes.size(), stdin) != codes.size())
    fail(ExitCode::kUsage, "accumulators_tool", "wanted ", count, " codes on stdin, found fewer");
  return codes;
}

void run(const std::vector<std::string>& words) {
  if (words.size() != 6) wrong_use(words.empty() ? "" : words.front());
  const int64_t rows_a = number_of(words[2]), rows_b = number_of(words[3]),
                terms = number_of(words[4]);
  if (words[5] != "fast" && words[5] != "promoted") wrong_use(words[5]);
  const std::vector<uint8_t> a = codes_from_stdin(rows_a * terms),
                             b = codes_from_stdin(rows_b * terms);
  std::vector<float> c(static_cast<size_t>(rows_a * rows_b));
  hopper_gemm({format_of(words[0]), a, rows_a, terms, {}},
              {format_of(words[1]), b, rows_b, terms, {}},
              words[5] == "fast" ? Promotion::kNever : Promotion::kEvery128, 0, rows_a, c);
  if (std::fwrite(c.data(), sizeof(float), c.size(), stdout) != c.size())
    fail(ExitCode::kEnvironment, "accumulators_tool", "wanted to write to stdout, found it closed");
}

}  // namespace
}  // namespace octavo::fp8

int main(int argc, char** argv) {
  return octavo::tool_main([&] { octavo::fp8::run({argv + 1, argv + argc}); });
}
