#include "data/sources.h"

#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <fstream>
#include <iterator>
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
#include "base/signals.h"
#include "base/text.h"
#include "data/dataset_index.h"
#include "data/input_file.h"
#include "data/journal.h"
#include "data/s3_input.h"
#include "data/work_folder.h"

namespace octavo::data {
namespace {

constexpr size_t kProbeBytes = 4096, kRowProbeBytes = size_t{1} << 20;

SourceFormat format_of(const fs::path& path) {
  const fs::path extension = path.extension();
  if (extension == ".jsonl" || extension == ".ndjson") return SourceFormat::kJsonl;
  if (extension == ".json") return SourceFormat::kJson;
  if (extension == ".parquet") return SourceFormat::kParquet;
  if (extension == ".arrow" || extension == ".feather") return SourceFormat::kArrow;
  return SourceFormat::kText;
}

// Of a .json that lies in a folder among others: an array of objects or texts, or objects line by
// line. Anything else (package.json in a folder of source code) is a text like its neighbours.
bool looks_like_rows(std::string_view head) {
  const auto after = [&](size_t from) { return head.find_first_not_of(" \t\r\n", from); };
  const size_t first = after(0);
  if (first == std::string_view::npos) return false;
  if (head[first] == '[') {
    const size_t element = after(first + 1);
    return element != std::string_view::npos && (head[element] == '{' || head[element] == '"');
  }
  const size_t line_end = head.find('\n', first);
  const size_t second = line_end == std::string_view::npos ? line_end : after(line_end);
  return head[first] == '{' && second != std::string_view::npos && head[second] == '{' &&
         Json::accept(head.substr(first, line_end - first));
}

// What an interrupted preparation left is no text.
void refuse_unfinished(const fs::path& folder) {
  if (fs::exists(folder / kIndexName)) return;
  for (const char* name : {kJournalName, kWorkFolderName})
    if (fs::exists(folder / name))
      fail(ExitCode::kUsage, "data",
           "wanted texts or a prepared data set, found an unfinished one (", name, " and no ",
           kIndexName, ") in ", folder.string(),
           "; run the same octavo data prepare command again, which continues it");
}

class Lister {
 public:
  explicit Lister(const fs::path& output) : output_(fs::weakly_canonical(output)) {}

  void add_input(const fs::path& input) {
    if (is_s3_address(input.string())) {
      for (Source& source : list_s3(input.string())) {
        source.format = format_of(source.path);
        add_source(std::move(source));
      }
      return;
    }
    const fs::file_status status = fs::status(input);
    if (!fs::exists(status))
      fail(ExitCode::kUsage, "data", "wanted a file or folder, found nothing at ", input.string(),
           "; check the name");
    const fs::path whole = fs::weakly_canonical(input);
    if (whole == output_)
      fail(ExitCode::kUsage, "data", "wanted different folders for input and output, found ",
           input.string(), " for both; name another output");
    if (fs::is_directory(status)) {
      refuse_unfinished(input);
      add_folder(input, whole.filename().string());
    } else {
      // Not the name of what a link points to: the Hugging Face cache is full of links.
      add_file(input, input.filename().string());
    }
  }

  std::vector<Source> finish(bool say_skipped) {
    if (!say_skipped) return std::move(sources_);
    for (const std::string& folder : skipped_folders_) log_warn("data: skipped folder " + folder);
    say_files("binary (NUL byte)", binary_);
    say_files("empty", empty_);
    say_files("not a regular file", special_);
    say_files("hidden (a name that begins with a dot)", hidden_);
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
      if (!entry.is_directory() && leaf.starts_with('.')) {
        hidden_.push_back(entry.path().string());  // .env may have secrets
      } else if (!entry.is_directory()) {
        add_file(entry.path(), name + "/" + leaf, true);
      } else if (leaf.starts_with('.') || leaf == "build" || entry.is_symlink() ||
                 fs::weakly_canonical(entry.path()) == output_) {
        skipped_folders_.push_back(entry.path().string());
      } else {
        add_folder(entry.path(), name + "/" + leaf);
      }
    }
  }

