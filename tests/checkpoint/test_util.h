#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/file.h"
#include "scratch.h"

namespace octavo::checkpoint {

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline void write_text(const fs::path& path, const std::string& content) {
  fs::remove(path);  // a new file: whoever has the old one mapped keeps it
  std::ofstream out(path, std::ios::binary);
  out.write(content.data(), static_cast<std::streamsize>(content.size()));
  ASSERT_TRUE(out.flush()) << path;
}

inline std::string read_text(const fs::path& path) {
  return read_file(path, size_t{1} << 30);
}

// Length, header, data: a safetensors file around any header text.
inline std::string raw_safetensors(const std::string& header, size_t data_bytes) {
  std::string file(8, '\0');
  for (int i = 0; i < 8; ++i) file[i] = static_cast<char>(uint64_t{header.size()} >> (8 * i));
  return file + header + std::string(data_bytes, '\x01');
}

inline bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  at::Tensor x = a.contiguous(), y = b.contiguous();
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

// The message of the octavo::Error that `body` must throw with `code`.
template <typename Body>
std::string error_of(ExitCode code, Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not an octavo::Error: " << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace octavo::checkpoint
