#include "checkpoint/upload.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <tuple>
#include <utility>

#include "base/failure.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/folders.h"
#include "checkpoint/manifest.h"
#include "checkpoint/stream_file.h"
#include "object_store/address.h"

namespace octavo::checkpoint {
namespace {

constexpr size_t kUploadChunk = size_t{10} << 20;  // a part of an object
constexpr size_t kMaxName = 200;                   // bytes of best_model

class LocalFile {
 public:
  explicit LocalFile(const fs::path& path)
      : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW)) {
    if (!fd_.open()) io_failed();
  }
  std::span<const std::byte> next() {
    size_t filled = 0;
    while (filled < buffer_.size()) {
      const ssize_t got = ::read(fd_.get(), buffer_.data() + filled, buffer_.size() - filled);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) io_failed();
      if (got == 0) break;
      filled += static_cast<size_t>(got);
    }
    return {buffer_.data(), filled};
  }

 private:
  // No damage: that a hash shows. A file server that is away comes back.
  [[noreturn]] void io_failed() const {
    const int problem = errno;
    fail_as(failure_of_errno(problem), "checkpoint", "cannot read ", path_.string(), ": ",
            std::strerror(problem));
  }

  fs::path path_;
  Fd fd_;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kUploadChunk);
};

void put_file(object_store::ObjectStore& store, const std::string& address, const PartEntry& file,
              UploadJob& job) {
  LocalFile local(join_inside(job.folder, file.name));
  RunningHash hash;
  uint64_t size = 0;
  const uint64_t sent_before = job.sent;
  try {
    store.put(object_store::join(address, file.name), [&]() -> std::span<const std::byte> {
      if (job.check) job.check();
      const auto bytes = local.next();
      hash.add(bytes);
      size += bytes.size();
      job.sent += bytes.size();
      if (job.on_progress) job.on_progress();
      // Thrown here, at the end: then there is no object.
      if (bytes.empty() && (size != file.size || hash.digest() != file.hash))
        fail(ExitCode::kDamaged, "checkpoint", (job.folder / file.name).string(),
             " is not what its manifest says; it is not uploaded");
      return bytes;
    });
  } catch (...) {
    job.sent = sent_before;
    throw;
  }
}

// What the server says that it has. All that is not there is sent again by the next attempt.
void check_uploaded_sizes(object_store::ObjectStore& store, const std::string& address,
                          const std::vector<PartEntry>& files, UploadJob& job) {
  std::map<std::string, uint64_t> sizes;
  for (const object_store::Object& object : store.list(address)) sizes[object.name] = object.bytes;
  std::string first;
  size_t wrong = 0;
  for (const PartEntry& file : files) {
    const auto found = sizes.find(file.name);
    if (found != sizes.end() && found->second == file.size) continue;
    job.done.erase(file.name);
    if (wrong++ == 0)
      first = str("wanted ", file.size, " bytes at ", object_store::join(address, file.name),
                  ", found ", found == sizes.end() ? "none" : str(found->second));
  }
  if (wrong > 0)
    fail(ExitCode::kEnvironment, "checkpoint", first, " (", wrong, " of ", files.size(),
         " files); the next attempt sends what is missing");
}

void note_best(object_store::ObjectStore& store, const UploadJob& job) {
  const std::string name = job.folder.filename().string();
  if (read_link(job.folder.parent_path(), kBestLink) != name) return;
  store.put_text(object_store::join(job.address, kBestLink), name + "\n");
}

// "" when there is none.
std::string remote_best(object_store::ObjectStore& store, const std::string& address) {
  const std::string object = object_store::join(address, kBestLink);
  if (store.list(object).empty()) return "";
  std::string name = store.get(object, kMaxName);
  while (name.ends_with('\n')) name.pop_back();
  return parse_step_folder(name) ? name : "";
}

struct RemoteCheckpoint {
  RemoteStep step;
  std::string created;
  bool permanent = false;
};

// Nothing, with a line, when it is damaged: the others are looked through all the same.
std::optional<Manifest> read_whole(object_store::ObjectStore& store, const RemoteStep& step) {
  const std::string seal = object_store::join(step.address, kManifestName);
  try {
    return parse_manifest(store.get(seal, JsonLimits{}.max_bytes), seal);
  } catch (const Error& error) {
    if (error.code() != ExitCode::kDamaged) throw;
    log_warn_once(
        str("checkpoint: ", error.what(), "; it is left alone, and does not count as kept"));
    return std::nullopt;
  }
}

}  // namespace

