#include "base/library.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <regex>
#include <vector>

#include "base/environment.h"
#include "base/error.h"
#include "base/text.h"

namespace octavo {
namespace {

// Where a wheel's libraries are, seen from site-packages. oneDNN's lie beside Python's own folder:
// lib/libdnnl.so.3 of lib/python3.11/site-packages. CUDA's are where their part is.
struct WheelLibraries {
  std::string_view prefix;  // of the file's name
  std::string_view package, folder, cuda_part = {};
};
constexpr WheelLibraries kWheelLibraries[] = {
    {"libtorch", "torch", "torch/lib"},
    {"libc10", "torch", "torch/lib"},
    {"libgomp", "torch", "torch/lib"},
    {"libdnnl", "onednn-cpu-gomp", "../.."},
    {"libarrow", "pyarrow", "pyarrow"},
    {"libparquet", "pyarrow", "pyarrow"},
    {"libcudart", "nvidia-cuda-runtime", "", "cuda_runtime"},
    {"libcupti", "nvidia-cuda-cupti", "", "cuda_cupti"},
};
// Those that the program itself links, where the build has them; the others come with torch.
constexpr std::string_view kDirectWheels[] = {"torch", "onednn-cpu-gomp", "pyarrow"};
constexpr std::string_view kSearchPath = "LD_LIBRARY_PATH", kSitePackages = "OCTAVO_SITE_PACKAGES";

// The build says the versions: "torch==2.15.0 pyarrow==26.0.1 …".
std::string requirement(std::string_view package) {
  for (const std::string& line : split(OCTAVO_WHEELS, ' '))
    for (const char* rest : {"==", "-cu"})
      if (line.starts_with(std::string(package) + rest)) return line;
  return std::string(package);
}

// Not so for oneDNN in a build without it.
bool is_of_this_build(std::string_view package) {
  return requirement(package) != package;
}

const WheelLibraries* wheel_of(std::string_view file) {
  for (const WheelLibraries& wheel : kWheelLibraries)
    if (file.starts_with(wheel.prefix)) return &wheel;
  return nullptr;
}

// Site-packages, when the program is in the wheel: octavo/lib is two folders below it.
fs::path site_packages_above(const fs::path& libraries) {
  const fs::path folder = libraries.parent_path().parent_path();
  std::error_code error;
  return fs::exists(libraries.parent_path() / "__main__.py", error) ? folder : fs::path();
}

std::string wheel_folder(const fs::path& packages, const WheelLibraries& wheel) {
  std::string folder = (packages / wheel.folder).lexically_normal().string();
  if (!wheel.cuda_part.empty()) {
    const std::vector<fs::path> places = cuda_wheel_folders(packages, wheel.cuda_part);
    std::error_code error;
    const auto there = std::find_if(places.begin(), places.end(), [&](const fs::path& place) {
      return fs::exists(place / "lib", error);
    });
    folder = ((there == places.end() ? places[0] : *there) / "lib").string();
  }
  if (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  return folder;
}

bool is_build_tree(const fs::path& libraries) {
  std::error_code error;
  return fs::exists(libraries.parent_path() / "CMakeCache.txt", error);
}

// The site-packages folders that the loader was sent to, first the one that it looks into first.
std::vector<fs::path> searched_site_packages(const fs::path& libraries) {
  std::vector<fs::path> folders;
  if (const std::string given = environment_variable(kSitePackages); !given.empty())
    folders.emplace_back(given);
  if (const fs::path above = site_packages_above(libraries); !above.empty())
    folders.push_back(above);
  return folders;
}

std::string places(const fs::path& libraries, const WheelLibraries& wheel) {
  std::vector<std::string> folders;
  for (const fs::path& packages : searched_site_packages(libraries))
    folders.push_back(wheel_folder(packages, wheel));
  if (is_build_tree(libraries))
    folders.emplace_back("the Python environment that it was built with (.deps/venv)");
  const std::string path = environment_variable(kSearchPath);
  folders.push_back(path.empty() ? "the system's folders (LD_LIBRARY_PATH is not set)"
                                 : "LD_LIBRARY_PATH (" + path + ")");
  return join(folders, ", ");
}

std::string remedy(const fs::path& libraries, std::string_view package) {
  if (is_build_tree(libraries)) return "run ./bootstrap build and build again";
  // The loader stops at the first; whoever lacks all should be told all.
  std::vector<std::string> missing = {requirement(package)};
  for (const std::string_view other : kDirectWheels) {
    const auto has = [&](const fs::path& folder) {
      return !installed_version(folder, other).empty();
    };
    const std::vector<fs::path> folders = searched_site_packages(libraries);
    if (other != package && is_of_this_build(other) &&
        std::none_of(folders.begin(), folders.end(), has))
      missing.push_back(requirement(other));
  }
  return str("run `pip install ", join(missing, " "), "` where octavo is installed, or set ",
             kSitePackages,
             " to the site-packages folder that has it (docs/get-started/install.md)");
}

std::string missing_file_advice(const fs::path& libraries, const std::string& file) {
  const WheelLibraries* wheel = wheel_of(file);
  if (wheel == nullptr)
    return str("wanted ", file, ", which neither octavo nor a wheel brings, found none; ",
               is_build_tree(libraries)
                   ? "run ./bootstrap build and build again"
                   : "install the system's package that has it, or octavo again");
  return str("wanted ", file, " of ", requirement(wheel->package), ", found none; looked in ",
             places(libraries, *wheel), "; ", remedy(libraries, wheel->package));
}

// A symbol is missing: which wheel is of another version?
std::string other_version_advice(const fs::path& libraries) {
  for (const fs::path& packages : searched_site_packages(libraries))
    for (const std::string_view package : kDirectWheels) {
      const std::string found = installed_version(packages, package);
      if (is_of_this_build(package) && !found.empty() &&
          found.substr(0, found.find('+')) != wanted_version(package))
        return str("wanted ", requirement(package), ", found ", package, " ", found, " in ",
                   packages.string(), "; ", remedy(libraries, package));
    }
  return str("wanted libraries of the versions that it was built with, found others; ",
             remedy(libraries, "torch"));
}

}  // namespace

fs::path own_program() {
  std::error_code error;
  fs::path executable = fs::read_symlink("/proc/self/exe", error);
  if (error)
    fail(ExitCode::kEnvironment, "base", "wanted /proc/self/exe, found: ", error.message(),
         "; mount /proc");
  return executable;
}

std::vector<fs::path> cuda_wheel_folders(const fs::path& site_packages, std::string_view part) {
  const fs::path wheels = site_packages / "nvidia";
  return {wheels / str("cu", OCTAVO_CUDA_MAJOR), wheels / part};
}

fs::path own_library_folder() {
  return own_program().parent_path().parent_path() / "lib";
}

void use_site_packages(char** argv) {
  const fs::path packages = environment_variable(kSitePackages);
  if (packages.empty()) return;
  std::vector<std::string> folders;
  for (const WheelLibraries& wheel : kWheelLibraries) {
    std::string folder = wheel_folder(packages, wheel);
    std::error_code error;
    // The folder beside Python's may hold much else; only for oneDNN's sake.
    const bool wanted = wheel.folder != "../.." || fs::exists(folder + "/libdnnl.so.3", error);
    if (wanted && std::find(folders.begin(), folders.end(), folder) == folders.end())
      folders.push_back(std::move(folder));
  }
  const std::string ours = join(folders, ":"), before = environment_variable(kSearchPath);
  if (before.find(ours) != std::string::npos) return;  // this is the second start
  setenv(std::string(kSearchPath).c_str(), (before.empty() ? ours : ours + ":" + before).c_str(),
         1);
  execv("/proc/self/exe", argv);
  fail(ExitCode::kEnvironment, "base", "wanted to start again with ", kSearchPath, "=", ours,
       ", found: ", std::strerror(errno));
}

std::string loader_advice(const fs::path& library, std::string_view said) {
  static const std::regex missing(R"(^([^ :/]+): cannot open shared object file)");
  std::error_code error;
  const fs::path libraries = fs::weakly_canonical(library.parent_path(), error);
  std::smatch match;
  const std::string text(said);
  std::string advice;
  if (std::regex_search(text, match, missing))
    advice = missing_file_advice(libraries, match[1]);
  else if (text.find("undefined symbol") != text.npos || text.find("version `") != text.npos)
    advice = other_version_advice(libraries);
  else
    advice = str("wanted ", library.string(), ", found one that does not load; ",
                 is_build_tree(libraries) ? "run ./bootstrap build and build again"
                                          : "install octavo again");
  return str(advice, ". The loader said: ", text);
}

std::string installed_version(const fs::path& site_packages, std::string_view package) {
  // Wheels write their names with underscores: onednn_cpu_gomp-2023.2.0.dist-info.
  std::string wanted(package);
  std::replace(wanted.begin(), wanted.end(), '-', '_');
  constexpr std::string_view kSuffix = ".dist-info";
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(site_packages, error)) {
    const std::string name = entry.path().filename();
    const size_t dash = name.find('-');
    const std::string own = name.substr(0, dash);
    if (name.ends_with(kSuffix) && (own == wanted || own.starts_with(wanted + "_cu")))
      return name.substr(dash + 1, name.size() - dash - 1 - kSuffix.size());
  }
  return "";
}

fs::path torch_site_packages() {
  void* torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
  link_map* map = nullptr;
  if (torch == nullptr || dlinfo(torch, RTLD_DI_LINKMAP, &map) != 0) return {};
  std::error_code error;
  const fs::path file = fs::weakly_canonical(map->l_name, error);
  return file.parent_path().parent_path().parent_path();  // …/torch/lib/libtorch_cpu.so
}

std::string wanted_version(std::string_view package) {
  const std::string line = requirement(package);
  const size_t equals = line.find("==");
  return equals == line.npos ? "" : line.substr(equals + 2);
}

}  // namespace octavo
