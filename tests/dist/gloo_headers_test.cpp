// Gloo's headers are Debian's and older than the Gloo inside libtorch: see dist/gloo.cpp.

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "dist/gloo.h"

namespace octavo::dist {
namespace {

std::string output_of(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  std::string text;
  char line[4096];
  while (std::fgets(line, sizeof line, pipe) != nullptr) text += line;
  return pclose(pipe) == 0 ? text : "";
}

// What the loader would take in place of libtorch's own: anything of Gloo that our library defines,
// a table of virtual functions above all.
TEST(GlooHeaders, DefineNothing) {
  Dl_info info{};
  ASSERT_NE(dladdr(reinterpret_cast<const void*>(&make_gloo), &info), 0);
  const std::string symbols =
      output_of(std::string("nm --dynamic --defined-only --demangle ") + info.dli_fname);
  ASSERT_NE(symbols.find("octavo::dist::make_gloo("), symbols.npos) << info.dli_fname;
  std::string of_gloo;
  for (size_t begin = 0; begin < symbols.size();) {
    const size_t end = std::min(symbols.find('\n', begin), symbols.size());
    const std::string line = symbols.substr(begin, end - begin);
    begin = end + 1;
    for (const char* what : {" vtable for gloo::", " vtable for c10d::ProcessGroupGloo",
                             " typeinfo for gloo::", " gloo::"})
      if (line.find(what) != line.npos) of_gloo += line + "\n";
  }
  EXPECT_EQ(of_gloo, "");
}

}  // namespace
}  // namespace octavo::dist
