// Flipped bits and cut files of checkpoints of one process and of three ranks, and retention among
// damaged ones.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <random>

#include "checkpoint/manifest.h"
#include "checkpoint_faults.h"

namespace octavo::checkpoint::faults {
namespace {

// A part of a file, and what a message about damage in it must have.
struct Region {
  fs::path checkpoint, file;
  uint64_t begin = 0, size = 0;
  std::string kind;                 // header, tensor, manifest, list
  std::string group, tensor, word;  // tensor: its name, and how it is quoted
};

std::vector<Region> regions_of(const fs::path& checkpoint) {
  std::vector<Region> regions;
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(kShardSuffix)) {
      regions.push_back({checkpoint, entry.path(), 0, entry.file_size(),
                         name == kManifestName ? "manifest" : "list", "", "", ""});
      continue;
    }
    const SafetensorsReader reader(entry.path());
    uint64_t header = reader.bytes().size();
    const std::string group = name.substr(0, name.find_first_of(".-"));
    for (const auto& item : reader.tensors()) {
      const auto bytes = reader.tensor_bytes(item.first);
      if (bytes.empty()) continue;
      const auto begin = static_cast<uint64_t>(bytes.data() - reader.bytes().data());
      header = std::min(header, begin);
      regions.push_back({checkpoint, entry.path(), begin, bytes.size(), "tensor", group, item.first,
                         quote_name(item.first)});
    }
    regions.push_back({checkpoint, entry.path(), 0, header, "header", "", "", ""});
  }
  return regions;
}

