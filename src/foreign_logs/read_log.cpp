#include <algorithm>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/printable.h"
#include "base/text.h"
#include "foreign_logs/readers.h"

namespace octavo::foreign_logs {
namespace {

constexpr size_t kMostStateBytes = size_t{128} << 20, kHeadBytes = size_t{64} << 10;
constexpr size_t kMostEntriesSeen = 100'000;
constexpr int kDeepestFolder = 4;
constexpr std::string_view kEventFormat = "TensorBoard event files",
                           kWandbFormat = "W&B offline files";

// What is looked for in a folder, the first first. One run has several files of some, when it was
// resumed: they are read in the order of their names, which are dates.
struct FolderRule {
  std::string_view pattern;  // of the file's name
  bool below;                // also in folders below
  bool several;
};
constexpr FolderRule kFolderRules[] = {
    {"trainer_log.jsonl", false, false},
    {"trainer_state.json", false, false},
    {"*.wandb", true, true},
    {"*.tfevents.*", true, true},
    {"main.log", false, false},
    {"metrics.csv", true, false},
    {"*.jsonl", false, false},
    {"*.csv", false, false},
    {"*.log", false, false},
    {"*.out", false, false},
    {"*.txt", false, false},
};

std::string shown_path(const fs::path& path) {
  return printable(path.string(), 400);
}

std::vector<fs::path> files_like(const fs::path& folder, const FolderRule& rule) {
  std::vector<fs::path> found;
  std::error_code error;
  size_t seen = 0;
  for (fs::recursive_directory_iterator
           at(folder, fs::directory_options::skip_permission_denied, error),
       end;
       !error && at != end && ++seen <= kMostEntriesSeen; at.increment(error)) {
    if (at.depth() >= (rule.below ? kDeepestFolder : 0)) at.disable_recursion_pending();
    std::error_code none;
    if (at->is_regular_file(none) && glob_match(rule.pattern, at->path().filename().string()))
      found.push_back(at->path());
  }
  std::ranges::sort(found);
  return found;
}

// transformers keeps the whole log in every checkpoint; the last has the most.
fs::path last_checkpoint_state(const fs::path& folder) {
  fs::path last;
  int64_t most = -1;
  std::error_code error, none;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    constexpr std::string_view kPrefix = "checkpoint-";
    if (!name.starts_with(kPrefix) || !fs::is_regular_file(at->path() / "trainer_state.json", none))
      continue;
    const std::string digits = name.substr(kPrefix.size());
    if (digits.empty() || digits.size() > 15 ||
        digits.find_first_not_of("0123456789") != digits.npos)
      continue;
    if (const int64_t step = std::stoll(digits); step > most)
      most = step, last = at->path() / "trainer_state.json";
  }
  return last;
}

// Several files of one run are in one folder, or are W&B's of one run id.
void check_one_run(const fs::path& folder, const std::vector<fs::path>& files,
                   const FolderRule& rule) {
  std::set<std::string> runs;
  for (const fs::path& file : files)
    runs.insert(rule.pattern == "*.wandb" ? file.filename().string()
                : rule.several            ? file.parent_path().string()
                                          : file.string());
  if (runs.size() > 1)
    fail(ExitCode::kUsage, "foreign_logs", shown_path(folder),
         ": wanted the log of one run, found ", runs.size(), " (", rule.pattern,
         "): ", printable(*runs.begin(), 200), ", ", printable(*std::next(runs.begin()), 200),
         runs.size() > 2 ? ", …" : "", "; name one");
}

std::vector<fs::path> files_of(const fs::path& path, std::string& remark) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::vector<fs::path> chosen;
  std::vector<std::string> others;
  for (const FolderRule& rule : kFolderRules) {
    std::vector<fs::path> found = files_like(path, rule);
    if (found.empty() && rule.pattern == "trainer_state.json")
      if (const fs::path state = last_checkpoint_state(path); !state.empty()) found = {state};
    if (found.empty()) continue;
    if (chosen.empty()) {
      check_one_run(path, found, rule);
      chosen = std::move(found);
    } else if (std::ranges::find(found, chosen.front()) == found.end()) {
      others.push_back(found.front().lexically_relative(path).string());
    }
  }
  if (chosen.empty())
    fail(ExitCode::kUsage, "foreign_logs",
         "wanted a run's folder with metrics.jsonl, or a log of another trainer (", known_formats(),
         "), found none in ", shown_path(path), "; runs are in runs/<run_name>");
  if (!others.empty())
    remark = str(chosen.front().lexically_relative(path).string(), " was read; ",
                 printable(join(others, ", "), 300), " is there too");
  return chosen;
}

