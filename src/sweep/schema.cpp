#include "sweep/schema.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "config/key.h"
#include "sweep/definition.h"

namespace octavo::sweep {
namespace {

using Ordered = nlohmann::ordered_json;

Ordered object_of(Ordered properties) {
  return {
      {"type", "object"}, {"additionalProperties", false}, {"properties", std::move(properties)}};
}

Ordered number_schema() {
  return {{"type", "number"}};
}

Ordered count_up_to(int64_t most) {
  return {{"type", "integer"}, {"minimum", 1}, {"maximum", most}};
}

// What a sweep may say of a key. The values of each key are not repeated here: `sweep create`
// refuses a wrong one.
Ordered parameter_schema(const Ordered& value, bool is_number) {
  Ordered properties = {
      {"value", value},
      {"values", {{"type", "array"}, {"minItems", 1}, {"items", value}}},
      {"probabilities", {{"type", "array"}, {"items", {{"type", "number"}, {"minimum", 0}}}}},
      {"distribution", {{"type", "string"}, {"enum", distribution_names()}}}};
  if (is_number)
    for (const char* name : {"min", "max", "mu", "sigma", "q"}) properties[name] = number_schema();
  return object_of(std::move(properties));
}

Ordered parameters_schema() {
  Ordered properties = Ordered::object();
  for (const config::Key& key : config::keys()) {
    const bool is_own = std::ranges::find(kGivenKeys, key.name) != std::end(kGivenKeys);
    if (is_own || (key.readers & config::reader::kTrain) == 0) continue;
    const bool is_number = key.type == config::Type::kInt || key.type == config::Type::kReal;
    const char* form = is_number ? "#/definitions/number" : "#/definitions/word";
    // Beside $ref draft 7 reads nothing, so it stands in allOf.
    properties[key.name] = {{"allOf", Ordered::array({Ordered{{"$ref", form}}})},
                            {"description", key.help}};
    for (const std::string& alias : key.aliases) properties[alias] = properties[key.name];
  }
  return object_of(std::move(properties));
}

Ordered early_schema() {
  return object_of({{"type", {{"type", "string"}, {"enum", Ordered::array({"hyperband"})}}},
                    {"min_iter", count_up_to(int64_t{1} << 40)},
                    {"max_iter", count_up_to(int64_t{1} << 40)},
                    {"s", count_up_to(100)},
                    {"eta", {{"type", "number"}, {"exclusiveMinimum", 1}, {"maximum", 1e6}}},
                    {"strict", {{"type", "boolean"}}}});
}

}  // namespace

std::string json_schema() {
  Ordered properties = {
      {"name", {{"type", "string"}}},
      {"method",
       {{"type", "string"},
        {"enum", Ordered::array({name_of(Method::kGrid), name_of(Method::kRandom),
                                 name_of(Method::kBayes)})}}},
      {"metric",
       object_of(
           {{"name", {{"type", "string"}, {"enum", metric_names()}}},
            {"goal", {{"type", "string"}, {"enum", Ordered::array({"minimize", "maximize"})}}},
            {"target", number_schema()},
            {"impute", Ordered::object()}})},
      {"run_cap", count_up_to(kMostTrials)},
      {"early_terminate", early_schema()},
      {"parameters", parameters_schema()}};
  for (std::string_view ignored : ignored_names())
    properties[std::string(ignored)] = {{"description", "Not used: octavo sweep says why."}};
  Ordered schema = {{"$schema", "http://json-schema.org/draft-07/schema#"},
                    {"title", "octavo sweep"},
                    {"required", Ordered::array({"parameters"})}};
  schema.update(object_of(std::move(properties)));
  const Ordered any = {{"type", Ordered::array({"string", "number", "boolean", "array"})}};
  schema["definitions"] = {{"number", parameter_schema(number_schema(), true)},
                           {"word", parameter_schema(any, false)}};
  return schema.dump(2) + "\n";
}

}  // namespace octavo::sweep
