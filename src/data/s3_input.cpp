#include "data/s3_input.h"

#include "data/module.h"
#include "data/s3/s3_module.h"

namespace octavo::data {
namespace {

constexpr const char* kLibrary = "liboctavo_s3.so";

}  // namespace

bool is_s3_address(const std::string& text) {
  return text.starts_with("s3://");
}

std::vector<Source> list_s3(const std::string& address) {
  const auto list = reinterpret_cast<decltype(&octavo_s3_list)>(
      module_symbol(kLibrary, "octavo_s3_list", address));
  std::vector<Source> sources;
  list(&address, &sources);
  return sources;
}

std::unique_ptr<InputFile> open_s3(const Source& source) {
  const auto open = reinterpret_cast<decltype(&octavo_s3_open)>(
      module_symbol(kLibrary, "octavo_s3_open", source.path.string()));
  return std::unique_ptr<InputFile>(open(&source));
}

}  // namespace octavo::data
