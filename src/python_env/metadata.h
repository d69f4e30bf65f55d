#pragma once
// METADATA (or PKG-INFO), RECORD and pyvenv.cfg: the text files that tools write beside packages.

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace octavo::python_env {

// The header of METADATA. Of a field that is there twice the first counts, as for Python itself.
struct Metadata {
  std::string name, version, requires_python;
  std::vector<std::string> requirements;  // of Requires-Dist
};
Metadata parse_metadata(std::string_view text);

// The files that RECORD lists and whose names have `part`, as paths below site-packages. Paths that
// lead out of it (scripts in ../../bin) are left out.
std::vector<std::string> recorded_files(std::string_view text, std::string_view part);

// "key = value" lines of pyvenv.cfg, keys in lower case.
std::map<std::string, std::string> parse_pyvenv(std::string_view text);

}  // namespace octavo::python_env
