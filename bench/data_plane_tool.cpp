// Makes token shards and reads them as training does. Driven by bench/data_plane.py.
// usage: data_plane_tool sparse FOLDER SHARDS TOKENS      shards of zeros, with holes
//        data_plane_tool random FOLDER SHARDS TOKENS      shards of random tokens
//        data_plane_tool forget FOLDER                    takes them out of the page cache
//        data_plane_tool read FOLDER LENGTH ROWS WORLD STEP SAMPLES [START]   one JSON line
//        data_plane_tool steps FOLDER LENGTH ROWS RANK WORLD STEPS MS CACHE BYTES MEETING    one
//        JSON line data_plane_tool order SAMPLES KEY COUNT [BLOCK WINDOW STEP RUN]      a JSON list
//        data_plane_tool quality SAMPLES LENGTH STEP SHARDS                   one JSON line

#include <fcntl.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <span>
#include <thread>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/error.h"
#include "data/dataset_index.h"
#include "data/token_data.h"

namespace octavo::data {
namespace {

constexpr uint64_t kVocabulary = 50'257;

std::string shard_name(uint64_t number) {
  char name[32];
  std::snprintf(name, sizeof name, "train-%06llu.tok", static_cast<unsigned long long>(number));
  return name;
}

void finish(const fs::path& folder, std::vector<ShardInfo> shards) {
  DatasetIndex index;
  index.tokenizer_name = "bytes";
  index.kind = {.vocab_size = kVocabulary, .tokenizer_fingerprint = "bench"};
  index.splits["train"].shards = std::move(shards);
  write_index(folder, index);
}

ShardWriter writer_for(const fs::path& folder, const std::string& name) {
  return ShardWriter(folder, name, {.vocab_size = kVocabulary, .tokenizer_fingerprint = "bench"});
}

void write_at(int fd, std::string_view bytes, uint64_t offset, const std::string& name) {
  if (::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset)) !=
      static_cast<ssize_t>(bytes.size()))
    fail(ExitCode::kEnvironment, "bench", "cannot write ", name, ": ", std::strerror(errno));
}

// One shard of zeros as ShardWriter makes it; the others have its header and tables, and a hole.
void make_sparse(const fs::path& folder, uint64_t count, uint64_t tokens) {
  ShardWriter writer = writer_for(folder, shard_name(0));
  const std::vector<int32_t> zeros(1 << 20);
  for (uint64_t done = 0; done < tokens;) {
    const auto some = std::span(zeros).first(std::min<uint64_t>(zeros.size(), tokens - done));
    writer.append(some);
    done += some.size();
  }
  const ShardInfo info = writer.finish();
  std::ifstream file(folder / info.name, std::ios::binary);
  std::string header(kShardHeaderBytes, '\0'),
      tables(info.bytes - kShardHeaderBytes - 2 * tokens, '\0');
  file.read(header.data(), static_cast<std::streamsize>(header.size()));
  file.seekg(static_cast<std::streamoff>(kShardHeaderBytes + 2 * tokens));
  file.read(tables.data(), static_cast<std::streamsize>(tables.size()));
  if (!file) fail(ExitCode::kEnvironment, "bench", "cannot read ", info.name);
  fs::remove(folder / info.name);
  std::vector<ShardInfo> shards;
  for (uint64_t i = 0; i < count; ++i) {
    shards.push_back(info);
    shards.back().name = shard_name(i);
    const fs::path path = folder / shards.back().name;
    const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) fail(ExitCode::kEnvironment, "bench", "cannot create ", path.string());
    write_at(fd, header, 0, path.string());
    write_at(fd, tables, info.bytes - tables.size(), path.string());
    ::close(fd);
  }
  finish(folder, std::move(shards));
}

void make_random(const fs::path& folder, uint64_t count, uint64_t tokens) {
  std::mt19937_64 random(1);
  std::vector<int32_t> some(1 << 16);
  std::vector<ShardInfo> shards;
  for (uint64_t i = 0; i < count; ++i) {
    ShardWriter writer = writer_for(folder, shard_name(i));
    for (uint64_t done = 0; done < tokens; done += some.size()) {
      for (size_t k = 0; k < some.size(); k += 4)  // four of one draw: 15 bits each
        for (uint64_t draw = random(), j = 0; j < 4; ++j, draw >>= 16)
          some[k + j] = static_cast<int32_t>(draw & 0x7fff);
      writer.append(std::span(some).first(std::min<uint64_t>(some.size(), tokens - done)));
    }
    shards.push_back(writer.finish());
  }
  finish(folder, std::move(shards));
}

void forget(const fs::path& folder) {
  for (const auto& entry : fs::directory_iterator(folder)) {
    const int fd = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) fail(ExitCode::kEnvironment, "bench", "cannot open ", entry.path().string());
    ::fdatasync(fd);
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

// A number of a file of /proc/self: "VmRSS:" of status in kB, "rchar:" of io in bytes.
double proc(const char* file, const std::string& key) {
  std::ifstream in(std::string("/proc/self/") + file);
  for (std::string word; in >> word;)
    if (word == key) {
      double value = 0;
      in >> value;
      return value;
    }
  return -1;
}

int64_t open_shards(const fs::path& folder) {
  int64_t count = 0;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const fs::path target = fs::read_symlink(entry.path(), error);
    count += !error && target.string().starts_with(folder.string()) ? 1 : 0;
  }
  return count;
}

