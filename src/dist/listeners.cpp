#include "dist/listeners.h"

#include <linux/filter.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <string>

#include "base/error.h"
#include "base/log.h"

namespace octavo::dist {

std::set<int> listening_sockets() {
  std::set<int> found;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", error)) {
    const std::string name = entry.path().filename().string();
    int fd = -1, listening = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), fd).ec != std::errc{}) continue;
    socklen_t size = sizeof listening;
    if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) == 0 && listening != 0)
      found.insert(fd);
  }
  return found;
}

void refuse_new_connections(const std::set<int>& listening) {
  sock_filter drop_all[] = {BPF_STMT(BPF_RET | BPF_K, 0)};  // keep no byte of any packet
  const sock_fprog program{1, drop_all};
  for (const int fd : listening)
    if (::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0)
      log_warn_once(
          octavo::str("Gloo's ports stay open to every host: the system refused a filter (",
                      std::strerror(errno), "); let a firewall keep them out"));
}

}  // namespace octavo::dist
