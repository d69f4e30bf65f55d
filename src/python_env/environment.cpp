#include "python_env/environment.h"

#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"

namespace octavo::python_env {
namespace {

constexpr size_t kLargestConfig = size_t{1} << 16;
constexpr size_t kMostPythons = 64;

// "3.11" of "python3.11"; "" of "python3".
std::string version_in_name(std::string_view name) {
  if (!name.starts_with("python")) return "";
  const std::string_view rest = name.substr(6);
  const bool is_plain = rest.find_first_not_of("0123456789.") == rest.npos;
  return is_plain && rest.find('.') != rest.npos ? std::string(rest) : "";
}

// "3.11" of "3.11.2.final.0".
std::string major_minor(const std::string& version) {
  const std::vector<std::string> parts = split(version, '.');
  return parts.size() < 2 ? "" : parts[0] + "." + parts[1];
}

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

std::map<std::string, std::string> read_pyvenv(const fs::path& root, Environment& out) {
  std::error_code error;
  if (!fs::exists(root / "pyvenv.cfg", error)) return {};
  try {
    return parse_pyvenv(read_file(root / "pyvenv.cfg", kLargestConfig));
  } catch (const Error& unreadable) {
    out.notes.push_back(printable(unreadable.what(), 200));
    return {};
  }
}

// The folders lib/pythonX.Y of a prefix, newest first.
std::vector<std::string> versions_below(const fs::path& root) {
  std::vector<std::string> found;
  for (const char* lib : {"lib", "lib64"}) {
    std::error_code error;
    for (fs::directory_iterator it(root / lib, error), end; !error && it != end;
         it.increment(error)) {
      const std::string version = version_in_name(it->path().filename().string());
      if (version.empty() || found.size() >= kMostPythons) continue;
      if (std::ranges::find(found, version) == found.end()) found.push_back(version);
    }
  }
  std::ranges::sort(found, [](const std::string& a, const std::string& b) {
    return parse_version(a).value_or(Version{}) > parse_version(b).value_or(Version{});
  });
  return found;
}

void add_folder(Environment& out, const fs::path& folder) {
  std::error_code error;
  if (!is_folder(folder)) return;
  const auto same = [&](const fs::path& other) { return fs::equivalent(other, folder, error); };
  if (std::ranges::none_of(out.site_packages, same)) out.site_packages.push_back(folder);
}

void add_prefix(Environment& out, const fs::path& root, const std::string& version) {
  const std::string python = "python" + version;
  for (const char* lib : {"lib", "lib64"}) add_folder(out, root / lib / python / "site-packages");
  if (root == "/usr") {  // Debian's: what pip installs comes before what apt does
    add_folder(out, fs::path("/usr/local/lib") / python / "dist-packages");
    add_folder(out, fs::path("/usr/local/lib") / python / "site-packages");
    add_folder(out, "/usr/lib/python3/dist-packages");
  } else {
    add_folder(out, root / "lib" / python / "dist-packages");
  }
}

std::string choose_version(Environment& out, const std::string& told) {
  const std::vector<std::string> there = versions_below(out.root);
  if (!told.empty()) return told;
  if (there.empty()) return "";
  if (there.size() > 1)
    out.notes.push_back(str(out.root.string(), " has ", there.size(), " versions of Python (",
                            join(there, ", "), "): the newest was looked at"));
  return there.front();
}

// The prefix of a python, and its version when the name tells it.
fs::path prefix_of(const fs::path& python, std::string& version) {
  std::error_code error;
  const fs::path folder = fs::absolute(python, error).lexically_normal().parent_path();
  version = version_in_name(python.filename().string());
  if (fs::exists(folder.parent_path() / "pyvenv.cfg", error)) return folder.parent_path();
  const fs::path real = fs::canonical(python, error);
  if (error) return folder.parent_path();
  if (version.empty()) version = version_in_name(real.filename().string());
  return real.parent_path().parent_path();
}

void take_prefix(Environment& out, const fs::path& root, std::string version,
                 const Variable& variable) {
  out.root = root;
  const auto config = read_pyvenv(root, out);
  for (const char* key : {"version_info", "version"})
    if (const auto it = config.find(key); it != config.end()) {
      out.python_version = it->second.substr(0, it->second.find(".final"));
      version = major_minor(it->second);
      break;
    }
  version = choose_version(out, version);
  if (out.python_version.empty()) out.python_version = version;
  const auto shares = config.find("include-system-site-packages");
  const bool is_venv = !config.empty();
  const bool has_system = is_venv && shares != config.end() && shares->second == "true";
  const std::string home = variable("HOME");
  if ((!is_venv || has_system) && !home.empty() && variable("PYTHONNOUSERSITE").empty() &&
      variable("CONDA_PREFIX").empty())
    add_folder(out, fs::path(home) / ".local/lib" / ("python" + version) / "site-packages");
  add_prefix(out, root, version);
  if (!has_system) return;
  const auto base = config.find("home");
  if (base == config.end()) {
    out.notes.push_back("pyvenv.cfg shares the packages of a Python that it does not name");
    return;
  }
  add_prefix(out, fs::path(base->second).parent_path(), version);
}

// What --python names.
Environment from_path(const std::string& given, const Variable& variable) {
  Environment out;
  out.found_by = "--python";
  std::error_code error;
  const fs::path path = fs::absolute(given, error).lexically_normal();
  if (!fs::exists(path, error))
    fail(ExitCode::kUsage, "python_env",
         "wanted a python, an environment or a site-packages folder "
         "in --python, found no '",
         printable(given, 200), "'; look for it with `which python`");
  if (!is_folder(path)) {
    std::string version;
    const fs::path root = prefix_of(path, version);
    take_prefix(out, root, version, variable);
    return out;
  }
  fs::path folder = path;
  if (folder.filename().empty()) folder = folder.parent_path();
  const std::string name = folder.filename().string();
  if (name == "site-packages" || name == "dist-packages") {
    out.root = folder.parent_path().parent_path().parent_path();
    out.python_version = version_in_name(folder.parent_path().filename().string());
    out.site_packages.push_back(folder);
    return out;
  }
  take_prefix(out, folder, "", variable);
  return out;
}

std::string on_path(const Variable& variable) {
  for (const char* name : {"python3", "python"})
    for (const std::string& folder : split(variable("PATH"), ':')) {
      if (folder.empty()) continue;
      const fs::path file = fs::path(folder) / name;
      std::error_code error;
      if (fs::is_regular_file(file, error) && ::access(file.c_str(), X_OK) == 0)
        return file.string();
    }
  return "";
}

}  // namespace

Environment find_environment(const std::string& given, const Variable& variable) {
  Environment out;
  if (!given.empty()) {
    out = from_path(given, variable);
  } else {
    for (const char* name : {"VIRTUAL_ENV", "CONDA_PREFIX"})
      if (const std::string root = variable(name); out.found_by.empty() && is_folder(root)) {
        take_prefix(out, fs::path(root), "", variable);
        out.found_by = name;
      }
    if (const std::string python = out.found_by.empty() ? on_path(variable) : ""; !python.empty()) {
      std::string version;
      const fs::path root = prefix_of(python, version);
      take_prefix(out, root, version, variable);
      out.found_by = python + " on PATH";
    }
  }
  // Folders of PYTHONPATH come first.
  Environment first;
  for (const std::string& folder : split(variable("PYTHONPATH"), ':'))
    if (!folder.empty()) add_folder(first, folder);
  for (const fs::path& folder : out.site_packages) add_folder(first, folder);
  if (out.site_packages.empty())
    fail(given.empty() ? ExitCode::kEnvironment : ExitCode::kUsage, "python_env",
         "wanted a Python environment with packages, found ",
         out.root.empty() ? "none (no VIRTUAL_ENV, no CONDA_PREFIX, no python3 on PATH)"
                          : str("no site-packages folder below ", out.root.string()),
         "; activate the environment that trains, or name its python: --python PATH");
  out.site_packages = std::move(first.site_packages);
  return out;
}

}  // namespace octavo::python_env
