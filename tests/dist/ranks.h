#pragma once
// Ranks as real processes: forked before torch has started a thread, each with its errors in a
// file.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "launch/rank_info.h"
#include "rendezvous/server.h"
#include "scratch.h"

namespace octavo::dist {

using std::chrono::milliseconds;
using std::chrono::seconds;

inline int free_port() {
  return rendezvous::Server("127.0.0.1", 0, "").port();
}

// The store of torchrun's agent, in a process that only hosts it.
inline void host_torch_store(int port) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = true;
  options.waitWorkers = false;
  const auto agent = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  std::this_thread::sleep_for(seconds(60));
}

class Ranks {
 public:
  // `work` runs in every rank; an Error becomes its exit code, as in main().
  Ranks(int ranks, bool hosted, const std::function<void(const launch::RankInfo&)>& work)
      : port_(free_port()) {
    for (int rank = 0; rank < ranks; ++rank) {
      const pid_t pid = ::fork();
      if (pid == 0) be(rank, ranks, hosted, work);
      pids_.push_back(pid);
    }
    if (hosted) server_ = std::make_unique<rendezvous::Server>("127.0.0.1", port_, "");
  }
  ~Ranks() {
    for (const pid_t pid : pids_)
      if (pid > 0) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
      }
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void signal(int rank, int number) { ::kill(pids_[static_cast<size_t>(rank)], number); }
  void end_server() { server_.reset(); }
  int port() const { return port_; }

  // Exit code, or -signal; fails the test when the rank does not end in time.
  int end_of(int rank, milliseconds patience) {
    pid_t& pid = pids_[static_cast<size_t>(rank)];
    const auto deadline = std::chrono::steady_clock::now() + patience;
    int status = 0;
    while (::waitpid(pid, &status, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() >= deadline) {
        ADD_FAILURE() << "rank " << rank << " still runs; it said: " << said(rank);
        return -1000;
      }
      std::this_thread::sleep_for(milliseconds(10));
    }
    pid = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

  std::string said(int rank) const { return read_file(log_of(rank), size_t{1} << 20); }
  // Waits until the rank has said it.
  bool has_said(int rank, const std::string& part, milliseconds patience = seconds(10)) const {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (std::chrono::steady_clock::now() < deadline) {
      if (fs::exists(log_of(rank)) && said(rank).find(part) != std::string::npos) return true;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return false;
  }

 private:
  fs::path log_of(int rank) const { return scratch_ / str("rank-", rank, ".log"); }

  [[noreturn]] void be(int rank, int ranks, bool hosted,
                       const std::function<void(const launch::RankInfo&)>& work) const {
    const int log = ::open(log_of(rank).c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    ::dup2(log, STDERR_FILENO);
    launch::RankInfo rank_info;
    rank_info.rank = rank_info.local_rank = rank;
    rank_info.ranks = rank_info.local_ranks = ranks;
    rank_info.master_address = "127.0.0.1";
    rank_info.master_port = port_;
    rank_info.store_is_running = hosted;
    int code = 0;
    try {
      work(rank_info);
    } catch (const Error& error) {
      log_error(error.what());
      code = static_cast<int>(error.code());
    } catch (const std::exception& error) {
      log_error(error.what());
      code = 1;
    }
    ::_exit(code);
  }

  Scratch scratch_;
  int port_;
  std::vector<pid_t> pids_;
  std::unique_ptr<rendezvous::Server> server_;
};

}  // namespace octavo::dist
