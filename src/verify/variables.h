#pragma once
// The environment variables that people set for FP8 training, and what each really does.

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "verify/facts.h"
#include "verify/finding.h"

namespace octavo::verify {

// What a value of a variable means here.
struct Verdict {
  Status status = Status::kNote;
  std::string remark;  // "" when `does` says it all
  std::string fix;
};

struct Variable {
  std::string_view name;
  std::string_view does;    // what it really does
  std::string_view wanted;  // what it should be
  // nullptr: a set variable is worth a note.
  Verdict (*judge)(const std::string& value, const Facts& facts) = nullptr;
  bool in_guides = false;  // of the guides' lists: reported even when it is not set
  bool secret = false;     // the value is never kept nor shown
};

std::span<const Variable> variables();
const Variable* find_variable(std::string_view name);

// Variables whose names a library reads all by one prefix: a name that is neither in the table nor
// here is a mistake.
struct Family {
  std::string_view prefix, library;
  std::span<const std::string_view> names;  // beside those of the table
  std::string_view do_what;                 // what those are
};
std::span<const Family> families();

// Whether a variable is gathered at all.
bool is_of_interest(std::string_view name);
// Whether its value must not be kept: tokens, keys, passwords.
bool is_secret(std::string_view name);

}  // namespace octavo::verify
