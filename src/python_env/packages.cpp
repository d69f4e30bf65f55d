// The packages of an environment: folders NAME-VERSION.dist-info, older ones .egg-info, and what
// conda installed (conda-meta/NAME-VERSION-BUILD.json).

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "python_env/environment.h"
#include "python_env/requirement.h"

namespace octavo::python_env {
namespace {

constexpr size_t kLargestMetadata = size_t{4} << 20, kLargestRecord = size_t{32} << 20;
constexpr size_t kMostEntries = 100'000;

// The normalised name in the name of a folder of metadata; "" of any other. A version has no dash,
// but behind it an .egg-info may name a Python: six-1.16.0-py3.11.egg-info.
std::string name_of_info(const std::string& folder) {
  const std::string_view whole = folder;
  constexpr std::string_view kDist = ".dist-info", kEgg = ".egg-info";
  if (whole.ends_with(kDist)) {
    const std::string_view stem = whole.substr(0, whole.size() - kDist.size());
    return normalised(stem.substr(0, stem.rfind('-')));
  }
  if (whole.ends_with(kEgg)) {
    const std::string_view stem = whole.substr(0, whole.size() - kEgg.size());
    return normalised(stem.substr(0, stem.find('-')));
  }
  return "";
}

struct InfoFolder {
  std::string name;
  fs::path path;
};

// In an order that does not depend on the disk.
std::vector<InfoFolder> info_folders(const fs::path& site) {
  std::vector<InfoFolder> out;
  std::error_code error;
  size_t seen = 0;
  for (fs::directory_iterator it(site, error), end; !error && it != end && seen < kMostEntries;
       it.increment(error), ++seen) {
    const std::string name = name_of_info(it->path().filename().string());
    if (!name.empty()) out.push_back({name, it->path()});
  }
  std::ranges::sort(out, {}, &InfoFolder::path);
  return out;
}

fs::path metadata_file(const fs::path& info) {
  std::error_code error;
  if (!fs::is_directory(info, error)) return info;  // an .egg-info that is a file
  return info / (info.extension() == ".egg-info" ? "PKG-INFO" : "METADATA");
}

Package read_package(const InfoFolder& folder) {
  Package out;
  out.name = folder.name;
  out.info = folder.path;
  try {
    out.metadata = parse_metadata(read_file(metadata_file(folder.path), kLargestMetadata));
  } catch (const Error& error) {
    out.problem = printable(error.what(), 300);
    return out;
  }
  if (out.metadata.version.empty())
    out.problem = "its metadata have no version";
  else if (!out.version())
    out.problem =
        str("its version '", printable(out.metadata.version, 60), "' is none that PEP 440 knows");
  return out;
}

// cudnn-9.10.1.4-h7646684_0.json
std::vector<Package> conda_packages(const fs::path& root, const std::vector<std::string>& names) {
  std::vector<Package> out;
  std::error_code error;
  size_t seen = 0;
  for (fs::directory_iterator it(root / "conda-meta", error), end;
       !error && it != end && seen < kMostEntries; it.increment(error), ++seen) {
    const std::string file = it->path().stem().string();
    const size_t build = file.rfind('-');
    if (it->path().extension() != ".json" || build == file.npos || build == 0) continue;
    const size_t version = file.rfind('-', build - 1);
    if (version == file.npos) continue;
    Package package;
    package.name = normalised(file.substr(0, version));
    package.info = it->path();
    package.metadata.name = file.substr(0, version);
    package.metadata.version = file.substr(version + 1, build - version - 1);
    if (std::ranges::find(names, package.name) != names.end()) out.push_back(std::move(package));
  }
  return out;
}

}  // namespace

std::vector<Package> read_packages(const Environment& environment,
                                   const std::vector<std::string>& names,
                                   std::vector<fs::path>* again) {
  std::vector<Package> found = conda_packages(environment.root, names);
  const size_t of_conda = found.size();
  for (const fs::path& site : environment.site_packages)
    for (const InfoFolder& folder : info_folders(site)) {
      if (std::ranges::find(names, folder.name) == names.end()) continue;
      const auto first =
          std::find_if(found.begin() + static_cast<std::ptrdiff_t>(of_conda), found.end(),
                       [&](const Package& p) { return p.name == folder.name; });
      if (first == found.end())
        found.push_back(read_package(folder));
      else if (again != nullptr)
        again->push_back(folder.path);
    }
  std::vector<Package> out;
  for (const std::string& name : names) {
    // A wheel counts before what conda says of the same name.
    const auto last = std::find_if(found.rbegin(), found.rend(),
                                   [&](const Package& p) { return p.name == name; });
    if (last != found.rend()) out.push_back(*last);
  }
  return out;
}

std::vector<std::string> package_names(const Environment& environment) {
  std::vector<std::string> out;
  for (const fs::path& site : environment.site_packages)
    for (const InfoFolder& folder : info_folders(site))
      if (std::ranges::find(out, folder.name) == out.end()) out.push_back(folder.name);
  std::ranges::sort(out);
  return out;
}

std::vector<std::string> missing_libraries(const Package& package) {
  std::error_code error;
  const fs::path record = package.info / "RECORD";
  if (!fs::exists(record, error)) return {};
  std::vector<std::string> out;
  try {
    for (const std::string& file : recorded_files(read_file(record, kLargestRecord), ".so"))
      if (!fs::exists(package.info.parent_path() / file, error))
        out.push_back(printable(file, 200));
  } catch (const Error& unreadable) {
    out.push_back(printable(unreadable.what(), 200));
  }
  return out;
}

}  // namespace octavo::python_env
