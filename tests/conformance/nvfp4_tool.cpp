// The C++ side of nvfp4.py. Float32 come on stdin; raw bytes go to stdout.
//   quantize BLOCKS ROWS COLUMNS            BLOCKS: 1x16, 16x16. Packed codes, scales, amax
//   stochastic BLOCKS ROWS COLUMNS SEED     the same, rounded stochastically
//   rotate                                  float32
//   codes                                   an E2M1 code for each
//   draws                                   256 E2M1 codes for each: of the draws 0 to 255

#include <charconv>
#include <cstdio>
#include <string>
#include <vector>

#include "base/error.h"
#include "fp8/nvfp4.h"
#include "tool_main.h"

namespace octavo::fp8 {
namespace {

template <typename T>
void write(const std::vector<T>& data) {
  if (std::fwrite(data.data(), sizeof(T), data.size(), stdout) != data.size())
    fail(ExitCode::kEnvironment, "nvfp4_tool", "wanted to write to stdout, found it closed");
}

std::vector<float> from_stdin() {
  constexpr size_t kChunk = size_t{1} << 20;
  std::vector<float> values;
  for (size_t found = kChunk; found == kChunk;) {
    values.resize(values.size() + kChunk);
    found = std::fread(values.data() + values.size() - kChunk, sizeof(float), kChunk, stdin);
    values.resize(values.size() - kChunk + found);
  }
  return values;
}

int64_t number_of(const std::string& text) {
  int64_t number = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || stop != text.data() + text.size() || number < 0 || number > 1 << 30)
    fail(ExitCode::kUsage, "nvfp4_tool", "wanted a number, found '", text, "'");
  return number;
}

void quantize(const std::vector<std::string>& words) {
  const Nvfp4Blocks blocks = words[1] == "16x16" ? Nvfp4Blocks::k16x16 : Nvfp4Blocks::k1x16;
  Nvfp4Rounding rounding;
  rounding.stochastic = words[0] == "stochastic";
  if (rounding.stochastic) rounding.seed = static_cast<uint64_t>(number_of(words.at(4)));
  const Nvfp4 made =
      quantize_nvfp4(from_stdin(), number_of(words[2]), number_of(words[3]), blocks, rounding);
  write(packed(made.codes));
  write(made.scales);
  write(std::vector<float>{made.amax});
}

void encode_all(bool draws) {
  std::vector<uint8_t> codes;
  for (const float value : from_stdin())
    for (int bits = 0; bits < (draws ? 256 : 1); ++bits)
      codes.push_back(draws ? encode_e2m1_stochastic(value, static_cast<uint8_t>(bits))
                            : encode_e2m1(value));
  write(codes);
}

void run(const std::vector<std::string>& words) {
  const std::string verb = words.empty() ? "" : words[0];
  if ((verb == "quantize" && words.size() == 4) || (verb == "stochastic" && words.size() == 5))
    return quantize(words);
  if (verb == "rotate") return write(rotated(from_stdin()));
  if (verb == "codes" || verb == "draws") return encode_all(verb == "draws");
  fail(ExitCode::kUsage, "nvfp4_tool",
       "wanted quantize BLOCKS ROWS COLUMNS | stochastic BLOCKS ROWS COLUMNS SEED | rotate | codes "
       "| "
       "draws, found '",
       verb, "' and ", words.size(), " words");
}

}  // namespace
}  // namespace octavo::fp8

int main(int argc, char** argv) {
  return octavo::tool_main([&] { octavo::fp8::run({argv + 1, argv + argc}); });
}
