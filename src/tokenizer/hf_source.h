#pragma once
// A tokenizer.json while it is read: what is wrong in it, by name.

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/json.h"

namespace octavo::tokenizer {

class HfSource {
 public:
  explicit HfSource(std::string_view name) : name_(name) {}
  const std::string& name() const { return name_; }

  // The field's value would change the ids and nothing here computes what it asks for.
  [[noreturn]] void refuse(std::string_view what, std::string_view wanted,
                           std::string_view found) const {
    fail(ExitCode::kUsage, "tokenizer", name_, ": ", what, ": wanted ", wanted, ", found ", found,
         ", which is not supported; use another tokenizer");
  }
  template <typename... Parts>
  [[noreturn]] void damaged(const Parts&... parts) const {
    fail(ExitCode::kDamaged, "tokenizer", name_, ": ", parts...,
         "; get the file again from where it came");
  }

  void only(const Json& object, std::string_view where,
            std::initializer_list<std::string_view> known) const {
    if (!object.is_object()) damaged(where, ": wanted an object, found ", object.type_name());
    for (const auto& item : object.items())
      if (std::find(known.begin(), known.end(), item.key()) == known.end())
        refuse(where, "only known fields", "'" + item.key().substr(0, 80) + "'");
  }

  const Json& field(const Json& object, const char* field_name, Json::value_t type) const {
    return json_field(object, field_name, type, name_);
  }
  std::string text(const Json& object, const char* field_name) const {
    return json_string(object, field_name, name_);
  }
  bool flag(const Json& object, const char* field_name, bool absent) const {
    if (!object.contains(field_name)) return absent;
    return field(object, field_name, Json::value_t::boolean).get<bool>();
  }

 private:
  std::string name_;
};

}  // namespace octavo::tokenizer
