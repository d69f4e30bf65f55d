#include "train/guards/output_check.h"

#include <unistd.h>

#include "base/error.h"
#include "train/state/run_folders.h"

namespace octavo::train {
namespace {

std::vector<fs::path> missing_of(const fs::path& folder) {
  std::vector<fs::path> missing;
  std::error_code error;
  for (fs::path path = fs::absolute(folder).lexically_normal();
       path.has_relative_path() && !fs::exists(path, error); path = path.parent_path())
    missing.push_back(path);
  return missing;
}

[[noreturn]] void refuse_folder(const fs::path& folder, const char* key, const std::string& found) {
  fail(ExitCode::kEnvironment, "train", key, ": wanted a folder that can be written to, found ",
       folder.string(), ": ", found, "; give another --", key, ", or make room or rights for it");
}

void try_folder(const fs::path& folder, const char* key, int rank, std::vector<fs::path>& made) {
  const std::vector<fs::path> missing = missing_of(folder);
  std::error_code error;
  fs::create_directories(folder, error);
  if (!error && !fs::is_directory(folder, error))
    error = std::make_error_code(std::errc::not_a_directory);
  if (error) {
    remove_empty(missing);
    refuse_folder(folder, key, error.message());
  }
  const fs::path file = folder / str(".try-", rank, "-", ::getpid());
  try {
    FileWriter writer(file);
    writer.write(std::string_view("octavo\n"));
    writer.close();
    fsync_path(folder);
  } catch (const std::exception& failure) {
    fs::remove(file, error);
    remove_empty(missing);
    refuse_folder(folder, key, failure.what());
  }
  fs::remove(file, error);
  made.insert(made.end(), missing.begin(), missing.end());
}

}  // namespace

std::vector<fs::path> try_output_folders(const config::Settings& settings, int rank) {
  std::vector<fs::path> made;
  try {
    try_folder(run_folder(settings), "runs_dir", rank, made);
    try_folder(checkpoint_folder(settings), "checkpoint_dir", rank, made);
    if (const fs::path trace = settings.trace; trace.has_parent_path())
      try_folder(trace.parent_path(), "trace", rank, made);
  } catch (const Error&) {
    remove_empty(made);
    throw;
  }
  return made;
}

void remove_empty(const std::vector<fs::path>& folders) {
  std::error_code ignored;  // what has something in it stays
  for (const fs::path& folder : folders)
    if (fs::is_directory(fs::symlink_status(folder, ignored))) ::rmdir(folder.c_str());
}

}  // namespace octavo::train
