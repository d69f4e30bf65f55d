#pragma once
// Bytes of an input, wherever it is kept.

#include <cstdint>
#include <memory>
#include <string>

#include "data/sources.h"

namespace octavo::data {

class InputFile {
 public:
  virtual ~InputFile() = default;
  // `bytes` from `offset`, fewer where the file ends.
  virtual std::string read(uint64_t offset, uint64_t bytes) const = 0;
};

// Refused when the file is no longer the one that was listed.
std::unique_ptr<InputFile> open_input(const Source& source);

// Behind the last read: what was read in parts is of one file or object, not of two.
void check_unchanged(const Source& source);

}  // namespace octavo::data