struct ReadCase {
  int64_t length, rows;
  int world;
  uint64_t step, samples, start;
};

Json read(const fs::path& folder, const ReadCase& wanted) {
  const auto opening = std::chrono::steady_clock::now();
  const auto data = TokenData::open(folder, "train");
  ::malloc_trim(0);
  const double open_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - opening).count();
  const double index_rss = proc("status", "VmRSS:") / 1000;
  const Order order = order_for(*data, wanted.length, wanted.step);
  const double before = proc("io", "rchar:"), disk_before = proc("io", "read_bytes:");
  Loader loader(data,
                {.rows = wanted.rows,
                 .length = wanted.length,
                 .seed = 7,
                 .rank = wanted.world / 2,
                 .world = wanted.world,
                 .end = wanted.start + wanted.samples * static_cast<uint64_t>(wanted.world)},
                {wanted.start, order});
  const auto start = std::chrono::steady_clock::now();
  const std::clock_t cpu = std::clock();
  uint64_t samples = 0, batches = 0, sum = 0;
  double resident = 0;
  int64_t files = 0;
  for (uint64_t at = wanted.start; at < loader.end(); ++batches) {
    const Batch batch = loader.next();
    samples += batch.samples.size();
    at = batch.after.samples;
    sum += static_cast<uint64_t>(batch.inputs.back());
    if (batches % 64 == 0) {
      files = std::max(files, open_shards(fs::canonical(folder)));
      resident = std::max(resident, proc("status", "VmRSS:") / 1000);
    }
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const double used = static_cast<double>(samples) * static_cast<double>(wanted.length) *
                      static_cast<double>(data->token_bytes());
  return {{"tokens", data->tokens()},
          {"lanes", order.lanes()},
          {"window", order.window},
          {"run", order.run},
          {"samples", samples},
          {"sum", sum},
          {"open_seconds", open_seconds},
          {"seconds", seconds},
          {"cpu_us_a_sample", 1e6 * static_cast<double>(std::clock() - cpu) / CLOCKS_PER_SEC /
                                  static_cast<double>(samples)},
          {"us_a_sample", 1e6 * seconds / static_cast<double>(samples)},
          {"mb_a_second", used / 1e6 / seconds},
          {"used_bytes", used},
          {"amplification", (proc("io", "rchar:") - before) / used},
          {"disk_amplification", (proc("io", "read_bytes:") - disk_before) / used},
          {"index_mb", index_rss},
          {"resident_mb", resident},
          {"files", files}};
}

struct StepsCase {
  int64_t length, rows;
  int rank, world;
  int64_t steps, milliseconds;
};

// Where ranks wait for each other in every step, as the collectives of training make them: a number
// at the start of a file, of how often one of them came.
class Meeting {
 public:
  Meeting(const fs::path& file, int ranks) : ranks_(static_cast<uint64_t>(ranks)) {
    const int opened = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
    void* mapped = ::mmap(nullptr, sizeof *came_, PROT_READ | PROT_WRITE, MAP_SHARED, opened, 0);
    ::close(opened);
    if (mapped == MAP_FAILED) fail(ExitCode::kEnvironment, "bench", "no shared ", file.string());
    came_ = static_cast<uint64_t*>(mapped);
  }
  ~Meeting() { ::munmap(came_, sizeof *came_); }
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;