  void add_file(const fs::path& path, std::string name, bool in_folder = false) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) {
      special_.push_back(path.string());
      return;
    }
    if (status.st_size == 0) {
      empty_.push_back(path.string());
      return;
    }
    add_source({.path = path,
                .name = std::move(name),
                .bytes = static_cast<uint64_t>(status.st_size),
                .modified_ns = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec,
                .format = format_of(path),
                .hash = {}},
               in_folder);
  }

  void add_source(Source source, bool in_folder = false) {
    if (in_folder && source.format == SourceFormat::kJson &&
        !looks_like_rows(open_input(source)->read(0, kRowProbeBytes)))
      source.format = SourceFormat::kText;
    const bool columns =
        source.format == SourceFormat::kParquet || source.format == SourceFormat::kArrow;
    if (!columns && open_input(source)->read(0, kProbeBytes).find('\0') != std::string::npos)
      binary_.push_back(source.path.string());
    else
      sources_.push_back(std::move(source));
  }

  static void say_files(const char* why, const std::vector<std::string>& files) {
    if (files.empty()) return;
    constexpr size_t kShown = 5;
    std::string line = str("data: skipped ", counted(files.size(), "file"), ", ", why, ": ");
    for (size_t i = 0; i < std::min(files.size(), kShown); ++i) line += (i ? ", " : "") + files[i];
    if (files.size() > kShown) line += ", …";
    log_warn(line);
  }

  fs::path output_;
  std::vector<Source> sources_;
  std::vector<std::string> skipped_folders_, binary_, empty_, special_, hidden_;
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

void stop_if_asked(const char* doing) {
  if (stop_requested())
    fail(ExitCode::kStopped, "data", "stopped by ", stop_reason(), " while ", doing,
         "; run the same command to continue");
}

std::vector<Source> list_sources(const std::vector<fs::path>& inputs, const fs::path& output,
                                 bool say_skipped) {
  Lister lister(output);
  for (const fs::path& input : inputs) lister.add_input(input);
  return lister.finish(say_skipped);
}

void hash_sources(std::vector<Source>& sources, const fs::path& cache_path, int workers,
                  bool quiet) {
  const auto cache = read_cache(cache_path);
  std::vector<Source*> unknown;
  double total = 0;
  for (Source& source : sources) {
    if (!source.hash.empty()) continue;
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
        unknown[i]->hash = hash_file(unknown[i]->path, [] { stop_if_asked("hashing inputs"); });
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

void hash_and_keep(std::vector<Source>& sources, const fs::path& list, int workers, bool quiet) {
  try {
    hash_sources(sources, list, workers, quiet);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kStopped || has_index(list.parent_path())) throw;
    std::vector<Source> hashed;
    std::ranges::copy_if(sources, std::back_inserter(hashed),
                         [](const Source& source) { return !source.hash.empty(); });
    if (!hashed.empty()) write_sources(list, hashed);
    throw;
  }
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
  return hash_text(text);
}

std::vector<uint64_t> source_begins(const std::vector<Source>& sources) {
  std::vector<uint64_t> begins{0};
  for (const Source& source : sources)
    begins.push_back(checked_add(begins.back(), source.bytes, "input bytes"));
  return begins;
}

uint64_t last_document_end(const std::vector<Source>& sources, const std::vector<uint64_t>& begins,
                           size_t first, size_t last) {
  constexpr uint64_t kStep = 1 << 16;
  for (size_t i = last; i-- > first;) {
    if (sources[i].format != SourceFormat::kJsonl) return begins[i + 1];
    const auto file = open_input(sources[i]);
    for (uint64_t end = sources[i].bytes; end > 0;) {
      const uint64_t from = end - std::min(end, kStep);
      const std::string text = file->read(from, end - from);
      const size_t text_end = text.find_last_not_of(" \t\r\n");
      if (text_end != std::string::npos) return begins[i] + from + text_end + 1;
      end = from;
    }
  }
  return begins[first];
}

}  // namespace octavo::data
