#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "hub/answers.h"
#include "hub/download.h"
#include "hub/environment.h"
#include "hub/hub.h"
#include "hub/splits.h"
#include "model_config/presets.h"

namespace octavo::hub {
namespace {

constexpr size_t kMaxCard = size_t{16} << 20;
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kTokenizer = "tokenizer.json";
constexpr const char* kCard = "README.md";

Repo repo_of(const std::string& name, Kind kind, const Options& options) {
  const std::optional<Repo> repo = parse_repo(name, kind, options.revision);
  if (repo) return *repo;
  const char* what = kind == Kind::kModel ? "model" : "data set";
  fail(ExitCode::kUsage, "hub", "wanted a ", what,
       " as a path that exists or as a name on the hub (org/name, perhaps @revision), found '",
       name, "', which is neither; see whether the path is right");
}

// Whether the safetensors files of a snapshot are all there.
bool has_weights(const RepoCache& cache, const std::string& commit) {
  if (cache.has(commit, kIndex)) {
    const fs::path path = cache.snapshot(commit) / kIndex;
    const Json index = read_json(path);
    std::set<std::string> files;
    for (const auto& item :
         json_field(index, "weight_map", Json::value_t::object, path.string()).items())
      if (item.value().is_string()) files.insert(item.value().get<std::string>());
    return !files.empty() && std::all_of(files.begin(), files.end(), [&](const auto& file) {
      return unsafe_name(file).empty() && cache.has(commit, file);
    });
  }
  const std::vector<std::string> names = cache.names(commit);
  return std::any_of(names.begin(), names.end(), [](const std::string& name) {
    // One shard of many without their index is a part of a download.
    return name.ends_with(".safetensors") && name.find('/') == std::string::npos &&
           name.find("-of-") == std::string::npos;
  });
}

// What of a model is not in the cache: "" when it is all there.
std::string missing_part(const RepoCache& cache, const std::string& commit, Parts parts) {
  if (parts == Parts::kTokenizerAlone) return cache.has(commit, kTokenizer) ? "" : kTokenizer;
  if (!cache.has(commit, "config.json") && !cache.has(commit, "adapter_config.json"))
    return "config.json";
  if (!cache.has(commit, kTokenizer) && !cache.known_absent(commit, kTokenizer)) return kTokenizer;
  return parts == Parts::kModel && !has_weights(cache, commit) ? "safetensors files" : "";
}

void check_online(const RepoCache& cache, bool offline, const std::string& why) {
  if (!offline) return;
  fail(ExitCode::kUsage, "hub", cache.repo().id, ": wanted it in the Hugging Face cache ",
       cache.root().string(), ", because offline is set; found ", why, ".", path_words(cache),
       " Run once with a network, or do it by hand. ", manual_steps(cache));
}

void say_cached(const RepoCache& cache, const std::string& commit) {
  log_info(str("[hub] ", cache.repo().id, ": from the Hugging Face cache, commit ",
               commit.substr(0, 12)));
}

std::string read_card_file(const RepoCache& cache, const std::string& commit) {
  return cache.has(commit, kCard) ? read_file(cache.snapshot(commit) / kCard, kMaxCard) : "";
}

std::vector<std::string> names_of(const Listing& listing) {
  std::vector<std::string> names;
  for (const RemoteFile& file : listing.files) names.push_back(file.name);
  return names;
}

Dataset dataset_of(const fs::path& folder, const std::vector<std::string>& files,
                   const std::string& split) {
  Dataset result{.folder = folder, .split = split, .files = {}};
  for (const std::string& name : files) result.files.push_back(join_inside(folder, name));
  return result;
}

// The split out of the cache alone, when it is certain that all of it is there.
std::optional<Dataset> cached_dataset(const RepoCache& cache, const SplitRequest& request,
                                      bool offline) {
  const std::optional<std::string> commit = cache.commit();
  if (!commit) return std::nullopt;
  std::error_code none;
  std::vector<std::string> names = cache.names(*commit);
  const bool listed = fs::is_regular_file(cache.tree(*commit), none);
  if (listed) {
    const fs::path tree = cache.tree(*commit);
    names = names_of(parse_tree(read_json(tree), *commit, tree.string()));
    const bool has_card = std::find(names.begin(), names.end(), kCard) != names.end();
    if (has_card && !cache.has(*commit, kCard) && !offline) return std::nullopt;
  }
  if (names.empty()) return std::nullopt;
  if (!listed && !offline) return std::nullopt;  // what is not here cannot be known
  const std::vector<std::string> files =
      files_of_split(names, read_card_file(cache, *commit), request);
  const bool whole = std::all_of(files.begin(), files.end(),
                                 [&](const auto& name) { return cache.has(*commit, name); });
  if (!whole || shards_missing(files)) return std::nullopt;
  if (!listed)
    log_warn(str("[hub] ", request.id, ": the cache does not say which files there are; the ",
                 files.size(), " found for split ", request.split, " are taken as all"));
  say_cached(cache, *commit);
  return dataset_of(cache.snapshot(*commit), files, request.split);
}

std::vector<RemoteFile> files_named(const Listing& listing, const std::vector<std::string>& names) {
  const std::set<std::string> wanted(names.begin(), names.end());
  std::vector<RemoteFile> files;
  for (const RemoteFile& file : listing.files)
    if (wanted.contains(file.name)) files.push_back(file);
  return files;
}

Dataset download_dataset(const RepoCache& cache, const SplitRequest& request,
                         const std::string& endpoint) {
  Http http(endpoint, read_token());
  const Listing listing = fetch_listing(http, cache);
  fetch_files(http, cache, listing.commit, files_named(listing, {kCard}));
  const std::vector<std::string> files =
      files_of_split(names_of(listing), read_card_file(cache, listing.commit), request);
  fetch_files(http, cache, listing.commit, files_named(listing, files));
  const fs::path tree = cache.tree(listing.commit);
  fs::create_directories(tree.parent_path());
  write_file_atomic(tree, tree_of(listing).dump(1));
  cache.write_ref(listing.commit);
  return dataset_of(cache.snapshot(listing.commit), files, request.split);
}

Dataset local_dataset(const fs::path& path, const SplitRequest& request) {
  if (fs::is_regular_file(path)) return {path.parent_path(), request.split, {path}};
  std::vector<std::string> names;
  for (const auto& entry : fs::recursive_directory_iterator(path))
    if (entry.is_regular_file())
      names.push_back(entry.path().lexically_relative(path).generic_string());
  std::sort(names.begin(), names.end());
  const fs::path card = path / kCard;
  const std::string text = fs::is_regular_file(card) ? read_file(card, kMaxCard) : "";
  return dataset_of(path, files_of_split(names, text, request), request.split);
}

fs::path find_model(const RepoCache& cache, const Options& options,
                    const Environment& environment) {
  std::string why = "nothing";
  if (const auto commit = cache.commit()) {
    why = missing_part(cache, *commit, options.parts);
    if (why.empty()) {
      say_cached(cache, *commit);
      return cache.snapshot(*commit);
    }
    why = "it without " + why;
  }
  check_online(cache, options.offline || environment.offline, why);
  Http http(environment.endpoint, read_token());
  const Listing listing = fetch_listing(http, cache);
  const std::vector<RemoteFile> files = model_files(listing, options.parts, cache.repo().id);
  fetch_files(http, cache, listing.commit, files);
  if (options.parts != Parts::kTokenizerAlone &&
      std::none_of(files.begin(), files.end(),
                   [](const RemoteFile& file) { return file.name == kTokenizer; })) {
    log_warn(str("[hub] ", cache.repo().id, " has no tokenizer.json; name another `tokenizer`"));
    cache.note_absent(listing.commit, kTokenizer);
  }
  const std::string missing = missing_part(cache, listing.commit, options.parts);
  if (!missing.empty())
    fail(ExitCode::kUsage, "hub", cache.repo().id, ": wanted ", missing,
         " in the repository, found none; ",
         options.parts == Parts::kTokenizerAlone ? "name another `tokenizer`" : "is it a model?");
  cache.write_ref(listing.commit);
  return cache.snapshot(listing.commit);
}

// The repository that the key tokenizer names. A word that is no model's name is a path.
std::string tokenizer_repo(const std::string& name) {
  if (name.empty() || name.ends_with(".json")) return "";
  const std::string repo = model_config::hub_name(name).value_or(name);
  return repo.find('/') == repo.npos || !parse_repo(repo, Kind::kModel, "main") ? "" : repo;
}

// What the file system refuses (a cache that may not be written, a full disk) in our words.
template <typename Work>
auto with_files(const Work& work) {
  try {
    return work();
  } catch (const fs::filesystem_error& error) {
    fail(ExitCode::kEnvironment, "hub", "files cannot be used: ", error.what(),
         "; see their permissions, or set HF_HUB_CACHE to another folder");
  }
}

}  // namespace

Options model_options(const config::Settings& settings) {
  return {.offline = settings.offline, .revision = settings.revision};
}

Options dataset_options(const config::Settings& settings) {
  return {.offline = settings.offline, .subset = settings.dataset_config};
}

bool is_hub_name(const std::string& name) {
  std::error_code none;
  return !fs::exists(name, none) && parse_repo(name, Kind::kModel, "main").has_value();
}

void refuse_other_family(const std::string& name) {
  const std::string_view family = model_config::unsupported_family(name);
  if (family.empty() || !is_hub_name(name)) return;
  const RepoCache cache(read_environment().cache, repo_of(name, Kind::kModel, {}));
  if (cache.commit()) return;
  std::string known;
  for (const model_config::Family* one : model_config::families())
    known += (known.empty() ? "" : ", ") + std::string(one->title);
  fail(ExitCode::kUsage, "hub", "wanted a model of ", known, ", found ", name, ", which is ",
       family, " and not implemented; octavo names lists models that are");
}

bool is_hub_tokenizer(const std::string& name) {
  std::error_code none;
  return !fs::exists(name, none) && !tokenizer_repo(name).empty();
}

std::string resolve_tokenizer(const std::string& name, const config::Settings& settings) {
  if (!is_hub_tokenizer(name)) return name;
  Options options = model_options(settings);
  options.revision = "main";
  options.parts = Parts::kTokenizerAlone;
  return resolve_model(tokenizer_repo(name), options).string();
}

fs::path resolve_model(const std::string& name, const Options& options) {
  std::error_code none;
  if (!name.empty() && fs::exists(name, none)) return name;
  const Environment environment = read_environment();
  const RepoCache cache(environment.cache, repo_of(name, Kind::kModel, options));
  return with_files([&] { return find_model(cache, options, environment); });
}

Dataset resolve_dataset(const std::string& name, const std::string& split, const Options& options) {
  const SplitRequest request{name, split.empty() ? "train" : split, options.subset};
  std::error_code none;
  if (!name.empty() && fs::exists(name, none))
    return with_files([&] { return local_dataset(name, request); });
  const Environment environment = read_environment();
  const RepoCache cache(environment.cache, repo_of(name, Kind::kDataset, options));
  const bool offline = options.offline || environment.offline;
  return with_files([&] {
    if (std::optional<Dataset> cached = cached_dataset(cache, request, offline)) return *cached;
    check_online(cache, offline, "not all files of split " + request.split);
    return download_dataset(cache, request, environment.endpoint);
  });
}

}  // namespace octavo::hub