  void wait() {
    const std::atomic_ref came(*came_);
    const uint64_t all = (came.fetch_add(1) / ranks_ + 1) * ranks_;
    while (came.load() < all) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

 private:
  uint64_t* came_ = nullptr;
  uint64_t ranks_;
};

// A rank whose step takes so long without the loader, and what it waits for data beside it. In the
// order of large data, whatever the size.
Json steps(const fs::path& folder, const StepsCase& wanted, const LocalCache& cache,
           Meeting& meeting) {
  const auto data = TokenData::open(folder, "train", TokenData::kMaxMappedShards, cache);
  const auto samples_of_step =
      static_cast<uint64_t>(wanted.rows) * static_cast<uint64_t>(wanted.world);
  const uint64_t bytes = static_cast<uint64_t>(wanted.length) * data->token_bytes();
  const Order order = order_for((uint64_t{1} << 40) / bytes, bytes, samples_of_step);
  Loader loader(data,
                {.rows = wanted.rows,
                 .length = wanted.length,
                 .seed = 7,
                 .rank = wanted.rank,
                 .world = wanted.world,
                 .end = samples_of_step * static_cast<uint64_t>(wanted.steps)},
                {0, order});
  double first = 0, most = 0, sum = 0;
  int64_t late = 0, last_late = 0;
  uint64_t tokens = 0;
  for (int64_t step = 0; step < wanted.steps; ++step) {
    const double before = loader.wait_seconds();
    const Batch batch = loader.next();
    const double waited = loader.wait_seconds() - before;
    for (const int32_t token : batch.inputs) tokens += static_cast<uint64_t>(token);
    if (step == 0) {
      first = waited;
    } else {
      most = std::max(most, waited);
      sum += waited;
      if (waited > 0.001) ++late, last_late = step;
    }
    meeting.wait();
    std::this_thread::sleep_for(std::chrono::milliseconds(wanted.milliseconds));
  }
  const double used = static_cast<double>(wanted.steps * wanted.rows) * static_cast<double>(bytes);
  return {{"first_seconds", first},
          {"most_seconds", most},
          {"waited_seconds", sum},
          {"late_steps", late},
          {"last_late_step", last_late},
          {"token_sum", tokens},
          {"lanes", order.lanes()},
          {"amplification", static_cast<double>(loader.bytes_read()) / used}};
}

// How batches of an order are made up, beside those of independent draws.
Json quality_of(const Sampler& sampler, uint64_t samples, uint64_t step, uint64_t shards) {
  constexpr uint64_t kSteps = 1000;
  // Shares of the samples by distance, in twentieths of the data; of the steps by share, in
  // hundredths, the last for all that is more.
  std::vector<double> distances(20), shares(30);
  double distance = 0, distinct = 0, variance = 0;
  const uint64_t per_shard = samples / shards + 1;
  for (uint64_t k = 0; k < kSteps; ++k) {
    // Steps all over the epoch.
    const uint64_t first = samples / step / kSteps * k * step;
    std::set<uint64_t> seen;
    double share = 0;  // of the first tenth of the data: a source of its own, say
    for (uint64_t i = 0; i < step; ++i) {
      const uint64_t sample = sampler.at(first + i), next = sampler.at(first + i + 1);
      const double apart = std::abs(static_cast<double>(next) - static_cast<double>(sample)) /
                           static_cast<double>(samples);
      distance += apart;
      distances[std::min<size_t>(19, static_cast<size_t>(20 * apart))] +=
          1.0 / static_cast<double>(kSteps * step);
      seen.insert(sample / per_shard);
      share += sample < samples / 10 ? 1 : 0;
    }
    distinct += static_cast<double>(seen.size());
    share /= static_cast<double>(step);
    variance += (share - 0.1) * (share - 0.1);
    shares[std::min<size_t>(29, static_cast<size_t>(100 * share))] += 1.0 / kSteps;
  }
  return {{"mean_distance", distance / static_cast<double>(kSteps * step)},
          {"shards_in_a_step", distinct / kSteps},
          {"share_spread", std::sqrt(variance / kSteps)},
          {"distances", distances},
          {"shares", shares}};
}

int main_of(const std::vector<std::string>& words) {
  const auto number = [&](size_t i) { return std::stoull(words.at(i)); };
  const std::string& verb = words.at(0);
  if (verb == "sparse" || verb == "random") {
    fs::create_directories(words.at(1));
    (verb == "sparse" ? make_sparse : make_random)(words.at(1), number(2), number(3));
  } else if (verb == "forget") {
    forget(words.at(1));
  } else if (verb == "read") {
    const ReadCase wanted{static_cast<int64_t>(number(2)),
                          static_cast<int64_t>(number(3)),
                          static_cast<int>(number(4)),
                          number(5),
                          number(6),
                          words.size() > 7 ? number(7) : 0};
    std::printf("%s\n", read(words.at(1), wanted).dump().c_str());
  } else if (verb == "steps") {
    const StepsCase wanted{static_cast<int64_t>(number(2)), static_cast<int64_t>(number(3)),
                           static_cast<int>(number(4)),     static_cast<int>(number(5)),
                           static_cast<int64_t>(number(6)), static_cast<int64_t>(number(7))};
    Meeting meeting(words.at(10), wanted.world);
    const Json json = steps(words.at(1), wanted, {words.at(8), number(9)}, meeting);
    std::printf("%s\n", json.dump().c_str());
  } else if (verb == "order") {
    const Order order =
        words.size() > 4 ? Order{number(4), number(5), number(6), number(7)} : Order{};
    const Sampler sampler(number(1), number(2), true, order);
    std::vector<uint64_t> places;
    for (uint64_t i = 0; i < number(3); ++i) places.push_back(sampler.at(i));
    std::printf("%s\n", Json(places).dump().c_str());
  } else {
    const uint64_t samples = number(1), step = number(3), shards = number(4);
    const Order order = order_for(samples, 2 * number(2), step);
    const Json json = {
        {"blocks", quality_of(Sampler(samples, 5, true, order), samples, step, shards)},
        {"uniform", quality_of(Sampler(samples, 5, true), samples, step, shards)}};
    std::printf("%s\n", json.dump().c_str());
  }
  return 0;
}

}  // namespace
}  // namespace octavo::data

int main(int argc, char** argv) {
  try {
    return octavo::data::main_of({argv + 1, argv + argc});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "data_plane_tool: %s\n", error.what());
    return 1;
  }
}
