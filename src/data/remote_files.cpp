#include "data/remote_files.h"

#include <cstring>

#include "base/error.h"
#include "base/log.h"
#include "object_store/address.h"

namespace octavo::data {
namespace {

constexpr size_t kReaders = 256;  // to open one is a request

}  // namespace

RemoteFiles::RemoteFiles(std::shared_ptr<object_store::ObjectStore> store, const LocalCache& cache)
    : store_(std::move(store)) {
  if (cache.bytes > 0) cache_.emplace(cache.folder, cache.bytes);
}

std::string RemoteFiles::Range::key() const {
  return str(address, '\0', version, '\0', begin, '\0', end);
}

RemoteFiles::Reader RemoteFiles::reader_of(const std::string& address) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = places_.find(address); found != places_.end()) {
      readers_.splice(readers_.begin(), readers_, found->second);
      return readers_.front().second;
    }
  }
  Reader reader = store_->open(address);  // which takes its time
  const std::lock_guard lock(mutex_);
  if (const auto found = places_.find(address); found != places_.end())
    return found->second->second;
  readers_.emplace_front(address, reader);
  places_[address] = readers_.begin();
  if (readers_.size() > kReaders) {
    places_.erase(readers_.back().first);
    readers_.pop_back();
  }
  return reader;
}

std::optional<Bytes> RemoteFiles::find(const Range& range) {
  if (!cache_) return std::nullopt;
  auto found = cache_->find(range.key(), range.end - range.begin);
  if (found) cached_bytes_ += found->size();
  return found;
}

RemoteFiles::Part RemoteFiles::read(const Range& range, bool claims) {
  const uint64_t size = range.end - range.begin;
  if (auto found = find(range)) return {.bytes = std::move(*found)};
  Fd claim = cache_ && claims ? cache_->claim(range.key()) : Fd();
  if (claim.open())
    if (auto found = find(range)) return {.bytes = std::move(*found)};
  const std::string text = reader_of(range.address)->read(range.begin, size);
  if (text.size() != size)
    fail(ExitCode::kEnvironment, "data", range.address, ": wanted ", size, " bytes from ",
         range.begin, ", found ", text.size(), "; check the server");
  ++requests_;
  bytes_ += size;
  Part part{Bytes(size), true, std::move(claim)};
  std::memcpy(part.bytes.all().data(), text.data(), size);
  return part;
}

void RemoteFiles::keep(const Range& range, std::span<const std::byte> bytes) const {
  if (cache_) cache_->keep(range.key(), bytes);
}

std::shared_ptr<RemoteFiles> remote_files_of(const fs::path& folder, const LocalCache& cache) {
  if (!object_store::is_s3_address(folder.string())) return nullptr;
  return std::make_shared<RemoteFiles>(object_store::s3(), cache);
}

}  // namespace octavo::data
