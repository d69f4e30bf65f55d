// An extended data set has the tokens of all its inputs, as if they had been prepared together.

#include "data/extend.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "data/dataset_index.h"
#include "data/folder_lock.h"
#include "data/token_data.h"
#include "data/work_folder.h"
#include "helpers.h"

namespace octavo::data {
namespace {

std::vector<int32_t> tokens_of(const fs::path& folder, const std::string& split = "train") {
  const auto data = TokenData::open(folder, split);
  std::vector<int32_t> tokens(data->tokens());
  data->read(0, tokens);
  return tokens;
}

class Extend : public testing::Test {
 protected:
  Extend() {
    put_file(scratch_ / "a.jsonl", make_jsonl(300'000, 1));
    put_file(scratch_ / "b.txt", make_text(200'000, 2));
    put_file(scratch_ / "c.jsonl", make_jsonl(150'000, 3));
  }
  PrepareOptions options(const std::vector<std::string>& names, const std::string& output) const {
    std::vector<fs::path> inputs;
    for (const std::string& name : names) inputs.push_back(scratch_ / name);
    PrepareOptions made = quiet_options(inputs, scratch_ / output);
    made.shard_tokens = 70'000;
    made.val_fraction = 0;
    return made;
  }
  PrepareResult extend_with(const std::string& name, const std::string& output) const {
    PrepareOptions more = options({name}, output);
    more.extend = true;
    return prepare(more);
  }
  Scratch scratch_;
};

TEST_F(Extend, HasTheTokensOfAllInputsInTheirOrder) {
  prepare(options({"a.jsonl", "b.txt", "c.jsonl"}, "all"));
  prepare(options({"a.jsonl"}, "grown"));
  extend_with("b.txt", "grown");
  const PrepareResult result = extend_with("c.jsonl", "grown");
  EXPECT_TRUE(tokens_of(scratch_ / "grown") == tokens_of(scratch_ / "all"));
  EXPECT_EQ(result.train_tokens, tokens_of(scratch_ / "all").size());
  EXPECT_FALSE(fs::exists(scratch_ / "grown" / kExtensionFolder));
  const DatasetIndex all = read_index(scratch_ / "all"), grown = read_index(scratch_ / "grown");
  EXPECT_EQ(grown.splits.at("train").documents(), all.splits.at("train").documents());
  EXPECT_EQ(grown.source_bytes, all.source_bytes);
  EXPECT_EQ(grown.extensions.size(), 3u);
  EXPECT_NO_THROW(inspect(scratch_ / "grown", true));
}

TEST_F(Extend, AListOfExtensionsThatIsNoneIsDamage) {
  prepare(options({"a.jsonl"}, "grown"));
  extend_with("b.txt", "grown");
  Json index = Json::parse(get_file(scratch_ / "grown" / kIndexName));
  for (const Json& bad : {Json(5), Json::array({5}), Json::array({"a", Json::object()})}) {
    index["extensions"] = bad;
    put_file(scratch_ / "grown" / kIndexName, index.dump());
    expect_failure([&] { read_index(scratch_ / "grown"); }, ExitCode::kDamaged, {"extensions"});
  }
}

TEST_F(Extend, WhatIsThereIsAddedOnce) {
  prepare(options({"a.jsonl"}, "grown"));
  extend_with("b.txt", "grown");
  const auto once = get_folder(scratch_ / "grown");
  for (const char* name : {"b.txt", "a.jsonl"}) {
    const PrepareResult again = extend_with(name, "grown");
    EXPECT_EQ(again.shards_reused, again.shards);
    EXPECT_TRUE(get_folder(scratch_ / "grown") == once) << name;
  }
  // The same bytes with another date are found out once they are hashed.
  fs::last_write_time(scratch_ / "b.txt", fs::file_time_type::clock::now());
  extend_with("b.txt", "grown");
  EXPECT_TRUE(get_folder(scratch_ / "grown") == once);
}

TEST_F(Extend, WithNothingToAddTheWorkOfOthersStays) {
  prepare(options({"a.jsonl"}, "grown"));
  const fs::path part = scratch_ / "grown" / kExtensionFolder;
  const fs::path linked = scratch_ / "grown" / "train-00099.tok";  // and not in the index yet
  put_file(linked, "a shard");
  std::optional<WorkFolder> others(std::in_place, part);
  const auto expect_all_stays = [&](const std::string& what) {
    for (const bool touched : {false, true})
      for (const bool shared : {true, false}) {
        if (touched) fs::last_write_time(scratch_ / "a.jsonl", fs::file_time_type::clock::now());
        PrepareOptions more = options({"a.jsonl"}, "grown");
        more.extend = true;
        more.shared = shared;
        prepare(more);
        EXPECT_TRUE(fs::exists(part / kWorkFolderName / "done")) << what;
        EXPECT_TRUE(fs::exists(linked)) << what;
      }
  };
  expect_all_stays("others hash their inputs");
  others->publish("plan", {{"plan", "of others"}});
  expect_all_stays("others encode");
  others.reset();
  expect_all_stays("others were stopped");
  fs::remove_all(part);
  prepare(options({"b.txt"}, str("grown/", kExtensionFolder)));
  PrepareOptions more = options({"a.jsonl"}, "grown");
  more.extend = more.shared = true;
  prepare(more);
  EXPECT_TRUE(has_index(part) && fs::exists(linked)) << "others are about to add their shards";
}

TEST_F(Extend, WhatIsLeftOfAnAddedPartGoes) {
  for (const bool shared : {false, true}) {
    const std::string output = shared ? "many" : "one";
    prepare(options({"a.jsonl"}, output));
    extend_with("b.txt", output);
    const auto wanted = get_folder(scratch_ / output);
    prepare(options({"b.txt"}, str(output, "/", kExtensionFolder)));
    PrepareOptions more = options({"b.txt"}, output);
    more.extend = true;
    more.shared = shared;
    prepare(more);
    EXPECT_TRUE(get_folder(scratch_ / output) == wanted);
  }
}

// A folder that has grown is named as a whole.
class GrownFolder : public Extend {
 protected:
  GrownFolder() {
    fs::create_directory(scratch_ / "crawl");
    fs::copy_file(scratch_ / "a.jsonl", scratch_ / "crawl" / "one.jsonl");
    for (const char* output : {"grown", "wanted"}) prepare(options({"crawl"}, output));
    fs::copy_file(scratch_ / "c.jsonl", scratch_ / "crawl" / "two.jsonl");
    fs::rename(scratch_ / "crawl" / "one.jsonl", scratch_ / "aside");
    extend_with("crawl", "wanted");
    fs::rename(scratch_ / "aside", scratch_ / "crawl" / "one.jsonl");
  }
  // What is logged.
  std::string said_by(PrepareOptions more) const {
    more.extend = true;
    testing::internal::CaptureStderr();
    prepare(more);
    return testing::internal::GetCapturedStderr();
  }
};

TEST_F(GrownFolder, GivesItsNewFilesAlone) {
  for (const bool shared : {false, true}) {
    PrepareOptions more = options({"crawl"}, "grown");
    more.shared = shared;
    const std::string said = said_by(more);
    EXPECT_NE(said.find("left out 1 of 2 files (crawl/one.jsonl)"), said.npos) << said;
    EXPECT_TRUE(get_folder(scratch_ / "grown") == get_folder(scratch_ / "wanted"));
    fs::remove_all(scratch_ / "grown");
    fs::rename(scratch_ / "crawl" / "two.jsonl", scratch_ / "aside");
    prepare(options({"crawl"}, "grown"));
    fs::rename(scratch_ / "aside", scratch_ / "crawl" / "two.jsonl");
  }
}

TEST_F(GrownFolder, ThatIsThereAsAWholeChangesNothing) {
  for (const bool touched : {false, true})
    for (const bool shared : {false, true}) {
      if (touched)
        fs::last_write_time(scratch_ / "crawl" / "one.jsonl", fs::file_time_type::clock::now());
      PrepareOptions more = options({"crawl"}, "wanted");
      more.shared = shared;
      const auto before = get_folder(scratch_ / "wanted");
      const std::string said = said_by(more);
      EXPECT_NE(said.find("nothing is added"), said.npos) << said;
      EXPECT_TRUE(get_folder(scratch_ / "wanted") == before);
    }
}

TEST_F(GrownFolder, TheSameContentUnderAnotherNameIsAddedAndSaid) {
  fs::copy_file(scratch_ / "a.jsonl", scratch_ / "copy.jsonl");
  const size_t before = tokens_of(scratch_ / "grown").size();
  const std::string said = said_by(options({"copy.jsonl"}, "grown"));
  EXPECT_NE(said.find("the content of 1 of 1 new file is in the data set already"), said.npos)
      << said;
  EXPECT_NE(said.find("copy.jsonl"), said.npos) << said;
  EXPECT_GT(tokens_of(scratch_ / "grown").size(), before * 3 / 2);
}

TEST_F(GrownFolder, AFileThatHasGrownIsAddedAndSaid) {
  std::ofstream(scratch_ / "crawl" / "one.jsonl", std::ios::app) << "{\"text\": \"more\"}\n";
  const std::string said = said_by(options({"crawl/one.jsonl"}, "grown"));
  EXPECT_EQ(said.find("with other content"), said.npos) << "another name: one.jsonl, no folder";
  std::ofstream(scratch_ / "crawl" / "one.jsonl", std::ios::app) << "{\"text\": \"and more\"}\n";
  const std::string again = said_by(options({"crawl"}, "grown"));
  EXPECT_NE(again.find("1 of 2 new files has the name of one that is in the data set with other"),
            again.npos)
      << again;
  EXPECT_NE(again.find("(crawl/one.jsonl)"), again.npos) << again;
}

// The list of files is written before the index: what a killed extension left there is not added.
TEST_F(GrownFolder, AFileOfAnUnfinishedExtensionIsStillNew) {
  const std::string list = get_file(scratch_ / "grown" / kSourcesName);
  put_file(scratch_ / "grown" / kSourcesName, get_file(scratch_ / "wanted" / kSourcesName));
  extend_with("b.txt", "grown");
  extend_with("b.txt", "wanted");
  const std::string said = said_by(options({"crawl"}, "grown"));
  EXPECT_NE(said.find("left out 1 of 2 files"), said.npos) << said;
  EXPECT_EQ(tokens_of(scratch_ / "grown").size(), tokens_of(scratch_ / "wanted").size());
  const std::string grown = get_file(scratch_ / "grown" / kSourcesName);
  EXPECT_TRUE(grown.starts_with(list));
  EXPECT_EQ(std::count(grown.begin(), grown.end(), '\n'), 3);
}

TEST_F(Extend, LeavesTheValidationSplitAlone) {
  PrepareOptions first = options({"a.jsonl"}, "grown");
  first.val_fraction = 0.2;
  prepare(first);
  const auto val = tokens_of(scratch_ / "grown", "val"), train = tokens_of(scratch_ / "grown");
  extend_with("b.txt", "grown");
  EXPECT_TRUE(tokens_of(scratch_ / "grown", "val") == val);
  const auto grown = tokens_of(scratch_ / "grown");
  EXPECT_TRUE(std::equal(train.begin(), train.end(), grown.begin()));
  EXPECT_EQ(get_file(scratch_ / "b.txt").size(), grown.size() - train.size())
      << "its documents had an end already";
}

// Training documents that have an end, behind which another extension's has none.
class QueuedExtend : public Extend {
 protected:
  QueuedExtend() {
    for (const char* output : {"grown", "other"}) {
      PrepareOptions first = options({"a.jsonl"}, output);
      first.val_fraction = 0.2;
      prepare(first);
    }
    extend_with("c.jsonl", "other");
  }

  // Adds b.txt in a process that finds c.jsonl added once it has the folder; its exit code.
  int extend_behind_other(bool shared) const {
    PrepareOptions more = options({"b.txt"}, "grown");
    more.extend = true;
    more.shared = shared;
    const fs::path said = scratch_ / "said";
    std::optional<FolderLock> lock(std::in_place, more.output, FolderLock::kAlone);
    const pid_t child = ::fork();
    if (child == 0) {
      ::dup2(::open(said.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
      set_log_level(LogLevel::kInfo);
      lock.reset();  // the parent still holds it
      int code = 0;
      try {
        prepare(more);
      } catch (const Error& error) {
        log_error(error.what());
        code = static_cast<int>(error.code());
      }
      ::_exit(code);
    }
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (get_file(said).find("another process prepares") == std::string::npos &&
           std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    fs::copy(scratch_ / "other", more.output,
             fs::copy_options::overwrite_existing | fs::copy_options::recursive);
    if (meanwhile_) meanwhile_();
    lock.reset();
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  void expect_refused() const {
    EXPECT_EQ(extend_behind_other(true), static_cast<int>(ExitCode::kUsage));
    const std::string said = get_file(scratch_ / "said");
    EXPECT_NE(said.find("another --extend added to it since; give the command again"), said.npos)
        << said;
  }

  std::function<void()> meanwhile_;  // before the process gets the folder
};

TEST_F(QueuedExtend, BeginsBehindWhatWasAddedMeanwhile) {
  EXPECT_EQ(extend_behind_other(false), 0);
  extend_with("b.txt", "other");
  EXPECT_TRUE(get_folder(scratch_ / "grown") == get_folder(scratch_ / "other"));
}

TEST_F(QueuedExtend, ThatWasPreparedForAnotherEndIsRefused) {
  EXPECT_EQ(extend_behind_other(true), static_cast<int>(ExitCode::kUsage));
  EXPECT_TRUE(get_folder(scratch_ / "grown") == get_folder(scratch_ / "other"));
  extend_with("b.txt", "grown");
  extend_with("b.txt", "other");
  EXPECT_TRUE(get_folder(scratch_ / "grown") == get_folder(scratch_ / "other"));
}

// They may be many, and take hours to read.
TEST_F(QueuedExtend, ThatIsRefusedReadsItsInputsNoMore) {
  meanwhile_ = [this] { fs::remove(scratch_ / "b.txt"); };
  expect_refused();
}

TEST_F(QueuedExtend, ThatAnotherProcessRefusedIsRefusedAlike) {
  for (const char* output : {"grown", "other"}) {  // both end alike: what differs is the file list
    fs::remove_all(scratch_ / output);
    prepare(options({"a.jsonl"}, output));
  }
  extend_with("c.jsonl", "other");
  meanwhile_ = [this] {
    fs::remove_all(scratch_ / "grown" / kExtensionFolder);
    fs::remove(scratch_ / "b.txt");
  };
  expect_refused();
}

TEST_F(Extend, RefusesAnotherValidationFractionThatWasGiven) {
  PrepareOptions first = options({"a.jsonl"}, "grown");
  first.val_fraction = 0.2;
  prepare(first);
  const auto before = get_folder(scratch_ / "grown");
  PrepareOptions more = options({"b.txt"}, "grown");
  more.extend = more.val_fraction_given = true;
  more.val_fraction = 0.3;
  expect_failure(
      [&] { prepare(more); }, ExitCode::kUsage,
      {"prepared with val_fraction 0.2", "found val_fraction 0.3", "leave val_fraction"});
  EXPECT_TRUE(get_folder(scratch_ / "grown") == before);
  more.val_fraction = 0.2;  // the first command again, with other inputs
  prepare(more);
  more.inputs = {scratch_ / "c.jsonl"};
  more.val_fraction = 0;  // what an extension does
  EXPECT_NO_THROW(prepare(more));
  EXPECT_GT(tokens_of(scratch_ / "grown").size(), get_file(scratch_ / "b.txt").size());
}

TEST_F(Extend, ManyProcessesExtendTogether) {
  prepare(options({"a.jsonl"}, "one"));
  extend_with("b.txt", "one");
  prepare(options({"a.jsonl"}, "many"));
  PrepareOptions more = options({"b.txt"}, "many");
  more.extend = more.shared = true;
  std::vector<pid_t> running;
  for (int i = 0; i < 3; ++i) running.push_back(start_prepare(more));
  for (const pid_t pid : running) {
    int status = 0;
    ASSERT_EQ(::waitpid(pid, &status, 0), pid);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  EXPECT_TRUE(get_folder(scratch_ / "many") == get_folder(scratch_ / "one"));
}

TEST_F(Extend, KilledAtAnyMomentTheDataSetIsWhole) {
  prepare(options({"a.jsonl"}, "one"));
  const auto before = tokens_of(scratch_ / "one");
  extend_with("c.jsonl", "one");
  const auto wanted = get_folder(scratch_ / "one");
  prepare(options({"a.jsonl"}, "killed"));
  PrepareOptions more = options({"c.jsonl"}, "killed");
  more.extend = true;
  std::mt19937_64 random(7);
  for (int kill = 0; kill < 8; ++kill) {
    const pid_t child = start_prepare(more);
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 30));
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    const auto now = tokens_of(scratch_ / "killed");
    EXPECT_TRUE(now == before || now.size() > before.size());
  }
  extend_with("c.jsonl", "killed");
  EXPECT_TRUE(get_folder(scratch_ / "killed") == wanted);
}

TEST_F(Extend, OtherKindsAndMissingSetsAreRefused) {
  expect_failure([&] { extend_with("b.txt", "none"); }, ExitCode::kUsage, {"data prepare"});
  put_file(scratch_ / "rows.jsonl", "{\"prompt\": \"a\", \"response\": \"b\"}\n");
  prepare(options({"a.jsonl"}, "grown"));
  expect_failure([&] { extend_with("rows.jsonl", "grown"); }, ExitCode::kUsage,
                 {"not packed", "another output"});
  const auto once = get_folder(scratch_ / "grown");
  EXPECT_FALSE(once.contains(kExtensionFolder));
}

TEST_F(Extend, PackedRowsAreAddedAsSamples) {
  std::string rows;
  for (int i = 0; i < 300; ++i) rows += str("{\"prompt\": \"", i, "\", \"response\": \"b\"}\n");
  put_file(scratch_ / "rows.jsonl", rows);
  put_file(scratch_ / "more.jsonl", rows + rows);
  for (const char* output : {"first", "second"}) {
    PrepareOptions made = options({output[0] == 'f' ? "rows.jsonl" : "more.jsonl"}, output);
    made.max_seq_length = 512;
    prepare(made);
  }
  const auto first = tokens_of(scratch_ / "first"), second = tokens_of(scratch_ / "second");
  PrepareOptions more = options({"more.jsonl"}, "first");
  more.max_seq_length = 512;
  more.extend = true;
  prepare(more);
  auto both = first;
  both.insert(both.end(), second.begin(), second.end());
  EXPECT_TRUE(tokens_of(scratch_ / "first") == both);
  more.max_seq_length = 1024;
  put_file(scratch_ / "more.jsonl", rows);
  expect_failure([&] { prepare(more); }, ExitCode::kUsage, {"512 tokens", "1024"});
}

}  // namespace
}  // namespace octavo::data