Uploaded upload_checkpoint(object_store::ObjectStore& store, UploadJob& job) {
  const std::string text = read_file(job.folder / kManifestName, JsonLimits{}.max_bytes);
  Manifest manifest = parse_manifest(text, (job.folder / kManifestName).string());
  job.extra = std::move(manifest.extra);
  // The step was saved again since the last attempt: what is there is of another checkpoint.
  if (std::exchange(job.manifest, text) != text) job.done.clear();
  const std::vector<PartEntry> files = all_files(manifest);
  job.bytes = 0;
  for (const PartEntry& file : files) job.bytes += file.size;
  const std::string address = object_store::join(job.address, step_folder_name(manifest.step));
  const std::string seal = object_store::join(address, kManifestName);
  if (job.done.empty() && !store.list(seal).empty()) {
    if (store.get(seal, JsonLimits{}.max_bytes) == text) {
      note_best(store, job);
      return Uploaded::kBefore;
    }
    // Of an earlier save of this step: first, so that no mixture of two passes for one.
    store.remove(seal);
  }
  for (const PartEntry& file : files) {
    if (job.done.contains(file.name)) continue;
    put_file(store, address, file, job);
    job.done.insert(file.name);
  }
  check_uploaded_sizes(store, address, files, job);
  if (job.check) job.check();
  store.put_text(seal, text);
  note_best(store, job);
  return Uploaded::kNow;
}

std::vector<RemoteStep> remote_steps(object_store::ObjectStore& store, const std::string& address) {
  std::map<int64_t, RemoteStep> steps;
  for (const object_store::Object& object : store.list(address)) {
    const size_t slash = object.name.find('/');
    if (slash == std::string::npos) continue;
    const std::string folder = object.name.substr(0, slash);
    const auto step = parse_step_folder(folder);
    if (!step || folder != step_folder_name(*step)) continue;
    RemoteStep& remote = steps[*step];
    remote.step = *step;
    remote.address = object_store::join(address, folder);
    remote.has_manifest |= object.name.substr(slash + 1) == kManifestName;
  }
  std::vector<RemoteStep> result;
  for (auto& item : steps) result.push_back(std::move(item.second));
  return result;
}

int64_t keep_uploaded(object_store::ObjectStore& store, const std::string& address, int keep,
                      int64_t permanent_every, const Json& extra,
                      const std::set<std::string>& waiting) {
  std::vector<RemoteCheckpoint> own;
  std::vector<RemoteStep> finished, unfinished;
  bool foreign = false;
  for (RemoteStep& step : remote_steps(store, address)) {
    if (!step.has_manifest && waiting.contains(step_folder_name(step.step))) continue;
    (step.has_manifest ? finished : unfinished).push_back(std::move(step));
  }
  // Nothing can go: then no manifest is asked for.
  if (unfinished.empty() && (keep == 0 || finished.size() <= static_cast<size_t>(keep))) return 0;
  for (const RemoteStep& step : finished) {
    const std::optional<Manifest> read = read_whole(store, step);
    if (!read) {  // whose it is nobody can say
      foreign = true;
      continue;
    }
    const Manifest& manifest = *read;
    if (is_of_another_run(text_of(manifest.extra, kRunName), text_of(manifest.extra, kRunId),
                          extra)) {
      foreign = true;
      log_warn_once(str("checkpoint: ", step.address,
                        " is another run's: it is left alone, and does not count as kept"));
      continue;
    }
    own.push_back({step, manifest.created, is_permanent(manifest, permanent_every)});
  }
  // Whose they are nobody can say where another run's checkpoints lie.
  if (!foreign)
    for (const RemoteStep& step : unfinished) {
      log_info(str("checkpoint: removing ", step.address, ", an upload that was not finished"));
      store.remove_below(step.address);
    }
  if (keep == 0) return 0;
  std::ranges::sort(own, [](const RemoteCheckpoint& a, const RemoteCheckpoint& b) {
    return std::tie(a.created, a.step.step) > std::tie(b.created, b.step.step);
  });
  const std::string best = remote_best(store, address);
  int64_t removed = 0;
  for (size_t i = static_cast<size_t>(keep); i < own.size(); ++i) {
    const RemoteStep& step = own[i].step;
    if (step_folder_name(step.step) == best || own[i].permanent) continue;
    log_info(str("checkpoint: removing ", step.address, ", the newest ", keep, " are kept"));
    store.remove(object_store::join(step.address, kManifestName));
    store.remove_below(step.address);
    ++removed;
  }
  return removed;
}

}  // namespace octavo::checkpoint
