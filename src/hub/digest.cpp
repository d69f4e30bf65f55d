#include "hub/digest.h"

#include <openssl/evp.h>

#include <array>
#include <fstream>
#include <memory>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace octavo::hub {
namespace {

class Digest {
 public:
  explicit Digest(const EVP_MD* kind) : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    check(context_ != nullptr && EVP_DigestInit_ex(context_.get(), kind, nullptr) == 1);
  }
  void add(std::string_view bytes) {
    check(EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()) == 1);
  }
  std::string hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> bytes{};
    unsigned size = 0;
    check(EVP_DigestFinal_ex(context_.get(), bytes.data(), &size) == 1);
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (unsigned i = 0; i < size; ++i) {
      text += kDigits[bytes[i] >> 4];
      text += kDigits[bytes[i] & 15];
    }
    return text;
  }

 private:
  static void check(bool good) {
    if (!good)
      fail(ExitCode::kEnvironment, "hub",
           "OpenSSL refused to compute a hash; see whether it is limited on this machine (FIPS)");
  }
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

std::string digest_file(const fs::path& path, Digest digest) {
  std::ifstream file(path, std::ios::binary);
  std::vector<char> buffer(size_t{1} << 20);
  while (file) {
    file.read(buffer.data(), static_cast<std::streamsize>(buffer.size()));
    digest.add({buffer.data(), static_cast<size_t>(file.gcount())});
  }
  if (!file.eof()) fail(ExitCode::kEnvironment, "hub", "cannot read ", path.string());
  return digest.hex();
}

}  // namespace

std::string sha256_of_file(const fs::path& path) {
  return digest_file(path, Digest(EVP_sha256()));
}

std::string git_blob_of_file(const fs::path& path) {
  Digest digest(EVP_sha1());
  const std::string header = str("blob ", fs::file_size(path));
  digest.add({header.c_str(), header.size() + 1});  // with the NUL
  return digest_file(path, std::move(digest));
}

}  // namespace octavo::hub
