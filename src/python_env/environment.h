#pragma once
// A Python environment, found and read without running Python or importing anything: where its
// packages are, which are there, and what their metadata say.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "python_env/metadata.h"
#include "python_env/version.h"

namespace octavo::python_env {

struct Package {
  std::string name;     // normalised: "transformer-engine-torch"
  fs::path info;        // its .dist-info or .egg-info; of conda's the .json
  Metadata metadata;    // of conda's name and version alone
  std::string problem;  // why the metadata cannot be read, or have no version
  std::optional<Version> version() const { return parse_version(metadata.version); }
};

struct Environment {
  fs::path root;                        // the prefix: bin/ and lib/ are in it
  std::string found_by;                 // "--python", "VIRTUAL_ENV", …
  std::string python_version;           // "3.11" or "3.11.2"; "" when nothing tells it
  std::vector<fs::path> site_packages;  // in the order in which Python looks
  std::vector<std::string> notes;       // what was guessed or left out
};

// A variable of the environment; "" when it is not set.
using Variable = std::function<std::string(const std::string& name)>;

// `given` (--python): a python, an environment's folder or a site-packages folder. When it is "":
// VIRTUAL_ENV, CONDA_PREFIX, python3 or python on PATH. Fails (kUsage for `given`, otherwise
// kEnvironment) when there is none with a site-packages folder.
Environment find_environment(const std::string& given, const Variable& variable);

// The packages of the given normalised names, in their order; a name without a package is left out.
// The first in the order of Python's search counts. `again` lists folders of the same names that
// come later, which a failed update leaves behind.
std::vector<Package> read_packages(const Environment& environment,
                                   const std::vector<std::string>& names,
                                   std::vector<fs::path>* again = nullptr);

// All of them, by name.
std::vector<std::string> package_names(const Environment& environment);

// Of the shared libraries that the package's RECORD lists, those that are not there.
std::vector<std::string> missing_libraries(const Package& package);

}  // namespace octavo::python_env
