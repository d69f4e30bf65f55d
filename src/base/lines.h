#pragma once
// The lines of an untrusted file of records, which may be long, cut short or endless.

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/file.h"

namespace octavo {

// Calls `take` for every line that is not empty, without its end. Returns how many were longer than
// `max_bytes`: they are skipped without being held. Fails (kUsage) when the file cannot be opened.
int64_t for_each_line(const fs::path& path, size_t max_bytes,
                      const std::function<void(std::string_view)>& take);

}  // namespace octavo
