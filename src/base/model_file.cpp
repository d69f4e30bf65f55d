#include "base/model_file.h"

#include <algorithm>

#include "base/error.h"

namespace octavo {
namespace {

bool is_below(const fs::path& path, const fs::path& folder) {
  return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first ==
         folder.end();
}

}  // namespace

fs::path model_file(const fs::path& folder, std::string_view name) {
  fs::path path = join_inside(folder, name);
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) return path;  // whoever opens it says that there is none
  const fs::path home = fs::canonical(folder, error);
  const bool cached = home.parent_path().filename() == "snapshots" &&
                      is_below(real, home.parent_path().parent_path() / "blobs");
  if (!is_below(real, home) && !cached)
    fail(ExitCode::kDamaged, "base", path.string(),
         ": refused: it is a link that leaves the folder; put the file itself there, or give the "
         "folder where it is");
  return path;
}

}  // namespace octavo
