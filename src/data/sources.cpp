#include "data/sources.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <fstream>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_map>

#include "base/checked.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/text.h"

namespace octavo::data {
namespace {

constexpr size_t kProbeBytes = 4096;

std::string read_range(const fs::path& path, uint64_t offset, size_t bytes) {
  std::ifstream file(path, std::ios::binary);
  std::string text(bytes, '\0');
  file.seekg(static_cast<std::streamoff>(offset));
  file.read(text.data(), static_cast<std::streamsize>(bytes));
  if (!file && !file.eof())
    fail(ExitCode::kEnvironment, "data", "cannot read ", path.string(), "; check its rights");
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

bool is_jsonl(const fs::path& path) {
  const fs::path extension = path.extension();
  return extension == ".jsonl" || extension == ".ndjson";
}

class Lister {
 public:
  explicit Lister(const fs::path& output) : output_(fs::weakly_canonical(output)) {}

  void add_input(const fs::path& input) {
    const fs::file_status status = fs::status(input);
    if (!fs::exists(status))
      fail(ExitCode::kUsage, "data", "wanted a file or folder, found nothing at ", input.string(),
           "; check the name");
    const fs::path whole = fs::weakly_canonical(input);
    if (whole == output_)
      fail(ExitCode::kUsage, "data", "wanted different folders for input and output, found ",
           input.string(), " for both; name another output");
    if (fs::is_directory(status)) {
      add_folder(input, whole.filename().string());
    } else if (input.extension() == ".parquet") {
      fail(ExitCode::kUsage, "data", "wanted text or JSONL, found the Parquet file ",
           input.string(), "; convert it to JSONL");
    } else {
      add_file(input, whole.filename().string());
    }
  }

  std::vector<Source> finish() {
    for (const std::string& folder : skipped_folders_) log_warn("data: skipped folder " + folder);
    say_files("binary (NUL byte)", binary_);
    say_files("empty", empty_);
    say_files("not a regular file", special_);
    return std::move(sources_);
  }

 private:
  void add_folder(const fs::path& folder, const std::string& name) {
    std::vector<fs::directory_entry> entries;
    for (const auto& entry : fs::directory_iterator(folder)) entries.push_back(entry);
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) {
      return a.path().filename().native() < b.path().filename().native();
    });
    for (const auto& entry : entries) {
      const std::string leaf = entry.path().filename().string();
      if (!entry.is_directory()) {
        add_file(entry.path(), name + "/" + leaf);
      } else if (leaf.starts_with('.') || leaf == "build" || entry.is_symlink() ||
                 fs::weakly_canonical(entry.path()) == output_) {
        skipped_folders_.push_back(entry.path().string());
      } else {
        add_folder(entry.path(), name + "/" + leaf);
      }
    }
  }

  void add_file(const fs::path& path, std::string name) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
      special_.push_back(path.string());
      return;
    }
    if (status.st_size == 0) {
      empty_.push_back(path.string());
      return;
    }
    if (read_range(path, 0, kProbeBytes).find('\0') != std::string::npos) {
      binary_.push_back(path.string());
      return;
    }
    sources_.push_back(
        {.path = path,
         .name = std::move(name),
         .bytes = static_cast<uint64_t>(status.st_size),
         .modified_ns = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec,
         .jsonl = is_jsonl(path),
         .hash = {}});
  }

  static void say_files(const char* why, const std::vector<std::string>& files) {
    if (files.empty()) return;
    constexpr size_t kShown = 5;
    std::string line = str("data: skipped ", files.size(), " files, ", why, ": ");
    for (size_t i = 0; i < std::min(files.size(), kShown); ++i) line += (i ? ", " : "") + files[i];
    if (files.size() > kShown) line += ", …";
    log_warn(line);
  }

  fs::path output_;
  std::vector<Source> sources_;
  std::vector<std::string> skipped_folders_, binary_, empty_, special_;
};

