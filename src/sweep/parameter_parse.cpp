// What W&B calls a parameter: value, values, or a distribution with its numbers.

#include <algorithm>
#include <cmath>
#include <map>

#include "base/error.h"
#include "base/text.h"
#include "config/key.h"
#include "config/key_makers.h"
#include "sweep/definition.h"

namespace octavo::sweep {
namespace {

using config::YamlEntry;

struct Shape {
  std::string_view name;
  Kind kind;
  bool range = false;      // min and max
  bool exponents = false;  // … which are of e
  bool inverse = false;    // … of one over the value
  bool stepped = false;    // q
};
constexpr Shape kShapes[] = {{"constant", Kind::kConstant},
                             {"categorical", Kind::kCategorical},
                             {"categorical_w_probabilities", Kind::kCategorical},
                             {"int_uniform", Kind::kInteger, true},
                             {"uniform", Kind::kUniform, true},
                             {"q_uniform", Kind::kUniform, true, false, false, true},
                             {"log_uniform", Kind::kLogUniform, true, true},
                             {"log_uniform_values", Kind::kLogUniform, true},
                             {"q_log_uniform", Kind::kLogUniform, true, true, false, true},
                             {"q_log_uniform_values", Kind::kLogUniform, true, false, false, true},
                             {"inv_log_uniform", Kind::kLogUniform, true, true, true},
                             {"inv_log_uniform_values", Kind::kLogUniform, true},
                             {"normal", Kind::kNormal},
                             {"q_normal", Kind::kNormal, false, false, false, true},
                             {"log_normal", Kind::kLogNormal},
                             {"q_log_normal", Kind::kLogNormal, false, false, false, true}};

class ParameterReader {
 public:
  ParameterReader(const std::string& name, const std::vector<YamlEntry>& fields,
                  const std::string& source)
      : key_(*config::find_key(name)), fields_(fields), source_(source) {
    parameter_.name = name;
    for (const YamlEntry& field : fields)
      if (std::ranges::find(kFields, field.name) == std::end(kFields)) unknown_field(field);
  }

  Parameter read() {
    const Shape& shape = chosen_shape();
    parameter_.kind = shape.kind;
    allow(shape);
    if (shape.kind == Kind::kConstant)
      read_constant();
    else if (shape.kind == Kind::kCategorical)
      read_values();
    else
      read_numbers(shape);
    return parameter_;
  }

 private:
  static constexpr std::string_view kFields[] = {
      "value", "values", "probabilities", "distribution", "min", "max", "mu", "sigma", "q"};

  [[noreturn]] void unknown_field(const YamlEntry& field) const {
    const std::string nearest = nearest_name(field.name, kFields);
    refuse_entry(source_, field,
                 str(key_.name, ": unknown; ",
                     nearest.empty() ? "a parameter has value, values, or distribution with min, "
                                       "max, mu, sigma and q"
                                     : "did you mean " + nearest + "?"));
  }

  const YamlEntry* field(std::string_view name) const {
    const auto it = std::ranges::find(fields_, name, &YamlEntry::name);
    return it == fields_.end() ? nullptr : &*it;
  }
  const YamlEntry& needed(std::string_view name) const {
    if (const YamlEntry* entry = field(name)) return *entry;
    refuse_entry(source_, fields_.front(), str(key_.name, ": wanted ", name, ", found none"));
  }
  double number(std::string_view name, double otherwise) const {
    const YamlEntry* entry = field(name);
    return entry == nullptr ? otherwise : number_of(source_, *entry);
  }

  const Shape& shape_of(std::string_view name) const {
    for (const Shape& shape : kShapes)
      if (shape.name == name) return shape;
    const std::vector<std::string_view> names = distribution_names();
    const std::string nearest = nearest_name(name, names);
    std::string all;
    for (std::string_view other : names) all += (all.empty() ? "" : ", ") + std::string(other);
    refuse_entry(source_, needed("distribution"),
                 str(key_.name, ": unknown distribution '", name.substr(0, 40), "'; ",
                     nearest.empty() ? "there are " + all : "did you mean " + nearest + "?"));
  }

  // Without a distribution, what is given says it, as in W&B.
  const Shape& chosen_shape() const {
    if (const YamlEntry* entry = field("distribution")) return shape_of(single_of(source_, *entry));
    if (field("value") != nullptr) return shape_of("constant");
    if (field("values") != nullptr) return shape_of("categorical");
    if (field("min") != nullptr || field("max") != nullptr) {
      const auto is_integer = [&](std::string_view name) {
        return config::parse_number<int64_t>(single_of(source_, needed(name))).has_value();
      };
      return shape_of(is_integer("min") && is_integer("max") ? "int_uniform" : "uniform");
    }
    if (field("mu") != nullptr || field("sigma") != nullptr) return shape_of("normal");
    refuse_entry(source_, fields_.front(),
                 key_.name + ": wanted value, values, or min and max, found none of them");
  }

  // A field that the distribution does not read would be without effect.
  void allow(const Shape& shape) const {
    for (const YamlEntry& entry : fields_) {
      const std::string& name = entry.name;
      bool read = name == "distribution";
      if (shape.kind == Kind::kConstant) read |= name == "value";
      if (shape.kind == Kind::kCategorical) read |= name == "values" || name == "probabilities";
      if (shape.range) read |= name == "min" || name == "max";
      if (shape.kind == Kind::kNormal || shape.kind == Kind::kLogNormal)
        read |= name == "mu" || name == "sigma";
      read |= shape.stepped && name == "q";
      if (!read)
        refuse_entry(source_, entry,
                     str(key_.name, ": not read by ", shape.name, "; leave it out"));
    }
  }

