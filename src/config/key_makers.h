#pragma once
// Small makers that tie a member of Settings to its name, range and help.

#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "config/key.h"

namespace octavo::config {

// The whole text as a number, or nothing; independent of the locale.
template <typename T>
std::optional<T> parse_number(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// The shortest text that reads back as the same number.
template <typename T>
std::string print_number(T value) {
  char buffer[32];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, result.ptr};
}

std::optional<bool> parse_bool(std::string_view text);
// Settings are printed as YAML and JSON: UTF-8 without NUL.
bool is_text(std::string_view text);

template <typename T>
Key number_key(std::string name, T Settings::*member, T least, T most, std::string help) {
  Key key{.name = std::move(name), .help = std::move(help)};
  key.type = std::is_integral_v<T> ? Type::kInt : Type::kReal;
  key.minimum = print_number(least);
  key.maximum = print_number(most);
  key.wanted = (std::is_integral_v<T> ? "an integer from " : "a number from ") + key.minimum +
               " to " + key.maximum;
  key.store = [=](Settings& settings, std::span<const std::string> values) {
    const std::optional<T> value = parse_number<T>(values.front());
    if (!value || !(*value >= least && *value <= most)) return false;  // NaN is not in any range
    settings.*member = *value;
    return true;
  };
  key.load = [=](const Settings& settings) { return std::vector{print_number(settings.*member)}; };
  return key;
}

inline Key int_key(std::string name, int64_t Settings::*member, int64_t least, int64_t most,
                   std::string help) {
  return number_key(std::move(name), member, least, most, std::move(help));
}

inline Key real_key(std::string name, double Settings::*member, double least, double most,
                    std::string help) {
  return number_key(std::move(name), member, least, most, std::move(help));
}

inline Key bool_key(std::string name, bool Settings::*member, std::string help) {
  Key key{.name = std::move(name),
          .type = Type::kBool,
          .help = std::move(help),
          .wanted = "true or false"};
  key.store = [=](Settings& settings, std::span<const std::string> values) {
    const std::optional<bool> value = parse_bool(values.front());
    if (value) settings.*member = *value;
    return value.has_value();
  };
  key.load = [=](const Settings& settings) {
    return std::vector<std::string>{settings.*member ? "true" : "false"};
  };
  return key;
}

inline Key text_key(std::string name, std::string Settings::*member, std::string help) {
  Key key{.name = std::move(name),
          .type = Type::kText,
          .help = std::move(help),
          .wanted = "UTF-8 text"};
  key.store = [=](Settings& settings, std::span<const std::string> values) {
    if (!is_text(values.front())) return false;
    settings.*member = values.front();
    return true;
  };
  key.load = [=](const Settings& settings) { return std::vector{settings.*member}; };
  return key;
}

inline Key list_key(std::string name, std::vector<std::string> Settings::*member,
                    std::string help) {
  Key key{.name = std::move(name), .type = Type::kList, .help = std::move(help)};
  key.wanted = "a list of non-empty UTF-8 texts";
  key.store = [=](Settings& settings, std::span<const std::string> values) {
    for (const std::string& value : values)
      if (value.empty() || !is_text(value)) return false;
    (settings.*member).assign(values.begin(), values.end());
    return true;
  };
  key.load = [=](const Settings& settings) { return settings.*member; };
  return key;
}

// A list of texts that are checked together; an empty text is an empty list.
template <typename IsGood>
Key schedule_key(std::string name, std::vector<std::string> Settings::*member, std::string wanted,
                 std::string help, IsGood is_good) {
  Key key = list_key(std::move(name), member, std::move(help));
  key.wanted = std::move(wanted);
  key.store = [=, store_list = key.store](Settings& settings, std::span<const std::string> values) {
    if (values.size() == 1 && values.front().empty()) return (settings.*member).clear(), true;
    return is_good({values.begin(), values.end()}) && store_list(settings, values);
  };
  return key;
}

template <typename E>
Key enum_key(std::string name, E Settings::*member, std::vector<E> values, std::string help) {
  Key key{
      .name = std::move(name), .type = Type::kEnum, .help = std::move(help), .wanted = "one of"};
  for (E value : values) {
    key.wanted += (key.choices.empty() ? " " : ", ") + std::string(name_of(value));
    key.choices.emplace_back(name_of(value));
  }
  key.store = [=](Settings& settings, std::span<const std::string> texts) {
    for (E value : values)
      if (texts.front() == name_of(value)) return settings.*member = value, true;
    return false;
  };
  key.load = [=](const Settings& settings) {
    return std::vector{std::string(name_of(settings.*member))};
  };
  return key;
}

}  // namespace octavo::config
