// Metadata of Python packages, by the first character: m METADATA with its requirements, r RECORD,
// c pyvenv.cfg, v two versions in two lines, s a version and a specifier, q a marker.
#include "fuzz/harness.h"
#include "python_env/metadata.h"
#include "python_env/requirement.h"

namespace {

using namespace octavo;
using namespace octavo::python_env;

std::pair<std::string_view, std::string_view> two_lines(std::string_view text) {
  const size_t end = text.find('\n');
  return {text.substr(0, end), end == text.npos ? std::string_view() : text.substr(end + 1)};
}

// What is read can be written, and is then read as the same.
void check_version(const Version& version) {
  if (version.text().size() > 200) return;  // its normal form may be longer than what is read
  const auto again = parse_version(version.text());
  fuzz::check(again && *again == version, "a version that its own text does not give");
  fuzz::check(version.without_local() <= version, "a local build before its release");
}

void read_metadata(std::string_view text) {
  const Metadata metadata = parse_metadata(text);
  const MarkerValues values = marker_values("3.11.2");
  const auto version = parse_version(metadata.version);
  if (version) check_version(*version);
  for (const std::string& line : metadata.requirements)
    if (const auto wanted = parse_requirement(line)) {
      holds(wanted->marker, values);
      if (version) allows(wanted->specifiers, *version);
      fuzz::check(normalised(wanted->name) == wanted->name, "a name that is not normalised");
    }
}

void compare_versions(std::string_view text) {
  const auto [first, second] = two_lines(text);
  const auto a = parse_version(first), b = parse_version(second);
  if (!a || !b) return;
  check_version(*a);
  fuzz::check((*a < *b) == (*b > *a), "an order that depends on the side");
  fuzz::check((*a == *b) == (!(*a < *b) && !(*b < *a)), "equal and not equal");
}

void check_specifier(std::string_view text) {
  const auto [first, second] = two_lines(text);
  const auto version = parse_version(first);
  const auto specifiers = parse_specifiers(second);
  if (version && specifiers) allows(*specifiers, *version);
}

void check_path(const fs::path& file) {
  fuzz::check(file.is_relative(), "an absolute path");
  for (const fs::path& part : file) fuzz::check(part != "..", "a path that leads out");
}

}  // namespace

OCTAVO_FUZZ_TARGET(input) {
  if (input.empty()) return;
  const std::string_view text = input.substr(1);
  fuzz::refusal_of([&] {
    switch (input[0]) {
      case 'm':
        read_metadata(text);
        break;
      case 'r':
        for (const std::string& file : recorded_files(text, ".so")) check_path(file);
        break;
      case 'c':
        parse_pyvenv(text);
        break;
      case 'v':
        compare_versions(text);
        break;
      case 's':
        check_specifier(text);
        break;
      default:
        holds(text, marker_values("3.11"));
        break;
    }
  });
}
