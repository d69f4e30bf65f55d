#include "launch/node_secret.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "rendezvous/auth.h"

namespace octavo::launch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookAgain{300};

void write_secret(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd < 0)
    fail(ExitCode::kEnvironment, "launch", "wanted to make the rendezvous secret ", path.string(),
         ", found: ", std::strerror(errno),
         "; set OCTAVO_RENDEZVOUS_SECRET to the same value on every node ('openssl rand -hex 32' "
         "makes one)");
  const std::string text = rendezvous::new_secret() + "\n";
  const bool written = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                       ::fsync(fd) == 0;
  ::close(fd);
  if (written) return;
  ::unlink(path.c_str());
  fail(ExitCode::kEnvironment, "launch", "wanted to write ", path.string(),
       ", found that it cannot be; is the disk full?");
}

void wait_for_file(const fs::path& path, milliseconds patience,
                   const std::function<bool()>& interrupted) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  std::error_code none;
  bool said = false;
  while (!fs::exists(path, none)) {
    if (interrupted())
      fail(ExitCode::kStopped, "launch", "asked to stop before the secret was there; no rank ran");
    if (std::chrono::steady_clock::now() >= deadline)
      fail(ExitCode::kUsage, "launch", "wanted the rendezvous secret of node 0, found no ",
           path.string(), "; copy that file from node 0 (scp NODE0:", path.filename().string(),
           " ~/), or set OCTAVO_RENDEZVOUS_SECRET to the same value on every node");
    if (!said)
      log_info(str("waiting for ", path.string(),
                   ", which octavo launch makes on node 0; without a shared home folder copy it "
                   "here: scp NODE0:",
                   path.filename().string(), " ~/"));
    said = true;
    std::this_thread::sleep_for(kLookAgain);
  }
}

}  // namespace

fs::path secret_file_of_user() {
  const char* home = std::getenv("HOME");
  if (home == nullptr || *home == '\0') return {};
  return fs::path(home) / ".octavo-rendezvous-secret";
}

bool make_secret_file(const fs::path& path) {
  std::error_code none;
  if (fs::exists(path, none)) return false;
  // Under another name first: whoever finds the file finds the secret in it.
  const fs::path whole = path.string() + str(".", ::getpid());
  write_secret(whole);
  const bool ours = ::link(whole.c_str(), path.c_str()) == 0;
  const int problem = errno;
  ::unlink(whole.c_str());
  if (!ours && problem != EEXIST)
    fail(ExitCode::kEnvironment, "launch", "wanted to make ", path.string(),
         ", found: ", std::strerror(problem));
  return ours;
}

void have_node_secret(int node, milliseconds patience, const std::function<bool()>& interrupted) {
  if (!rendezvous::secret_from_environment().empty()) return;
  const fs::path path = secret_file_of_user();
  if (path.empty())
    fail(ExitCode::kUsage, "launch", "several nodes need a shared secret: wanted ",
         "OCTAVO_RENDEZVOUS_SECRET, or HOME for a file with it, found neither; set the first to ",
         "the same value on every node ('openssl rand -hex 32' makes one)");
  if (node == 0) {
    if (make_secret_file(path))
      log_info(str("made ", path.string(),
                   ", the secret with which nodes prove that they belong to this run; a shared "
                   "home folder has it on every node, else copy it: scp ",
                   path.string(), " NODE1:"));
  } else {
    wait_for_file(path, patience, interrupted);
  }
  ::setenv("OCTAVO_RENDEZVOUS_SECRET_FILE", path.c_str(), 1);
  rendezvous::secret_from_environment();  // refuses a file that others can read, before a rank does
}

}  // namespace octavo::launch
