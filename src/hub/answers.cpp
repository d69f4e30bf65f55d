#include "hub/answers.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/text.h"
#include "config/names.h"
#include "model_config/presets.h"

namespace octavo::hub {
namespace {

// What the guides name beside the tables of names; a slip of the finger is nearer to one of these
// than to another name.
constexpr std::string_view kKnownNames[] = {"meta-llama/Llama-3.2-1B-Instruct",
                                            "meta-llama/Meta-Llama-3.1-8B"};

bool has_owner(const Repo& repo) {
  return repo.id.find('/') != repo.id.npos;
}

// The names of `octavo names`, which have no owner.
std::vector<std::string> short_names(Kind kind) {
  std::vector<std::string> names;
  if (kind == Kind::kModel)
    for (const std::string_view hub : model_config::published_names())
      names.push_back(model_config::published(hub)->name);
  else
    for (const config::DatasetName& known : config::dataset_names()) names.emplace_back(known.name);
  return names;
}

// Names on the hub that this program knows of.
std::vector<std::string> hub_names(const RepoCache& cache) {
  std::vector<std::string> names = cached_ids(cache.root(), cache.repo().kind);
  for (const std::string_view known : model_config::published_names()) names.emplace_back(known);
  names.insert(names.end(), std::begin(kKnownNames), std::end(kKnownNames));
  for (const config::DatasetName& known : config::dataset_names()) names.emplace_back(known.hub);
  return names;
}

// The file or folder that lies where the name would as a path, and is called nearly so, or "".
std::string near_path(const std::string& name) {
  constexpr size_t kMostEntries = 10'000;
  const fs::path path(name);
  std::vector<std::string> entries;
  std::error_code error;
  fs::directory_iterator at(path.has_parent_path() ? path.parent_path() : ".", error), end;
  for (; !error && at != end && entries.size() < kMostEntries; at.increment(error))
    if (std::string entry = at->path().filename().string(); !entry.starts_with('.'))
      entries.push_back(std::move(entry));
  std::ranges::sort(entries);
  const std::vector<std::string_view> views(entries.begin(), entries.end());
  const std::string nearest = nearest_name(path.filename().string(), views);
  return nearest.empty() ? "" : (path.parent_path() / nearest).string();
}

// Files of data have such endings, repositories do not. What begins with . or / is no name at all.
bool ends_like_file(const std::string& name) {
  constexpr std::string_view kEndings[] = {
      ".jsonl", ".ndjson", ".json", ".parquet", ".arrow", ".feather",    ".txt",
      ".md",    ".csv",    ".tsv",  ".gz",      ".zst",   ".safetensors"};
  return std::ranges::any_of(kEndings,
                             [&](std::string_view ending) { return name.ends_with(ending); });
}

// More than that it may be one: an older data set of the hub has no owner either (imdb).
bool is_likely_path(const RepoCache& cache) {
  const std::string& name = cache.repo().id;
  return may_be_path(cache) && (ends_like_file(name) || !near_path(name).empty());
}

std::string perhaps(const RepoCache& cache) {
  std::vector<std::string> known = hub_names(cache);
  if (!has_owner(cache.repo()))
    for (std::string& name : short_names(cache.repo().kind)) known.push_back(std::move(name));
  const std::vector<std::string_view> names(known.begin(), known.end());
  const std::string nearest = nearest_name(cache.repo().id, names);
  return nearest.empty() || nearest == cache.repo().id ? "" : " Perhaps " + nearest + " is meant.";
}

[[noreturn]] void fail_refused(const HttpResponse& answer, const RepoCache& cache,
                               const Http& http) {
  const Repo& repo = cache.repo();
  const std::string page =
      http.endpoint() + (repo.kind == Kind::kDataset ? "/datasets/" : "/") + repo.id;
  const std::string with = http.has_token() ? "with the token given" : "without a token";
  if (answer.error_code == "RepoNotFound")
    fail(ExitCode::kUsage, "hub", repo.id, ": not found on ", http.endpoint(), " ", with,
         ": there is no such name, or it is private and wants HF_TOKEN.", path_words(cache),
         perhaps(cache));
  fail(ExitCode::kUsage, "hub", repo.id, ": access refused (HTTP ", answer.status, ") ", with,
       ". It is gated or private: accept its licence on ", page,
       ", make a token with read access there, and set HF_TOKEN (or put it into the file of "
       "HF_TOKEN_PATH)");
}

}  // namespace

bool may_be_path(const RepoCache& cache) {
  const std::string& name = cache.repo().id;
  if (std::ranges::count(hub_names(cache), name) > 0) return false;
  return !has_owner(cache.repo()) || ends_like_file(name) || !near_path(name).empty();
}

std::string path_words(const RepoCache& cache) {
  if (!may_be_path(cache)) return "";
  const std::string& name = cache.repo().id;
  const std::string near = near_path(name);
  return str(" No file or folder here is called ", name,
             near.empty() ? "" : ", but " + near + " is there", ": if a path is meant, type ",
             near.empty() ? "that of one that exists" : near, ".");
}

std::string describe(const HttpResponse& answer) {
  if (!answer.problem.empty()) return answer.problem;
  return str("HTTP ", answer.status, answer.error_code.empty() ? "" : " " + answer.error_code);
}

std::string manual_steps(const RepoCache& cache) {
  const bool model = cache.repo().kind == Kind::kModel;
  return str("Without a network: copy ",
             model ? "config.json, tokenizer.json and the safetensors files" : "the files",
             " into a folder and give its path instead of the name, or copy ",
             cache.folder().filename().string(), " from another machine's Hugging Face cache to ",
             cache.folder().string());
}

void fail_answer(const HttpResponse& answer, const RepoCache& cache, const Http& http,
                 const std::string& file) {
  const Repo& repo = cache.repo();
  const std::string what = file.empty() ? repo.id : repo.id + ", " + file;
  if (answer.problem.empty() && (answer.status == 401 || answer.status == 403))
    fail_refused(answer, cache, http);
  if (answer.problem.empty() && answer.status == 404) {
    if (answer.error_code == "RevisionNotFound")
      fail(ExitCode::kUsage, "hub", repo.id, ": there is no revision '", repo.revision,
           "'; give a branch, tag or commit that its page lists");
    fail(ExitCode::kUsage, "hub", what, ": not found on ", http.endpoint(), ", revision ",
         repo.revision, ".", path_words(cache), perhaps(cache));
  }
  if (answer.problem.find("certificate") != std::string::npos)
    fail(ExitCode::kEnvironment, "hub", what, ": ", http.endpoint(),
         " cannot be trusted: ", answer.problem,
         "; behind a proxy that opens TLS, set SSL_CERT_FILE to its certificates. ",
         manual_steps(cache));
  // Nobody could be asked about the name. To try again does not help where a path is meant.
  const bool mistyped = file.empty() && !answer.problem.empty() && is_likely_path(cache);
  // A partial file stays: the next run continues there.
  fail(mistyped ? ExitCode::kUsage : ExitCode::kEnvironment, "hub", what,
       ": cannot be fetched from ", http.endpoint(), ": ", describe(answer),
       file.empty() ? "" : "; what has arrived is kept, run again to continue", ".",
       path_words(cache), has_owner(repo) ? "" : perhaps(cache), " ", manual_steps(cache));
}

}  // namespace octavo::hub
