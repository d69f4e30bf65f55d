// With it read and recv would be inline functions here.
#undef _FORTIFY_SOURCE
#include "message_count.h"

#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <string_view>

#include "rendezvous/protocol.h"

namespace octavo::bench {
namespace {

std::atomic<int64_t> operations{0}, sent{0}, received{0}, bytes{0}, connections{0};
std::atomic<int> store_port{0};

int port_in(const sockaddr_storage& address) {
  if (address.ss_family != AF_INET && address.ss_family != AF_INET6) return -1;
  sockaddr_in v4{};  // the port stands at the same place in both families
  std::memcpy(&v4, &address, sizeof v4);
  return ntohs(v4.sin_port);
}

// -1: no connection over TCP.
int peer_port(int fd) {
  const int before = errno;
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  const bool found = ::getpeername(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  errno = before;
  return found ? port_in(address) : -1;
}

ssize_t count_sent(int fd, const void* first, size_t first_size, ssize_t result) {
  if (result <= 0) return result;
  const int port = peer_port(fd);
  if (port < 0) return result;
  ++sent;
  bytes += result;
  if (port != store_port) return result;
  // A client says hello, and its proof next, on one thread.
  thread_local int proof_of = -1;
  const std::string_view text(static_cast<const char*>(first), first_size);
  if (text.starts_with(rendezvous::kMagic))
    proof_of = fd;
  else if (proof_of == fd)
    proof_of = -1;
  else
    ++operations;
  return result;
}

ssize_t count_received(int fd, ssize_t result) {
  if (result > 0 && peer_port(fd) >= 0) ++received;
  return result;
}

template <typename Function>
Function* libc(const char* name, Function* /*as*/) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

MessageCount messages_so_far() {
  return {operations, sent, received, bytes, connections};
}

void count_store_at(int port) {
  store_port = port;
}

}  // namespace octavo::bench

// libc's own names and signatures.
extern "C" {
using namespace octavo::bench;  // NOLINT: of this block alone
#define OCTAVO_LIBC(name)                         \
  static auto* const real = libc(#name, &(name)); \
  (void)0

ssize_t send(int fd, const void* data, size_t size, int flags) {
  OCTAVO_LIBC(send);
  return count_sent(fd, data, size, real(fd, data, size, flags));
}
ssize_t sendto(int fd, const void* data, size_t size, int flags, const sockaddr* to,
               socklen_t length) {
  OCTAVO_LIBC(sendto);
  return count_sent(fd, data, size, real(fd, data, size, flags, to, length));
}
ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  OCTAVO_LIBC(sendmsg);
  const iovec none{};
  const iovec& first = message->msg_iovlen > 0 ? message->msg_iov[0] : none;
  return count_sent(fd, first.iov_base, first.iov_len, real(fd, message, flags));
}
ssize_t write(int fd, const void* data, size_t size) {
  OCTAVO_LIBC(write);
  return count_sent(fd, data, size, real(fd, data, size));
}
ssize_t writev(int fd, const iovec* parts, int count) {
  OCTAVO_LIBC(writev);
  return count_sent(fd, count > 0 ? parts->iov_base : nullptr, count > 0 ? parts->iov_len : 0,
                    real(fd, parts, count));
}
ssize_t recv(int fd, void* data, size_t size, int flags) {
  OCTAVO_LIBC(recv);
  return count_received(fd, real(fd, data, size, flags));
}
ssize_t recvmsg(int fd, msghdr* message, int flags) {
  OCTAVO_LIBC(recvmsg);
  return count_received(fd, real(fd, message, flags));
}
ssize_t read(int fd, void* data, size_t size) {
  OCTAVO_LIBC(read);
  return count_received(fd, real(fd, data, size));
}
ssize_t readv(int fd, const iovec* parts, int count) {
  OCTAVO_LIBC(readv);
  return count_received(fd, real(fd, parts, count));
}
// What calls become that were compiled with _FORTIFY_SOURCE.
ssize_t __recv_chk(int fd, void* data, size_t size, size_t /*room*/, int flags) {
  return recv(fd, data, size, flags);
}
ssize_t __read_chk(int fd, void* data, size_t size, size_t /*room*/) {
  return read(fd, data, size);
}
int connect(int fd, const sockaddr* to, socklen_t size) {
  OCTAVO_LIBC(connect);
  if (to->sa_family == AF_INET || to->sa_family == AF_INET6) ++connections;
  return real(fd, to, size);
}
}
