// trainer_state.json of transformers, and records line by line (LLaMA-Factory's trainer_log.jsonl,
// scripts' own).

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/lines.h"
#include "foreign_logs/readers.h"

namespace octavo::foreign_logs {
namespace {

constexpr size_t kLongestJsonLine = size_t{4} << 20;
constexpr std::string_view kPythonWords[] = {"NaN", "Infinity", "-Infinity"};

std::optional<double> python_number(const Json& value) {
  if (value.is_number()) return value.get<double>();
  if (!value.is_string()) return std::nullopt;
  const std::string& text = value.get_ref<const std::string&>();
  if (std::ranges::find(kPythonWords, text) == std::end(kPythonWords)) return std::nullopt;
  if (text == "NaN") return NAN;
  return text.front() == '-' ? -INFINITY : INFINITY;
}

struct JsonRow {
  std::vector<Field> fields;
  std::vector<std::string> nulls;
};

// Values of objects within the record are named outer/inner.
void take_members(const Json& object, const std::string& before, int depth, JsonRow& row) {
  constexpr int kDeepest = 4;
  for (const auto& [key, value] : object.items()) {
    const std::string name = before + key;
    if (value.is_object() && depth < kDeepest) take_members(value, name + "/", depth + 1, row);
    if (value.is_null()) row.nulls.push_back(name);
    if (const std::optional<double> number = python_number(value))
      row.fields.push_back({name, *number});
  }
}

// A null is a value that was not there, or one that was not finite: JavaScript's writers know no
// NaN. A loss that is null in a row without an evaluation, or an evaluation that is null without a
// loss, was there.
JsonRow row_of(const Json& record, const Metrics& metrics) {
  JsonRow row;
  take_members(record, "", 0, row);
  const auto has_loss = [&](const Field& field) { return metrics.is_loss(field.name); };
  if (std::ranges::none_of(row.fields, has_loss)) {
    const auto lost = std::ranges::count_if(
        row.nulls, [&](const std::string& name) { return metrics.is_loss(name); });
    for (const std::string& name : row.nulls)
      if (lost == 1 && metrics.is_loss(name)) row.fields.push_back({name, NAN});
  }
  return row;
}

// "NaN" for NaN, outside of strings.
std::string with_quoted_words(std::string_view text) {
  std::string out;
  bool in_string = false;
  for (size_t at = 0; at < text.size(); ++at) {
    if (in_string && text[at] == '\\' && at + 1 < text.size()) {
      out += text.substr(at++, 2);
      continue;
    }
    if (text[at] == '"') in_string = !in_string;
    const auto* const word = in_string
                                 ? std::end(kPythonWords)
                                 : std::ranges::find_if(kPythonWords, [&](std::string_view one) {
                                     return text.substr(at).starts_with(one);
                                   });
    if (word == std::end(kPythonWords)) {
      out += text[at];
      continue;
    }
    out += "\"" + std::string(*word) + "\"";
    at += word->size() - 1;
  }
  return out;
}

}  // namespace

Json parse_python_json(std::string_view text, const std::string& source, size_t max_bytes) {
  const bool words = text.find("NaN") != text.npos || text.find("Infinity") != text.npos;
  const JsonLimits limits{max_bytes + max_bytes / 8, 32};
  return words ? parse_json(with_quoted_words(text), source, limits)
               : parse_json(text, source, limits);
}

void read_trainer_state(const Json& state, Metrics& metrics) {
  Rows rows(metrics);
  for (const Json& record : state.at("log_history")) {
    if (record.is_object())
      rows.take(row_of(record, metrics).fields);
    else
      metrics.count_bad_line();
  }
}

void read_jsonl(const fs::path& path, Metrics& metrics) {
  Rows rows(metrics);
  const std::string source = path.filename().string();
  metrics.count_bad_line(for_each_line(path, kLongestJsonLine, [&](std::string_view line) {
    if (line.find_first_not_of(" \t\r") == line.npos) return;
    try {
      const Json record = parse_python_json(line, source, kLongestJsonLine);
      if (record.is_object())
        rows.take(row_of(record, metrics).fields);
      else
        metrics.count_bad_line();
    } catch (const Error& error) {
      if (error.code() == ExitCode::kUsage) throw;  // too many values
      metrics.count_bad_line();
    }
  }));
}

}  // namespace octavo::foreign_logs