class OpenFile {
 public:
  explicit OpenFile(const fs::path& path) : fd_(::open(path.c_str(), O_RDWR | O_CLOEXEC)) {
    if (fd_ < 0) fail(ExitCode::kEnvironment, "faults", "cannot open ", path.string());
  }
  ~OpenFile() { ::close(fd_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  void flip(uint64_t at, int bit) const {
    char byte = 0;
    const auto offset = static_cast<off_t>(at);
    bool done = ::pread(fd_, &byte, 1, offset) == 1;
    byte = static_cast<char>(byte ^ (1 << bit));
    done = done && ::pwrite(fd_, &byte, 1, offset) == 1;
    if (!done) fail(ExitCode::kEnvironment, "faults", "cannot flip a bit");
  }

 private:
  int fd_;
};

bool is_refused(const std::function<void()>& action, const std::string& word) {
  try {
    action();
  } catch (const Error& error) {
    return error.code() == ExitCode::kDamaged && has(error.what(), word);
  }
  return false;
}

// "" when every way to read finds the damage and names file and tensor.
std::string undetected(const Region& region) {
  const auto problems = verify(region.checkpoint);
  const std::string name = region.file.filename().string();
  const std::string place = name + (region.tensor.empty() ? "" : " tensor " + region.tensor);
  if (problems.empty()) return "verify() does not see damage of " + place;
  if (!has(problems[0], name) || !has(problems[0], region.word))
    return str("wanted a message that names ", place, ", found: ", problems[0]);
  if (!is_refused([&] { load(region.checkpoint); }, region.word))
    return "load() does not see damage of " + place;
  // Ranks read what they need and no more: the tensor itself must be refused too.
  if (!region.tensor.empty() &&
      !is_refused([&] { tensor(open(region.checkpoint), region.group, region.tensor); },
                  region.word))
    return "tensor() does not see damage of " + place;
  return "";
}

std::string flip_problem(const Region& region, std::mt19937_64& random) {
  const uint64_t at = region.begin + random() % region.size;
  const int bit = static_cast<int>(random() % 8);
  OpenFile(region.file).flip(at, bit);
  std::string problem = undetected(region);
  OpenFile(region.file).flip(at, bit);
  return problem;
}

std::string cut_problem(const Region& region, std::mt19937_64& random) {
  const std::string content = read_text(region.file);
  fs::resize_file(region.file, random() % content.size());
  Region file = region;
  file.tensor = file.word = "";
  std::string problem = undetected(file);
  write_text(region.file, content);
  return problem;
}

}  // namespace

int flip_and_cut(const fs::path& directory, int flips, int cuts) {
  std::map<std::string, std::vector<Region>> kinds;
  for (const int ranks : {1, 3}) {
    const std::string error =
        save_planned(directory / str(ranks), {1, 10.0 * ranks, false, 0}, ranks, false, "first");
    if (!error.empty()) fail(ExitCode::kEnvironment, "faults", error);
    for (Region& region : regions_of(directory / str(ranks) / "step-00000001"))
      kinds[region.kind].push_back(std::move(region));
  }
  std::mt19937_64 random(1000);
  std::map<std::string, int> tried;
  int detected = 0;
  for (int i = 0; i < flips + cuts; ++i) {
    auto kind = kinds.begin();
    std::advance(kind, i % static_cast<int>(kinds.size()));
    const Region& region = kind->second[random() % kind->second.size()];
    const std::string problem =
        i < flips ? flip_problem(region, random) : cut_problem(region, random);
    ++tried[(i < flips ? "flips_" : "cuts_") + kind->first];
    detected += problem.empty() ? 1 : 0;
    if (!problem.empty()) std::fprintf(stderr, "%s\n", problem.c_str());
  }
  for (const int ranks : {1, 3})
    detected -=
        problem_of(directory / str(ranks) / "step-00000001", {10.0 * ranks}).empty() ? 0 : 1;
  std::printf("%s\n",
              Json{{"tried", flips + cuts}, {"detected", detected}, {"of", tried}}.dump().c_str());
  return detected == flips + cuts ? 0 : 1;
}

namespace {

enum class DamageKind { kFlip, kCut, kManifest };

void harm(const fs::path& checkpoint, DamageKind how) {
  const fs::path file = checkpoint / "model.safetensors";
  if (how == DamageKind::kFlip) OpenFile(file).flip(fs::file_size(file) - 3, 5);
  if (how == DamageKind::kCut) fs::resize_file(file, fs::file_size(file) / 2);
  if (how == DamageKind::kManifest) fs::resize_file(checkpoint / kManifestName, 40);
}

// One good, the newest of two damaged, then a save that keeps `keep` and may fail at a stage.
std::string damaged_newest(const fs::path& directory, DamageKind how, int keep,
                           const std::string& fails_at) {
  save_planned(directory, {1, 10, false, 0}, 1, false, "a");
  save_planned(directory, {2, 20, false, 0}, 1, false, "a");
  harm(directory / "step-00000002", how);
  const std::string error =
      save_planned(directory, {3, 30, false, keep}, 1, false, "a", [&](std::string_view stage) {
        if (stage == fails_at) fail(ExitCode::kEnvironment, "faults", "the disk is full");
      });
  if (error.empty() != fails_at.empty()) return "the save ended otherwise than wanted: " + error;
  const double latest = resolved_mark(directory, "latest");
  // After "installed" the new one is there, and the links have not moved.
  const double wanted = fails_at.empty() || fails_at == "latest" ? 30 : 10;
  return latest == wanted ? "" : str("latest is save ", latest, ", wanted ", wanted);
}

// What was just saved is damaged before retention looks at it.
std::string damaged_at_once(const fs::path& directory, DamageKind how, int keep) {
  save_planned(directory, {1, 10, false, 0}, 1, false, "a");
  if (keep > 1) {
    save_planned(directory, {2, 20, false, 0}, 1, false, "a");
    harm(directory / "step-00000002", DamageKind::kCut);
  }
  save_planned(directory, {3, 30, false, keep}, 1, false, "a", [&](std::string_view stage) {
    if (stage == "latest") harm(directory / "step-00000003", how);
  });
  const double latest = resolved_mark(directory, "latest");
  return latest == 10 ? "" : str("latest is save ", latest, ", wanted the good one");
}

}  // namespace

int try_retention(const fs::path& directory) {
  int tried = 0, lost = 0;
  const auto attempt = [&](const std::function<std::string(const fs::path&)>& body) {
    std::string problem;
    try {
      problem = body(directory / str(tried));
    } catch (const std::exception& error) {
      problem = error.what();
    }
    ++tried;
    lost += problem.empty() ? 0 : 1;
    if (!problem.empty()) std::fprintf(stderr, "retention %d: %s\n", tried, problem.c_str());
  };
  for (const DamageKind how : {DamageKind::kFlip, DamageKind::kCut, DamageKind::kManifest})
    for (const int keep : {1, 2}) {
      for (const char* fails_at : {"", "folder", "model.safetensors", "manifest", "installed"})
        attempt([&](const fs::path& path) { return damaged_newest(path, how, keep, fails_at); });
      attempt([&](const fs::path& path) { return damaged_at_once(path, how, keep); });
    }
  std::printf("%s\n", Json{{"tried", tried}, {"lost", lost}}.dump().c_str());
  return lost == 0 ? 0 : 1;
}

}  // namespace octavo::checkpoint::faults
