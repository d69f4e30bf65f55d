// The C++ side of fp8_formats.py. Codes and values go to stdout as raw bytes.
//   decode FORMAT                        float32 of the 256 codes; FORMAT: e4m3, e5m2, e8m0
//   bf16 FORMAT MODE                     codes of the 65,536 BF16 values; MODE: saturate, native
//   encode FORMAT MODE                   codes of the float32 on stdin; MODE also up, down (e8m0)
//   range FORMAT MODE FIRST COUNT        codes of the float32 whose bits are FIRST, FIRST + 1, …
//   stochastic FORMAT SEED               codes of the float32 on stdin, rounded stochastically
//   classify FORMAT                      an Incident per float32 on stdin

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "fp8/formats.h"
#include "tool_main.h"

namespace octavo::fp8 {
namespace {

constexpr size_t kChunk = size_t{1} << 20;

template <typename T>
void write(const std::vector<T>& data) {
  if (std::fwrite(data.data(), sizeof(T), data.size(), stdout) != data.size())
    fail(ExitCode::kEnvironment, "fp8_formats_tool", "wanted to write to stdout, found it closed");
}

using Encoder = std::function<void(const std::vector<float>&, std::vector<uint8_t>&)>;

Format format_of(const std::string& name) {
  if (name != "e4m3" && name != "e5m2")
    fail(ExitCode::kUsage, "fp8_formats_tool", "wanted e4m3 or e5m2, found '", name, "'");
  return name == "e4m3" ? Format::kE4M3 : Format::kE5M2;
}

Encoder encoder_of(const std::string& format_name, const std::string& mode) {
  if (format_name == "e8m0" && (mode == "up" || mode == "down")) {
    return [up = mode == "up"](const std::vector<float>& values, std::vector<uint8_t>& codes) {
      std::transform(values.begin(), values.end(), codes.begin(),
                     up ? encode_e8m0_up : encode_e8m0_down);
    };
  }
  const Format format = format_of(format_name);
  if (mode != "saturate" && mode != "native")
    fail(ExitCode::kUsage, "fp8_formats_tool", "wanted saturate or native, found '", mode, "'");
  const Overflow overflow = mode == "native" ? Overflow::kNative : Overflow::kSaturate;
  return [format, overflow](const std::vector<float>& values, std::vector<uint8_t>& codes) {
    std::transform(values.begin(), values.end(), codes.begin(),
                   [=](float value) { return encode(format, value, overflow); });
  };
}

void encode_stdin(const Encoder& encoder) {
  std::vector<float> values(kChunk);
  std::vector<uint8_t> codes;
  for (;;) {
    values.resize(kChunk);
    values.resize(std::fread(values.data(), sizeof(float), kChunk, stdin));
    if (values.empty()) return;
    codes.resize(values.size());
    encoder(values, codes);
    write(codes);
  }
}

void encode_range(const Encoder& encoder, uint64_t first, uint64_t count) {
  std::vector<float> values;
  std::vector<uint8_t> codes;
  for (uint64_t done = 0; done < count; done += values.size()) {
    values.resize(std::min<uint64_t>(kChunk, count - done));
    codes.resize(values.size());
    for (size_t i = 0; i < values.size(); ++i)
      values[i] = std::bit_cast<float>(static_cast<uint32_t>(first + done + i));
    encoder(values, codes);
    write(codes);
  }
}

void decode_all(const std::string& format) {
  std::vector<float> values;
  for (int code = 0; code < 256; ++code)
    values.push_back(format == "e8m0" ? decode_e8m0(static_cast<uint8_t>(code))
                                      : decode(format_of(format), static_cast<uint8_t>(code)));
  write(values);
}

void encode_all_bf16(Format format, const std::string& mode) {
  const Overflow overflow = mode == "native" ? Overflow::kNative : Overflow::kSaturate;
  std::vector<uint8_t> codes;
  for (uint32_t bits = 0; bits < 65536; ++bits)
    codes.push_back(encode_bf16(format, static_cast<uint16_t>(bits), overflow));
  write(codes);
}

void encode_stdin_stochastic(Format format, uint64_t seed) {
  RandomPosition draw{.seed = seed};
  Incidents incidents;
  encode_stdin([&](const std::vector<float>& values, std::vector<uint8_t>& codes) {
    encode_stochastic(format, values, codes, draw, incidents);
    draw.first += values.size();
  });
}

void classify_stdin(Format format) {
  encode_stdin([=](const std::vector<float>& values, std::vector<uint8_t>& kinds) {
    std::transform(values.begin(), values.end(), kinds.begin(),
                   [=](float value) { return static_cast<uint8_t>(classify(format, value)); });
  });
}

void run(const std::vector<std::string>& arguments) {
  const std::string verb = arguments.empty() ? "" : arguments[0];
  const size_t count = arguments.size();
  if (verb == "decode" && count == 2)
    decode_all(arguments[1]);
  else if (verb == "bf16" && count == 3)
    encode_all_bf16(format_of(arguments[1]), arguments[2]);
  else if (verb == "encode" && count == 3)
    encode_stdin(encoder_of(arguments[1], arguments[2]));
  else if (verb == "range" && count == 5)
    encode_range(encoder_of(arguments[1], arguments[2]), std::stoull(arguments[3]),
                 std::stoull(arguments[4]));
  else if (verb == "stochastic" && count == 3)
    encode_stdin_stochastic(format_of(arguments[1]), std::stoull(arguments[2]));
  else if (verb == "classify" && count == 2)
    classify_stdin(format_of(arguments[1]));
  else
    fail(ExitCode::kUsage, "fp8_formats_tool",
         "wanted decode | bf16 | encode | range | stochastic | classify with their arguments, "
         "found '",
         verb, "'");
}

}  // namespace
}  // namespace octavo::fp8

int main(int argc, char** argv) {
  return octavo::tool_main([&] { octavo::fp8::run({argv + 1, argv + argc}); });
}
