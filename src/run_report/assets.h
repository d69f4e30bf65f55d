#pragma once
// page.css and the scripts beside it, put into the program by CMake.

#include <string_view>

namespace octavo::run_report {

extern const std::string_view kStyle, kScript;
extern const std::string_view kScriptSha256;  // hexadecimal; what the page's policy lets run

}  // namespace octavo::run_report
