#include "audit/byte_source.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace octavo::audit {
namespace {

constexpr size_t kLeastPiece = 4096, kMostPiece = size_t{1} << 20;
// Traces deflate to a tenth or a thirtieth. Deflate itself ends at a thousandth.
constexpr uint64_t kFreely = uint64_t{256} << 20, kMostRatio = 400;

int open_trace(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error))
    fail(ExitCode::kUsage, "audit", "wanted a trace, found the folder ", path.string(),
         "; name its files, one for each rank");
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    fail(ExitCode::kUsage, "audit", "wanted a trace, found that ", path.string(),
         " cannot be opened: ", std::strerror(errno));
  return fd;
}

}  // namespace

ByteSource::ByteSource(const fs::path& path) : path_(path) {
  const std::string magic = first_bytes(path, 2);
  fd_ = open_trace(path);
  std::error_code error;
  const auto size = fs::file_size(path, error);
  piece_ = std::clamp<size_t>(error ? kMostPiece : size, kLeastPiece, kMostPiece);
  if (magic != "\x1f\x8b") return;
  zip_ = std::make_unique<z_stream>();
  input_.resize(piece_);
  if (::inflateInit2(zip_.get(), 16 + MAX_WBITS) != Z_OK) {
    ::close(fd_);
    fail(ExitCode::kEnvironment, "audit", "wanted memory to inflate ", path.string());
  }
}

ByteSource::~ByteSource() {
  if (zip_) ::inflateEnd(zip_.get());
  ::close(fd_);
}

size_t ByteSource::read_file(char* out, size_t size) {
  ssize_t got = 0;
  do got = ::read(fd_, out, size);
  while (got < 0 && errno == EINTR);
  if (got < 0)
    fail(ExitCode::kUsage, "audit", "wanted to read ", path_.string(),
         ", found: ", std::strerror(errno));
  raw_ += static_cast<uint64_t>(got);
  return static_cast<size_t>(got);
}

bool ByteSource::next_input() {
  if (zip_->avail_in > 0) return true;
  const size_t got = read_file(input_.data(), input_.size());
  zip_->next_in = reinterpret_cast<Bytef*>(input_.data());
  zip_->avail_in = static_cast<uInt>(got);
  return got > 0;
}

size_t ByteSource::inflate_some(char* out, size_t size) {
  zip_->next_out = reinterpret_cast<Bytef*>(out);
  zip_->avail_out = static_cast<uInt>(size);
  while (zip_->avail_out > 0 && !ended_) {
    if (!next_input()) {
      cut_ = ended_ = true;
      break;
    }
    const int code = ::inflate(zip_.get(), Z_NO_FLUSH);
    if (code == Z_STREAM_END) {
      // Another member may follow; what is no member is padding.
      const bool more = next_input() && zip_->next_in[0] == 0x1f;
      ended_ = !more || ::inflateReset(zip_.get()) != Z_OK;
    } else if (code != Z_OK) {
      fail(ExitCode::kDamaged, "audit", path_.string(), ": wanted gzip data, found damage after ",
           inflated_ + (size - zip_->avail_out),
           " bytes: ", zip_->msg == nullptr ? "it makes no progress" : zip_->msg);
    }
  }
  const size_t got = size - zip_->avail_out;
  inflated_ += got;
  if (inflated_ > kFreely && inflated_ / kMostRatio > raw_)
    fail(ExitCode::kDamaged, "audit", path_.string(), ": wanted a trace, found ", raw_,
         " bytes that inflate to more than ", inflated_, "; inflate it by hand to read it");
  return got;
}

size_t ByteSource::read(char* out, size_t size) {
  return zip_ ? inflate_some(out, size) : read_file(out, size);
}

std::string first_bytes(const fs::path& path, size_t count) {
  const int fd = open_trace(path);
  std::string bytes(count, '\0');
  const ssize_t got = ::pread(fd, bytes.data(), count, 0);
  ::close(fd);
  bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return bytes;
}

}  // namespace octavo::audit
