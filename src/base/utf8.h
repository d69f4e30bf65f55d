#pragma once
// Code points as UTF-8.

#include <cstdint>
#include <string>

namespace octavo {

// Up to U+10FFFF; halves of surrogate pairs are written like any other.
void append_utf8(uint32_t code_point, std::string& out);

}  // namespace octavo
