#include "base/lines.h"

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"

namespace octavo {

int64_t for_each_line(const fs::path& path, size_t max_bytes,
                      const std::function<void(std::string_view)>& take) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"),
                                                             std::fclose);
  if (file == nullptr)
    fail(ExitCode::kUsage, "report", "wanted to read ", path.string(), ", found permission denied");
  std::vector<char> buffer(size_t{1} << 16);
  std::string line;
  int64_t too_long = 0;
  bool skipping = false;
  const auto end_line = [&] {
    if (!skipping && !line.empty()) take(line);
    line.clear();
    skipping = false;
  };
  while (const size_t got = std::fread(buffer.data(), 1, buffer.size(), file.get())) {
    std::string_view rest(buffer.data(), got);
    while (!rest.empty()) {
      const size_t end = rest.find('\n');
      const std::string_view part = rest.substr(0, end);
      if (!skipping && line.size() + part.size() > max_bytes) {
        skipping = true;
        ++too_long;
        line.clear();
      }
      if (!skipping) line += part;
      if (end == rest.npos) break;
      end_line();
      rest.remove_prefix(end + 1);
    }
  }
  end_line();
  return too_long;
}

}  // namespace octavo
