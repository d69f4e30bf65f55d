#pragma once
// The folder through which processes share one preparation: who works, what is claimed, what is
// done. Files appear whole, by link(2), and the first of two wins: that holds on NFS, needs no
// locks and no clocks that agree.
//
//   workers/ID      who it is; its time of modification moves while the process lives
//   claims/ITEM.N   a link to the worker's file; N counts the owners that died
//   done/ITEM       the result
//   tmp-ID/         files that a worker writes
//
// An item may be worked on twice, after its owner was taken for dead: whoever publishes first wins,
// so results must depend on the item alone.

#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "base/json.h"

namespace octavo::data {

namespace fs = std::filesystem;

constexpr const char* kWorkFolderName = "prepare.shared";

// Which other processes may be removing too.
void remove_shared_folder(const fs::path& folder);

class WorkFolder {
 public:
  // A process of this machine that died is known at once; one of another machine when it gave no
  // sign of life for so long.
  static constexpr double kTakeoverSeconds = 60;

  explicit WorkFolder(const fs::path& output, double takeover_seconds = kTakeoverSeconds);
  ~WorkFolder();  // gives back what is claimed and not done
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;

  // Whether the item is this process's to do: it is not done, and nobody who lives has it.
  bool claim(const std::string& item);
  // Makes the result durable, unless there is one.
  void publish(const std::string& item, const Json& result);
  bool publish_once(const std::string& item, const Json& result);  // whether this is the one
  std::optional<Json> result(const std::string& item) const;

  std::set<std::string> done() const;  // items; lists all of them
  size_t others();                     // processes that live, without this one

  const fs::path& path() const { return folder_; }
  fs::path scratch() const { return folder_ / ("tmp-" + id_); }  // for files of this process
  const std::string& id() const { return id_; }

  // All is done: nobody needs it any more. Others that look into it find nothing.
  static void remove(const fs::path& output);

 private:
  struct LifeSign {
    int64_t modified_ns = 0;
    double since = 0;  // by this process's clock
  };
  bool lives(const fs::path& card);
  bool was_replaced() const;  // others took this process for dead
  void beat();

  fs::path folder_;
  double takeover_seconds_;
  std::string id_;
  std::set<fs::path> held_;
  std::map<std::string, LifeSign> signs_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  bool stop_ = false;
  std::thread heart_;
};

}  // namespace octavo::data
