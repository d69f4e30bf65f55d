#include "train/guards/ledger.h"

#include <fstream>

#include "base/error.h"
#include "base/log.h"

namespace octavo::train {

void append_to_ledger(const fs::path& ledger, const Json& line) {
  const std::string text = line.dump(-1, ' ', false, Json::error_handler_t::replace);
  try {
    fs::create_directories(ledger.parent_path());
    std::ofstream file(ledger, std::ios::app);
    file << text << '\n';
    if (!file.flush())
      fail(ExitCode::kEnvironment, "train", "cannot write ", ledger.string(), "; check the disk");
  } catch (const std::exception& error) {
    log_warn(octavo::str(ledger.filename().string(), " lacks ", text, " (", error.what(), ")"));
  }
}

}  // namespace octavo::train
