#include "run_report/json_values.h"

#include <algorithm>
#include <cmath>

#include "chart/escape.h"

namespace octavo::run_report {
namespace {

constexpr int64_t kLastStep = int64_t{1} << 50;

const Json& member_in(const Json& object, const char* name, const Json& otherwise) {
  if (!object.is_object()) return otherwise;
  const auto found = object.find(name);
  return found != object.end() && found->type() == otherwise.type() ? *found : otherwise;
}

}  // namespace

std::optional<double> finite_in(const Json& object, const char* name) {
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(name);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  const double value = found->get<double>();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::string text_in(const Json& object, const char* name, size_t max_bytes) {
  static const Json none = "";
  const auto& text = member_in(object, name, none).get_ref<const std::string&>();
  if (text.size() <= max_bytes) return text;
  size_t end = 0;
  const std::string_view view = text;
  while (end < max_bytes) {
    const size_t length = std::max<size_t>(1, chart::character_at(view.substr(end)));
    if (end + length > max_bytes) break;
    end += length;
  }
  return text.substr(0, end) + "…";
}

const Json& object_in(const Json& object, const char* name) {
  static const Json none = Json::object();
  return member_in(object, name, none);
}

const Json& array_in(const Json& object, const char* name) {
  static const Json none = Json::array();
  return member_in(object, name, none);
}

std::optional<int64_t> step_in(const Json& record) {
  if (!record.is_object()) return std::nullopt;
  const auto found = record.find("step");
  if (found == record.end() || !found->is_number_integer()) return std::nullopt;
  if (found->is_number_unsigned() && found->get<uint64_t>() > static_cast<uint64_t>(kLastStep))
    return std::nullopt;
  const int64_t step = found->get<int64_t>();
  return step >= 0 && step <= kLastStep ? std::optional(step) : std::nullopt;
}

}  // namespace octavo::run_report
