#include "data/units.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "base/log.h"

namespace octavo::data {

UnitReader::UnitReader(const std::vector<Source>& sources, UnitPosition start, UnitLimits limits)
    : sources_(sources), at_(start), limits_(limits) {
  OCTAVO_ASSERT(start.file >= sources.size() || start.offset < sources[start.file].bytes);
}

UnitReader::~UnitReader() {
  if (fd_ >= 0) ::close(fd_);
}

void UnitReader::open() {
  const Source& source = sources_[at_.file];
  fd_ = ::open(source.path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (fd_ < 0 || ::fstat(fd_, &status) != 0)
    fail(ExitCode::kEnvironment, "data", "cannot open ", source.path.string(), ": ",
         std::strerror(errno), "; check its rights");
  const int64_t modified = status.st_mtim.tv_sec * 1'000'000'000 + status.st_mtim.tv_nsec;
  if (static_cast<uint64_t>(status.st_size) != source.bytes || modified != source.modified_ns)
    fail(ExitCode::kUsage, "data", source.path.string(),
         " changed while it was being prepared: wanted ", source.bytes, " bytes, found ",
         status.st_size, "; run the command again");
  if (!source.jsonl && source.bytes > limits_.text_bytes && at_.offset == 0)
    log_warn(str("data: ", source.path.string(), " is larger than ", limits_.text_bytes >> 20,
                 " MiB: still one document, but tokenized in parts cut at line ends, about every ",
                 limits_.part_bytes >> 20, " MiB"));
}

std::string UnitReader::read(uint64_t offset, uint64_t bytes) const {
  const Source& source = sources_[at_.file];
  std::string text(std::min(bytes, source.bytes - offset), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got =
        ::pread(fd_, text.data() + done, text.size() - done, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0)
      fail(ExitCode::kEnvironment, "data", "cannot read ", source.path.string(), " at byte ",
           offset + done, ": ", got < 0 ? std::strerror(errno) : "it ends there",
           "; run the command again when the file is whole");
    done += static_cast<size_t>(got);
  }
  return text;
}

// Shortens a part of a text file to end behind a newline or, when it has none, between two
// characters.
void UnitReader::cut_text(std::string& text) const {
  size_t end = text.rfind('\n');
  if (end != std::string::npos) {
    text.resize(end + 1);
    return;
  }
  log_warn(str("data: ", sources_[at_.file].path.string(), ": no line end in the ", text.size(),
               " bytes from ", at_.offset, ", cut between two characters"));
  end = text.size();
  while (end > 1 && (static_cast<unsigned char>(text[end - 1]) & 0xc0) == 0x80) --end;
  if (end > 1) text.resize(end - 1);  // in front of the last lead byte
}

// Shortens to whole lines; a line longer than the batch is read on to its end.
void UnitReader::fill_lines(std::string& text) const {
  const Source& source = sources_[at_.file];
  size_t end = text.rfind('\n');
  while (end == std::string::npos && at_.offset + text.size() < source.bytes) {
    if (text.size() >= limits_.line_bytes)
      fail(ExitCode::kDamaged, "data", source.path.string(), ":", at_.line,
           ": wanted lines of at most ", limits_.line_bytes,
           " bytes, found a longer one; split the document");
    const size_t before = text.size();
    text += read(at_.offset + before, limits_.batch_bytes);
    end = text.find('\n', before);
  }
  if (end != std::string::npos && at_.offset + text.size() < source.bytes) text.resize(end + 1);
}

std::optional<Unit> UnitReader::next() {
  if (at_.file >= sources_.size()) return std::nullopt;
  if (fd_ < 0) open();
  const Source& source = sources_[at_.file];
  Unit unit{.start = at_};
  const uint64_t part = source.bytes > limits_.text_bytes ? limits_.part_bytes : source.bytes;
  unit.text = read(at_.offset, source.jsonl ? limits_.batch_bytes : part);
  if (source.jsonl) {
    fill_lines(unit.text);
  } else if (at_.offset + unit.text.size() < source.bytes) {
    cut_text(unit.text);
  }
  at_.offset += unit.text.size();
  unit.ends_file = at_.offset == source.bytes;
  if (unit.ends_file) {
    ::close(fd_);
    fd_ = -1;
    at_ = {.file = at_.file + 1};
  } else if (source.jsonl) {
    at_.line += static_cast<uint64_t>(std::count(unit.text.begin(), unit.text.end(), '\n'));
  }
  return unit;
}

}  // namespace octavo::data
