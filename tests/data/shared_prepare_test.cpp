// A shared preparation gives the bytes of one process, whatever is prepared and whoever is killed.

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <set>
#include <thread>

#include "data/chunks.h"
#include "data/dataset_index.h"
#include "data/work_folder.h"
#include "helpers.h"

namespace octavo::data {
namespace {

void expect_same_shared(PrepareOptions options, const fs::path& scratch) {
  options.output = scratch / "one";
  prepare(options);
  options.output = scratch / "shared";
  options.shared = true;
  prepare(options);
  EXPECT_TRUE(get_folder(scratch / "one") == get_folder(scratch / "shared"));
}

TEST(SharedPrepare, TextsAndRowsAreThoseOfOneProcess) {
  Scratch scratch;
  put_file(scratch / "in/a.jsonl", make_jsonl(5 << 20, 1));
  put_file(scratch / "in/b.jsonl", make_jsonl(300'000, 2) + "\n\n");
  for (uint64_t i = 0; i < 5; ++i) put_file(scratch / str("in/", i, ".txt"), make_text(400'000, i));
  put_file(scratch / "in/z.json", "[{\"text\": \"one\"}, {\"text\": \"two\"}]");
  PrepareOptions options = quiet_options({scratch / "in"}, {});
  options.shard_tokens = 333'333;
  expect_same_shared(options, scratch.path());
}

TEST(SharedPrepare, DataSetsThatHoldOutEachAPart) {
  Scratch scratch;
  put_file(scratch / "a.jsonl", make_jsonl(1'500'000, 1));
  put_file(scratch / "b.jsonl", make_jsonl(1'500'000, 2));
  put_file(scratch / "c.jsonl", make_jsonl(500'000, 3));
  PrepareOptions options =
      quiet_options({scratch / "a.jsonl", scratch / "b.jsonl", scratch / "c.jsonl"}, {});
  options.sets = {{.name = "a", .inputs = 1, .val_inputs = 0, .val_split = {}},
                  {.name = "b", .inputs = 1, .val_inputs = 0, .val_split = {}},
                  {.name = "c", .inputs = 1, .val_inputs = 0, .val_split = {}}};
  options.shard_tokens = 200'000;
  expect_same_shared(options, scratch.path());
}

TEST(SharedPrepare, PackedRowsAreThoseOfOneProcess) {
  Scratch scratch;
  std::mt19937_64 random(5);
  std::string rows;
  while (rows.size() < (3 << 20)) {
    std::string prompt = make_text(10 + random() % 300, random());
    std::erase(prompt, '\n');
    rows += str("{\"prompt\": \"", prompt, "\", \"response\": \"", random(), "\"}\n");
  }
  put_file(scratch / "rows.jsonl", rows);
  PrepareOptions options = quiet_options({scratch / "rows.jsonl"}, {});
  options.max_seq_length = 256;
  options.shard_tokens = 300'000;
  expect_same_shared(options, scratch.path());
}

TEST(SharedPrepare, ChunksCoverEveryLineOnce) {
  Scratch scratch;
  put_file(scratch / "a.jsonl", make_jsonl(3 << 20, 1) + make_jsonl(100, 2) + "{}");
  put_file(scratch / "b.jsonl", std::string(3 << 20, 'x') + "\nlast");  // longer than a chunk
  put_file(scratch / "c.txt", make_text(2 << 20, 3));
  const auto sources =
      list_sources({scratch / "a.jsonl", scratch / "b.jsonl", scratch / "c.txt"}, scratch / "out");
  std::string all, wanted;
  for (const char* name : {"a.jsonl", "b.jsonl", "c.txt"}) wanted += get_file(scratch / name);
  const auto chunks = cut_chunks(sources);
  EXPECT_GE(chunks.size(), 7u);
  for (const Chunk& nominal : chunks) {
    const Chunk chunk = at_lines(sources, nominal);
    UnitReader reader(sources, chunk.begin, {}, {}, chunk.end);
    while (const auto unit = reader.next()) all += unit->text;
  }
  EXPECT_TRUE(all == wanted);
}

TEST(SharedPrepare, OtherOptionsAreRefusedWhileItIsUnfinished) {
  Scratch scratch;
  put_file(scratch / "in.txt", make_text(5000, 1));
  PrepareOptions options = quiet_options({scratch / "in.txt"}, scratch / "out");
  {
    WorkFolder work(scratch / "out");
    work.publish("plan", {{"plan", "another"}});
  }
  options.shared = true;
  expect_failure([&] { prepare(options); }, ExitCode::kUsage, {"other inputs", "delete"});
  options.shared = false;
  expect_failure([&] { prepare(options); }, ExitCode::kUsage, {"several processes", "--shared"});
}

TEST(SharedPrepare, FinishedIsFinishedForEveryone) {
  Scratch scratch;
  put_file(scratch / "in.txt", make_text(5000, 1));
  PrepareOptions options = quiet_options({scratch / "in.txt"}, scratch / "out");
  options.shared = true;
  const PrepareResult first = prepare(options);
  EXPECT_EQ(first.shards_reused, 0);
  WorkFolder(scratch / "out").publish("plan", {{"plan", "left by a kill"}});
  for (const bool shared : {true, false}) {
    options.shared = shared;
    const PrepareResult again = prepare(options);
    EXPECT_EQ(again.shards_reused, again.shards);
    EXPECT_EQ(again.train_tokens, first.train_tokens);
    EXPECT_FALSE(fs::exists(scratch / "out" / kWorkFolderName));
  }
}

TEST(SharedPrepare, AnErrorOfTheInputNamesItsPlace) {
  Scratch scratch;
  const std::string rows = make_jsonl(2 << 20, 1);
  put_file(scratch / "in.jsonl", rows + "not json\n");
  PrepareOptions options = quiet_options({scratch / "in.jsonl"}, scratch / "out");
  options.shared = true;
  expect_failure([&] { prepare(options); }, ExitCode::kDamaged,
                 {"in.jsonl", str("at byte ", rows.size())});
  EXPECT_FALSE(fs::exists(scratch / "out" / kIndexName));
}

TEST(SharedPrepare, KilledProcessesAreReplaced) {
  Scratch scratch;
  put_file(scratch / "in/a.jsonl", make_jsonl(4 << 20, 1));
  for (uint64_t i = 0; i < 5; ++i) put_file(scratch / str("in/", i, ".txt"), make_text(300'000, i));
  PrepareOptions options = quiet_options({scratch / "in"}, scratch / "one");
  options.shard_tokens = 250'000;
  options.workers = 1;
  prepare(options);
  const auto wanted = get_folder(scratch / "one");
  options.shared = true;
  std::mt19937_64 random(3);
  int kills = 0;
  for (int round = 0; round < 4; ++round) {
    options.output = scratch / str("killed", round);
    std::set<pid_t> running;
    for (int i = 0; i < 3; ++i) running.insert(start_prepare(options));
    for (int i = 0; i < 5; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(random() % 80));
      auto victim = running.begin();
      std::advance(victim, static_cast<std::ptrdiff_t>(random() % running.size()));
      ::kill(*victim, SIGKILL);
      int status = 0;
      EXPECT_EQ(::waitpid(*victim, &status, 0), *victim);
      kills += WIFSIGNALED(status) ? 1 : 0;
      running.erase(victim);
      running.insert(start_prepare(options));
    }
    for (const pid_t pid : running) {
      int status = 0;
      EXPECT_EQ(::waitpid(pid, &status, 0), pid);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    EXPECT_TRUE(get_folder(options.output) == wanted) << "round " << round;
  }
  EXPECT_GE(kills, 5);
}

}  // namespace
}  // namespace octavo::data
