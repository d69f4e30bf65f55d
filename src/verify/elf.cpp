#include "verify/elf.h"

#include <elf.h>

#include <cstring>
#include <optional>

#include "base/error.h"

namespace octavo::verify {
namespace {

using Bytes = std::span<const std::byte>;

// A record at an offset of the file, if it is all inside.
template <class T>
std::optional<T> record_at(Bytes file, uint64_t offset) {
  if (offset > file.size() || file.size() - offset < sizeof(T)) return std::nullopt;
  T value;
  std::memcpy(&value, file.data() + offset, sizeof value);
  return value;
}

std::vector<Elf64_Phdr> segments_of(Bytes file, const Elf64_Ehdr& header) {
  std::vector<Elf64_Phdr> out;
  for (uint16_t i = 0; i < header.e_phnum; ++i)
    if (const auto segment = record_at<Elf64_Phdr>(
            file, header.e_phoff + static_cast<uint64_t>(i) * sizeof(Elf64_Phdr)))
      out.push_back(*segment);
  return out;
}

// Where an address of the loaded library lies in the file.
std::optional<uint64_t> offset_of(const std::vector<Elf64_Phdr>& segments, uint64_t address) {
  for (const Elf64_Phdr& s : segments)
    if (s.p_type == PT_LOAD && address >= s.p_vaddr && address - s.p_vaddr < s.p_filesz)
      return address - s.p_vaddr + s.p_offset;
  return std::nullopt;
}

std::string text_at(Bytes file, uint64_t offset) {
  constexpr size_t kLongest = 4096;
  if (offset >= file.size()) return {};
  const auto* begin = reinterpret_cast<const char*>(file.data() + offset);
  return {begin, strnlen(begin, std::min(kLongest, static_cast<size_t>(file.size() - offset)))};
}

}  // namespace

std::vector<std::string> needed_libraries(const fs::path& path) {
  const MappedFile mapped(path);
  const Bytes file = mapped.bytes();
  const auto header = record_at<Elf64_Ehdr>(file, 0);
  if (!header || std::memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
      header->e_ident[EI_CLASS] != ELFCLASS64 || header->e_ident[EI_DATA] != ELFDATA2LSB)
    return {};
  const auto segments = segments_of(file, *header);
  std::vector<uint64_t> names;
  std::optional<uint64_t> strings;
  for (const Elf64_Phdr& s : segments) {
    if (s.p_type != PT_DYNAMIC) continue;
    for (uint64_t at = 0; at + sizeof(Elf64_Dyn) <= s.p_filesz; at += sizeof(Elf64_Dyn)) {
      const auto entry = record_at<Elf64_Dyn>(file, s.p_offset + at);
      if (!entry || entry->d_tag == DT_NULL) break;
      if (entry->d_tag == DT_NEEDED) names.push_back(entry->d_un.d_val);
      if (entry->d_tag == DT_STRTAB) strings = offset_of(segments, entry->d_un.d_ptr);
    }
  }
  std::vector<std::string> out;
  if (strings)
    for (const uint64_t name : names) out.push_back(text_at(file, *strings + name));
  return out;
}

}  // namespace octavo::verify
