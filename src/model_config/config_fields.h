#pragma once
// Reads a Hugging Face config.json field by field. What nobody asked for is refused in the end: a
// field that changes the mathematics and is not implemented must not be passed over.

#include <initializer_list>
#include <optional>
#include <set>
#include <string>

#include "base/error.h"
#include "base/json.h"

namespace octavo::model_config {

class ConfigFields {
 public:
  // `architecture` is for messages; the object outlives this. The first refusal goes to `refusal`;
  // without one it is thrown.
  ConfigFields(const Json& object, std::string source, std::string architecture,
               std::optional<Error>* refusal);

  bool has(const char* name) const;              // there, and not null
  int64_t count(const char* name, int64_t max);  // wanted, in 1..max
  int64_t count_or(const char* name, int64_t max, int64_t missing);
  // Wanted to run the model, not to know its size: 0 when it is missing and refusals are kept.
  int64_t count_to_run(const char* name, int64_t max);
  double real_or(const char* name, double missing);
  bool flag_or(const char* name, bool missing);
  std::string text_or(const char* name, const std::string& missing);
  // The object of that name, empty when it is missing or null.
  const Json& object_or_empty(const char* name);
  // May be missing or null; else its value is one of these, the ones that are implemented.
  void must_be(const char* name, std::initializer_list<Json> implemented);
  // What a config.json of any model may say, in transformers 2 to 5: where it comes from, heads of
  // other tasks, how to generate. What would make it another model has to be at its neutral value.
  void pass_general();
  // May be there and change nothing that we compute.
  void harmless(std::initializer_list<const char*> names);
  void refuse_rest() const;
  void refuse(const std::string& name) const;
  void refuse_with(const Error& error) const;

 private:
  const Json* find(const char* name);

  const Json& object_;
  std::string source_, architecture_;
  std::optional<Error>* refusal_;
  std::set<std::string> known_;
};

}  // namespace octavo::model_config