std::string head_of(const fs::path& path) {
  std::error_code error;
  if (!fs::is_regular_file(path, error))
    fail(ExitCode::kUsage, "foreign_logs",
         "wanted a run's folder or a trainer's log, found none in ", shown_path(path),
         fs::exists(path, error) ? "" : ", which is not there", "; check the path");
  std::ifstream in(path, std::ios::binary);
  std::string head(kHeadBytes, '\0');
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(in.gcount()));
  return head;
}

std::string_view view_of(const MappedFile& file) {
  const auto bytes = file.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool parses(std::string_view line) {
  try {
    return parse_python_json(line, "line", kHeadBytes).is_object();
  } catch (const Error&) {
    return false;
  }
}

[[noreturn]] void refuse_format(const fs::path& path) {
  fail(ExitCode::kUsage, "foreign_logs", shown_path(path),
       ": wanted a log of one of these: ", known_formats(),
       "; found none of their lines or bytes in it");
}

// JSON: a document with log_history, or a record in each line.
Log read_json_log(const fs::path& path, std::string_view head, Metrics& metrics) {
  const std::string_view first = head.substr(0, head.find('\n'));
  const bool state = head.find("\"log_history\"") != head.npos || !parses(first);
  if (!state || head.find("\"current_steps\"") != head.npos) {
    read_jsonl(path, metrics);
    const bool factory = first.find("\"current_steps\"") != first.npos;
    return metrics.log(path, factory ? "LLaMA-Factory's trainer_log.jsonl" : "JSONL");
  }
  Json document;
  try {
    document = parse_python_json(read_file(path, kMostStateBytes), path.filename().string(),
                                 kMostStateBytes);
  } catch (const Error& error) {
    // Neither a document nor, by its first line, records; the rest of its lines may still be.
    read_jsonl(path, metrics);
    if (metrics.values() == 0) throw;
    return metrics.log(path, "JSONL");
  }
  if (!document.is_object() || !document.contains("log_history") ||
      !document["log_history"].is_array())
    refuse_format(path);
  read_trainer_state(document, metrics);
  return metrics.log(path, "transformers' trainer_state.json");
}

Log read_files(const std::vector<fs::path>& files, const std::string& run, Metrics metrics) {
  const fs::path& path = files.front();
  const std::string head = head_of(path);
  if (is_wandb_file(head) || is_event_file(head)) {
    const bool wandb = is_wandb_file(head);
    for (const fs::path& file : files) {
      const MappedFile mapped(file);
      const std::string name = file.filename().string();
      wandb ? read_wandb_file(view_of(mapped), name, metrics)
            : read_event_file(view_of(mapped), name, metrics);
    }
    if (files.size() > 1) metrics.remark(str(files.size(), " files of one run were read"));
    return metrics.log(path, std::string(wandb ? kWandbFormat : kEventFormat));
  }
  std::string_view text = head;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  const size_t begin = text.find_first_not_of(" \t\r\n");
  text.remove_prefix(std::min(begin, text.size()));
  if (text.starts_with('{')) return read_json_log(path, text, metrics);
  if (is_csv(text.substr(0, text.find('\n')))) {
    read_csv(path, run, metrics);
    return metrics.log(path, "CSV table");
  }
  if (std::optional<Log> log = read_text_log(path, metrics.options())) return *std::move(log);
  refuse_format(path);
}

}  // namespace

std::string known_formats() {
  return "TensorBoard event files, W&B offline files (.wandb), CSV with a step column (W&B's "
         "export, Lightning), JSONL with a step, transformers' trainer_state.json, LLaMA-Factory's "
         "trainer_log.jsonl, text logs of Megatron-LM, torchtitan, nanoGPT, nanochat and llm.c";
}

Log read_log(const fs::path& path, const Options& options) {
  std::error_code error;
  fs::path file = path;
  std::string run, remark;
  const std::string text = path.string();
  if (const size_t mark = text.rfind('#'); mark != text.npos && !fs::exists(path, error)) {
    file = text.substr(0, mark);
    run = text.substr(mark + 1);
  }
  Log log = read_files(files_of(file, remark), run, Metrics(options));
  log.path = path;
  if (!remark.empty()) log.remarks.push_back(remark);
  return log;
}

}  // namespace octavo::foreign_logs
