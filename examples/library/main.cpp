// What the library offers, one command for each part; the other words are its arguments:
//
// quantize SCALING FORMAT ALONG ROWS COLUMNS   codes and scales of BF16 numbers from stdin
// tensors FILE.safetensors                     names, types, shapes, sizes
// tokens TOKENIZER TEXT                        ids, and the text that they stand for
// plan KEY=VALUE…                              a forecast as JSON

#include <octavo/fp8.h>
#include <octavo/plan.h>
#include <octavo/safetensors.h>
#include <octavo/tokenizer.h>

#include <bit>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

namespace fp8 = octavo::v0::fp8;
using Words = std::vector<std::string>;

// What a name stands for; a name that is not there is an error.
template <class T>
T chosen(const std::map<std::string, T>& choices, const std::string& name) {
  const auto found = choices.find(name);
  if (found == choices.end()) throw std::runtime_error("there is no " + name);
  return found->second;
}

void quantize(const Words& words) {
  const auto scaling = chosen<fp8::Scaling>({{"tensor", fp8::Scaling::kTensor},
                                             {"row", fp8::Scaling::kRow},
                                             {"block128", fp8::Scaling::kBlock128},
                                             {"square128", fp8::Scaling::kSquare128},
                                             {"mx32", fp8::Scaling::kMx32}},
                                            words.at(1));
  const auto format = chosen<fp8::Format>(
      {{"e4m3", fp8::Format::kE4M3}, {"e5m2", fp8::Format::kE5M2}}, words.at(2));
  const auto along = chosen<fp8::Along>(
      {{"rows", fp8::Along::kRows}, {"columns", fp8::Along::kColumns}}, words.at(3));
  const int64_t rows = std::stoll(words.at(4)), columns = std::stoll(words.at(5));
  const std::string bytes(std::istreambuf_iterator<char>(std::cin), {});
  std::vector<uint16_t> bits;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2)
    bits.push_back(static_cast<uint16_t>(static_cast<unsigned char>(bytes[i]) |
                                         static_cast<unsigned char>(bytes[i + 1]) << 8));

  const fp8::Quantized fast = fp8::quantize_bf16(bits, rows, columns, scaling, format, along);
  std::vector<float> values;
  for (const uint16_t b : bits)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(b) << 16));
  const fp8::Quantized plain = fp8::quantize(values, rows, columns, scaling, format, along);
  if (fast.codes != plain.codes || fast.scales != plain.scales)
    throw std::runtime_error("the two quantizers differ");

  for (const uint8_t code : fast.codes) std::printf("%d ", code);
  std::printf("\n");
  for (const float scale : fast.scales) std::printf("%a ", static_cast<double>(scale));
  std::printf("\n");
  for (const float value : fp8::dequantize(fast)) std::printf("%a ", static_cast<double>(value));
  std::printf("\n");
}

void tensors(const Words& words) {
  const octavo::v0::Safetensors file(words.at(1));
  for (const auto& [name, tensor] : file.tensors()) {
    unsigned sum = 0;
    for (const std::byte b : tensor.bytes) sum = sum * 31 + std::to_integer<unsigned>(b);
    std::cout << name << " " << tensor.dtype << " [";
    for (size_t i = 0; i < tensor.shape.size(); ++i)
      std::cout << (i > 0 ? "," : "") << tensor.shape[i];
    std::cout << "] " << tensor.bytes.size() << " bytes, sum " << sum << "\n";
  }
}

void tokens(const Words& words) {
  const octavo::v0::Tokenizer tokenizer(words.at(1));
  const std::vector<int32_t> ids = tokenizer.encode(words.at(2));
  for (const int32_t id : ids) std::cout << id << " ";
  std::cout << "\n" << tokenizer.decode(ids) << "\n";
}

void plan(const Words& words) {
  std::map<std::string, std::string> settings;
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == std::string::npos)
      throw std::runtime_error("wanted KEY=VALUE, found " + words[i]);
    settings[words[i].substr(0, equals)] = words[i].substr(equals + 1);
  }
  std::cout << octavo::v0::forecast(settings).json << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Words words(argv + 1, argv + argc);
    using Verb = void (*)(const Words&);
    chosen<Verb>({{"quantize", quantize}, {"tensors", tensors}, {"tokens", tokens}, {"plan", plan}},
                 words.empty() ? "verb" : words.front())(words);
  } catch (const std::exception& error) {
    std::cerr << "example: " << error.what() << "\n";
    return 1;
  }
}
