#pragma once
// Tokens for a reader that comes back to the same neighbourhood: whole blocks are read once,
// checked while they are read, and kept in a cache of bounded size. Threads read what the reader
// says it will want.

#include <cstdint>
#include <memory>
#include <span>

namespace octavo::data {

class TokenData;

struct StreamOptions {
  uint64_t block_tokens = 1;  // blocks begin at multiples of it…
  uint64_t overlap = 0;       // …and have as many tokens of the next one
  uint64_t cached_blocks = 1;
  uint64_t expected_blocks = 0;  // of them, at most: read, and not used yet
  int threads = 4;
  int sharers = 1;  // streams that share the threads
  // cached_blocks grows up to it while blocks come back that were dropped.
  uint64_t most_blocks = 0;
};

class TokenStream {
 public:
  virtual ~TokenStream() = default;
  // As TokenData::read().
  virtual void read(uint64_t begin, std::span<int32_t> out) = 0;
  // That tokens from `begin` on will be read soon. False: not now, there is enough to do.
  virtual bool expect(uint64_t /*begin*/) { return true; }
  virtual uint64_t bytes_read() const { return 0; }  // from files
};

}  // namespace octavo::data
