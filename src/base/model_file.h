#pragma once
// Files of an untrusted model's folder: a link in it may not lead out of it.

#include <string_view>

#include "base/file.h"

namespace octavo {

// `name` in `folder`. Fails when it is a link to somewhere else; the Hugging Face cache, whose
// snapshots are links to the blobs beside them, is no such place. The file need not be there.
fs::path model_file(const fs::path& folder, std::string_view name);

}  // namespace octavo
