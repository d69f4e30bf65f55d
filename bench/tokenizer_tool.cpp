// Encodes documents for bench/tokenizer_vs_hf.py: tokenizer_tool TOKENIZER DOCUMENTS IDS
// DOCUMENTS holds for each document its length (u64) and its bytes; IDS gets for each document the
// number of ids (u64) and the ids (u32). Little-endian. Prints the seconds that encoding alone
// took.
// tokenizer_tool --decode|--decode-text TOKENIZER IDS DOCUMENTS goes the other way, --decode-text
// without special tokens.

#include <time.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "tokenizer/tokenizer.h"

namespace {

std::vector<std::string_view> read_documents(const octavo::MappedFile& file) {
  const auto* data = reinterpret_cast<const char*>(file.bytes().data());
  const size_t size = file.bytes().size();
  std::vector<std::string_view> documents;
  for (size_t at = 0; at < size;) {
    uint64_t length = 0;
    if (size - at >= sizeof(length)) std::memcpy(&length, data + at, sizeof(length));
    if (size - at < sizeof(length) || length > size - at - sizeof(length))
      octavo::fail(octavo::ExitCode::kDamaged, "bench", "wanted whole documents in ",
                   file.path().string(), ", found it cut off at byte ", at, "; write it again");
    documents.emplace_back(data + at + sizeof(length), length);
    at += sizeof(length) + length;
  }
  return documents;
}

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void run(const char* tokenizer_path, const char* documents_path, const char* ids_path) {
  const auto tokenizer = octavo::tokenizer::load_tokenizer(tokenizer_path);
  const octavo::MappedFile file(documents_path);
  const std::vector<std::string_view> documents = read_documents(file);
  std::vector<octavo::tokenizer::TokenId> ids;
  std::vector<uint64_t> counts;
  size_t bytes = 0;
  const double cpu_start = cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  for (const std::string_view document : documents) {
    const size_t before = ids.size();
    tokenizer->encode(document, ids);
    counts.push_back(ids.size() - before);
    bytes += document.size();
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const double cpu = cpu_seconds() - cpu_start;
  octavo::FileWriter out(ids_path);
  const auto* next = ids.data();
  for (const uint64_t count : counts) {
    out.write(std::as_bytes(std::span(&count, 1)));
    out.write(std::as_bytes(std::span(next, count)));
    next += count;
  }
  out.close();
  std::printf("documents=%zu bytes=%zu ids=%zu seconds=%.6f cpu_seconds=%.6f\n", documents.size(),
              bytes, ids.size(), seconds.count(), cpu);
}

void decode(const char* tokenizer_path, const char* ids_path, const char* documents_path,
            bool skip_special) {
  const auto tokenizer = octavo::tokenizer::load_tokenizer(tokenizer_path);
  const octavo::MappedFile file(ids_path);
  const std::span<const std::byte> bytes = file.bytes();
  octavo::FileWriter out(documents_path);
  std::vector<octavo::tokenizer::TokenId> ids;
  for (size_t at = 0; at < bytes.size(); at += ids.size() * sizeof(ids[0])) {
    uint64_t count = 0;
    if (bytes.size() - at >= sizeof(count)) std::memcpy(&count, bytes.data() + at, sizeof(count));
    at += sizeof(count);
    if (at > bytes.size() || count > (bytes.size() - at) / sizeof(ids[0]))
      octavo::fail(octavo::ExitCode::kDamaged, "bench", "wanted whole lists of ids in ", ids_path,
                   ", found it cut off; write it again");
    ids.resize(count);
    if (count > 0) std::memcpy(ids.data(), bytes.data() + at, count * sizeof(ids[0]));
    const std::string text = tokenizer->decode(ids, skip_special);
    const uint64_t length = text.size();
    out.write(std::as_bytes(std::span(&length, 1)));
    out.write(std::as_bytes(std::span(text.data(), text.size())));
  }
  out.close();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view way = argc == 5 ? argv[1] : "";
  const bool decodes = way == "--decode" || way == "--decode-text";
  if (argc != 4 && !decodes) {
    std::fprintf(stderr,
                 "usage: tokenizer_tool TOKENIZER DOCUMENTS IDS\n"
                 "       tokenizer_tool --decode|--decode-text TOKENIZER IDS DOCUMENTS\n");
    return 2;
  }
  try {
    if (decodes)
      decode(argv[2], argv[3], argv[4], way == "--decode-text");
    else
      run(argv[1], argv[2], argv[3]);
  } catch (const octavo::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
