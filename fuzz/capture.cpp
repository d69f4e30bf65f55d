// capture.json: what octavo.capture saved of somebody's PyTorch model.
#include <cctype>

#include "diagnose/capture_manifest.h"
#include "fuzz/harness.h"

OCTAVO_FUZZ_TARGET(input) {
  using namespace octavo;
  fuzz::refusal_of([&] {
    const auto manifest = diagnose::parse_capture(input, "capture.json");
    for (const auto& layer : manifest.layers) {
      fuzz::check(layer.file.find('/') == std::string::npos && layer.file.starts_with("layer-"),
                  "a file name that leaves the folder");
      for (const char c : layer.name)
        fuzz::check(
            std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.',
            "a name that a program would not take for one string");
      fuzz::check(layer.saved_tokens() > 0 && layer.saved_tokens() <= layer.tokens &&
                      layer.saved_outputs() > 0 && layer.saved_outputs() <= layer.outputs,
                  "more rows than the layer has");
    }
    for (const auto& other : manifest.not_captured)
      for (const char c : other.name + other.why)
        fuzz::check(c >= ' ' && c <= '~', "text that is not for a terminal");
  });
}