// name -> line of an earlier sources.jsonl; a broken cache only costs time.
std::unordered_map<std::string, Json> read_cache(const fs::path& path) {
  std::unordered_map<std::string, Json> cache;
  std::ifstream file(path);
  std::string line;
  try {
    while (std::getline(file, line)) {
      Json entry = parse_json(line, path.string());
      json_int(entry, "bytes", path.string());
      json_int(entry, "modified_ns", path.string());
      json_string(entry, "hash", path.string());
      std::string name = json_string(entry, "name", path.string());
      cache[std::move(name)] = std::move(entry);
    }
  } catch (const Error& error) {
    log_warn(str("data: hashing all inputs again: ", error.what()));
    cache.clear();
  }
  return cache;
}

}  // namespace

std::vector<Source> list_sources(const std::vector<fs::path>& inputs, const fs::path& output) {
  Lister lister(output);
  for (const fs::path& input : inputs) lister.add_input(input);
  return lister.finish();
}

void hash_sources(std::vector<Source>& sources, const fs::path& cache_path, int workers,
                  bool quiet) {
  const auto cache = read_cache(cache_path);
  std::vector<Source*> unknown;
  double total = 0;
  for (Source& source : sources) {
    const auto found = cache.find(source.name);
    if (found != cache.end() && found->second["bytes"].get<uint64_t>() == source.bytes &&
        found->second["modified_ns"].get<int64_t>() == source.modified_ns) {
      source.hash = found->second["hash"].get<std::string>();
    } else {
      unknown.push_back(&source);
      total += static_cast<double>(source.bytes);
    }
  }
  std::optional<Progress> progress;
  if (!quiet) progress.emplace("hashing inputs", total / 1e6, "MB");
  std::atomic<size_t> next{0};
  std::mutex mutex;
  double done = 0;
  std::exception_ptr error;
  const auto work = [&] {
    try {
      for (size_t i; (i = next++) < unknown.size();) {
        unknown[i]->hash = hash_file(unknown[i]->path);
        const std::lock_guard lock(mutex);
        done += static_cast<double>(unknown[i]->bytes);
        if (progress) progress->set(done / 1e6);
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      error = std::current_exception();
      next = unknown.size();
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < workers; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  if (error) std::rethrow_exception(error);
  if (progress) progress->finish();
}

void write_sources(const fs::path& path, const std::vector<Source>& sources) {
  std::string text;
  for (const Source& source : sources) {
    const Json line = {{"name", source.name},
                       {"bytes", source.bytes},
                       {"modified_ns", source.modified_ns},
                       {"hash", source.hash}};
    text += line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  }
  write_file_atomic(path, text);
}

std::string sources_fingerprint(const std::vector<Source>& sources) {
  std::string text;
  for (const Source& source : sources)
    text += str(source.name, '\0', source.bytes, ' ', source.hash, '\n');
  return hash_bytes(std::as_bytes(std::span(text.data(), text.size())));
}

std::vector<uint64_t> source_begins(const std::vector<Source>& sources) {
  std::vector<uint64_t> begins{0};
  for (const Source& source : sources)
    begins.push_back(checked_add(begins.back(), source.bytes, "input bytes"));
  return begins;
}

uint64_t last_document_end(const std::vector<Source>& sources,
                           const std::vector<uint64_t>& begins) {
  constexpr uint64_t kStep = 1 << 16;
  for (size_t i = sources.size(); i-- > 0;) {
    if (!sources[i].jsonl) return begins[i + 1];
    for (uint64_t end = sources[i].bytes; end > 0;) {
      const uint64_t from = end - std::min(end, kStep);
      const std::string text = read_range(sources[i].path, from, end - from);
      const size_t last = text.find_last_not_of(" \t\r\n");
      if (last != std::string::npos) return begins[i] + from + last + 1;
      end = from;
    }
  }
  return 0;
}

}  // namespace octavo::data
