#pragma once
// Numbers and text on their way into the page.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"

namespace octavo::run_report {

// Six significant digits; null when not finite.
Json short_number(double value);

std::string base64(std::span<const uint8_t> bytes);
std::string base64_of_hex(std::string_view hex);  // the bytes that hexadecimal digits name

// For <script type="application/json">: nothing in it can end the element or begin a comment.
std::string json_for_script(const Json& json);

}  // namespace octavo::run_report
