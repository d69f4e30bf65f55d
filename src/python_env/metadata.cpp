#include "python_env/metadata.h"

#include <algorithm>

#include "base/text.h"
#include "python_env/ascii.h"

namespace octavo::python_env {
namespace {

constexpr size_t kMostRequirements = 4096, kMostRecorded = 4096;

std::string_view next_line(std::string_view& text) {
  const size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == text.npos ? text.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

void keep_field(Metadata& out, const std::string& key, const std::string& value) {
  const auto keep_first = [&](std::string& place) {
    if (place.empty()) place = trim(value);
  };
  if (key == "name") keep_first(out.name);
  if (key == "version") keep_first(out.version);
  if (key == "requires-python") keep_first(out.requires_python);
  if (key == "requires-dist" && out.requirements.size() < kMostRequirements)
    out.requirements.emplace_back(trim(value));
}

// The first field of a line of CSV.
std::string first_field(std::string_view line) {
  if (!line.starts_with('"')) return std::string(line.substr(0, line.find(',')));
  std::string out;
  for (size_t i = 1; i < line.size(); ++i) {
    if (line[i] != '"') {
      out += line[i];
    } else if (i + 1 < line.size() && line[i + 1] == '"') {
      out += line[++i];
    } else {
      break;
    }
  }
  return out;
}

bool stays_inside(std::string_view path) {
  if (path.empty() || path.starts_with('/')) return false;
  const std::vector<std::string> parts = split(path, '/');
  return std::ranges::find(parts, "..") == parts.end();
}

}  // namespace

Metadata parse_metadata(std::string_view text) {
  Metadata out;
  std::string key, value;
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    if (line.empty()) break;  // the description follows
    if (line.front() == ' ' || line.front() == '\t') {
      value += " ";
      value += trim(line);
      continue;
    }
    keep_field(out, key, value);
    const size_t colon = line.find(':');
    if (colon == line.npos) {
      key.clear();
      value.clear();
      continue;
    }
    key = ascii_lower(line.substr(0, colon));
    value = line.substr(colon + 1);
  }
  keep_field(out, key, value);
  return out;
}

std::vector<std::string> recorded_files(std::string_view text, std::string_view part) {
  std::vector<std::string> out;
  while (!text.empty() && out.size() < kMostRecorded) {
    const std::string_view line = next_line(text);
    if (line.find(part) == line.npos) continue;
    std::string path = first_field(line);
    if (path.find(part) != path.npos && stays_inside(path)) out.push_back(std::move(path));
  }
  return out;
}

std::map<std::string, std::string> parse_pyvenv(std::string_view text) {
  std::map<std::string, std::string> out;
  while (!text.empty()) {
    const std::string_view line = next_line(text);
    const size_t equals = line.find('=');
    if (equals == line.npos) continue;
    out[ascii_lower(trim(line.substr(0, equals)))] = trim(line.substr(equals + 1));
  }
  return out;
}

}  // namespace octavo::python_env