  void check(const YamlEntry& entry, const std::string& text) const {
    config::Settings settings;
    const std::vector<std::string> texts =
        key_.type == config::Type::kList ? split(text, ',') : std::vector{text};
    if (!key_.store(settings, texts))
      refuse_entry(source_, entry,
                   str(key_.name, ": wanted ", key_.wanted, ", found '", text.substr(0, 80), "'"));
  }

  void read_constant() {
    const YamlEntry& entry = needed("value");
    const bool list = entry.is_list && key_.type == config::Type::kList;
    parameter_.values = {list ? join(entry.values, ",") : single_of(source_, entry)};
    check(entry, parameter_.values.front());
  }

  void read_values() {
    const YamlEntry& entry = needed("values");
    if (!entry.is_list || entry.values.empty())
      refuse_entry(source_, entry, key_.name + ": wanted a list, such as [0.1, 0.2]");
    for (const std::string& value : entry.values) check(entry, value);
    parameter_.values = entry.values;
    const YamlEntry* shares = field("probabilities");
    if (shares == nullptr) return;
    double sum = 0;
    for (const std::string& text : shares->values) {
      const double share = config::parse_number<double>(text).value_or(-1);
      if (!(share >= 0 && share <= 1))
        refuse_entry(source_, *shares, "wanted numbers from 0 to 1, found '" + text + "'");
      parameter_.probabilities.push_back(share);
      sum += share;
    }
    if (parameter_.probabilities.size() != parameter_.values.size() || std::abs(sum - 1) > 1e-6)
      refuse_entry(source_, *shares,
                   str(key_.name, ": wanted one number for each of ", parameter_.values.size(),
                       " values, with the sum 1, found ", parameter_.probabilities.size(),
                       " with the sum ", sum));
  }

  void read_numbers(const Shape& shape) {
    if (key_.type != config::Type::kInt && key_.type != config::Type::kReal)
      refuse_entry(source_, fields_.front(),
                   str(key_.name, " is not a number (", key_.wanted, "); use value or values"));
    if (shape.range) read_range(shape);
    parameter_.mu = number("mu", 0);
    parameter_.sigma = number("sigma", 1);
    if (!(parameter_.sigma > 0)) refuse_entry(source_, needed("sigma"), "wanted more than 0");
    if (shape.stepped) parameter_.step = number("q", 1);
    if (shape.stepped && !(parameter_.step > 0))
      refuse_entry(source_, needed("q"), "wanted more than 0");
    const bool whole = shape.kind == Kind::kInteger ||
                       (shape.stepped && std::nearbyint(parameter_.step) == parameter_.step);
    if (key_.type == config::Type::kInt && !whole)
      refuse_entry(source_, fields_.front(),
                   str(key_.name, " takes integers, and ", shape.name,
                       " draws others; use int_uniform, or a q_ distribution with a whole q"));
    // Both ends must be values that the key takes; what a bell gives is seen when it is drawn.
    if (shape.range)
      for (const double u : {1e-12, 1 - 1e-12}) check(fields_.front(), value_at(parameter_, u));
  }

  void read_range(const Shape& shape) {
    double low = number_of(source_, needed("min")), high = number_of(source_, needed("max"));
    if (!(low < high) && !(shape.kind == Kind::kInteger && low == high))
      refuse_entry(source_, needed("max"), str("wanted more than min, which is ", low));
    if (shape.kind == Kind::kInteger &&
        (std::nearbyint(low) != low || std::nearbyint(high) != high || high - low > 1e15))
      refuse_entry(source_, needed("min"), "wanted whole numbers");
    if (shape.kind == Kind::kLogUniform && !shape.exponents && !(low > 0))
      refuse_entry(source_, needed("min"), "wanted more than 0 for a logarithm");
    if (shape.exponents) {
      const double first = std::exp(shape.inverse ? -high : low);
      high = std::exp(shape.inverse ? -low : high);
      low = first;
      if (!(low > 0 && std::isfinite(high)))
        refuse_entry(source_, needed("max"),
                     str("min and max of ", shape.name,
                         " are exponents of e; for the values themselves use log_uniform_values"));
    }
    parameter_.low = low;
    parameter_.high = high;
  }

  const config::Key& key_;
  const std::vector<YamlEntry>& fields_;
  const std::string& source_;
  Parameter parameter_;
};

}  // namespace

std::vector<std::string_view> distribution_names() {
  std::vector<std::string_view> names;
  for (const Shape& shape : kShapes) names.push_back(shape.name);
  return names;
}

void refuse_entry(const std::string& source, const YamlEntry& entry, const std::string& problem) {
  fail(ExitCode::kUsage, "sweep", source, ":", entry.line, ": ", entry.name.substr(0, 120), ": ",
       problem);
}

double number_of(const std::string& source, const YamlEntry& entry) {
  const auto number = config::parse_number<double>(single_of(source, entry));
  if (!number || !std::isfinite(*number))
    refuse_entry(source, entry,
                 "wanted a number, found '" + entry.values.front().substr(0, 40) + "'");
  return *number;
}

const std::string& single_of(const std::string& source, const YamlEntry& entry) {
  if (entry.is_null || entry.is_list || entry.values.size() != 1)
    refuse_entry(source, entry,
                 entry.is_list ? "wanted one value, found a list" : "wanted a value, found none");
  return entry.values.front();
}

Parameter parse_parameter(const std::string& name, const std::vector<YamlEntry>& fields,
                          const std::string& source) {
  return ParameterReader(name, fields, source).read();
}

}  // namespace octavo::sweep
