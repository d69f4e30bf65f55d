#include "rendezvous/auth.h"

#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>

#include "base/error.h"
#include "base/secrets.h"
#include "base/text.h"

namespace octavo::rendezvous {
namespace {

constexpr size_t kMaxSecretBytes = 4096;

// Opened once, so that what is checked is what is read.
std::string read_secret_file(const char* path) {
  const int fd = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    fail(ExitCode::kEnvironment, "rendezvous", "OCTAVO_RENDEZVOUS_SECRET_FILE names ", path,
         ", which cannot be opened; see its path and who may read it");
  struct stat info {};
  std::array<char, kMaxSecretBytes + 1> bytes{};
  const bool regular = ::fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  const ssize_t size = regular ? ::read(fd, bytes.data(), bytes.size()) : -1;
  ::close(fd);
  if (!regular || size < 0)
    fail(ExitCode::kEnvironment, "rendezvous", "the secret file ", path,
         " cannot be read as a regular file");
  if ((info.st_mode & (S_IROTH | S_IWOTH)) != 0)
    fail(ExitCode::kUsage, "rendezvous", "the secret file ", path,
         " is open to every user of this machine; chmod 600 it");
  if (static_cast<size_t>(size) > kMaxSecretBytes)
    fail(ExitCode::kUsage, "rendezvous", "the secret file ", path, " is larger than ",
         kMaxSecretBytes, " bytes");
  std::string secret(trim(std::string_view(bytes.data(), static_cast<size_t>(size))));
  add_secret(secret);
  return secret;
}

}  // namespace

std::string secret_from_environment() {
  if (const char* secret = std::getenv("OCTAVO_RENDEZVOUS_SECRET");
      secret != nullptr && *secret != '\0')
    return secret;
  if (const char* path = std::getenv("OCTAVO_RENDEZVOUS_SECRET_FILE");
      path != nullptr && *path != '\0')
    return read_secret_file(path);
  return "";
}

void require_secret(const std::string& address, bool is_loopback, const std::string& secret) {
  if (secret.empty() && is_loopback) return;
  if (secret.empty())
    fail(
        ExitCode::kUsage, "rendezvous", "ranks that rendezvous at ", address,
        " need a shared secret (only a loopback address does without); set "
        "OCTAVO_RENDEZVOUS_SECRET to the same value on every node (octavo launch makes one itself; "
        "'openssl rand -hex 32' does, too), or OCTAVO_RENDEZVOUS_SECRET_FILE to a file that only "
        "you can read");
  if (secret.size() < kMinSecretBytes)
    fail(ExitCode::kUsage, "rendezvous", "the rendezvous secret has ", secret.size(),
         " bytes, wanted ", kMinSecretBytes, " or more; 'openssl rand -hex 32' makes a good one");
}

std::string random_nonce() {
  std::array<unsigned char, kNonceBytes> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1)
    fail(ExitCode::kEnvironment, "rendezvous", "OpenSSL has no random numbers to give");
  return {bytes.begin(), bytes.end()};
}

std::string new_secret() {
  static constexpr char kLetters[] = "0123456789abcdef";
  std::string text;
  for (const char c : random_nonce()) {
    text += kLetters[static_cast<unsigned char>(c) >> 4];
    text += kLetters[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

std::string proof(std::string_view secret, std::string_view role, std::string_view client_hello,
                  std::string_view server_hello) {
  std::string message(role);
  message += '\0';
  message += client_hello;
  message += server_hello;
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
  unsigned size = 0;
  const unsigned char* done = HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
                                   reinterpret_cast<const unsigned char*>(message.data()),
                                   message.size(), bytes.data(), &size);
  if (done == nullptr || size != kProofBytes)
    fail(ExitCode::kEnvironment, "rendezvous",
         "OpenSSL refused HMAC-SHA256; see whether it is limited on this machine (FIPS)");
  return {bytes.begin(), bytes.begin() + kProofBytes};
}

bool same_bytes(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace octavo::rendezvous
