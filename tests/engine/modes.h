#pragma once
// What the harness's program does beside testing.

#include <string>

namespace octavo::engine {

// --speed: every implementation on the shapes of GPT-2 124M with 4 x 256 tokens, on stdout.
void print_speed();

// --support-table: which implementation serves which dtype and device, as Markdown.
std::string support_table();
// `document` with the part between the two marks replaced by the table of this build.
std::string with_support_table(const std::string& document);

}  // namespace octavo::engine
