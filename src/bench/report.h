#pragma once
// A bench as text, as JSON, as pictures and as a page.

#include <string>

#include "base/json.h"
#include "bench/bench.h"

namespace octavo::bench {

std::string text_of(const Bench& bench);
Json json_of(const Bench& bench);
std::string gemms_picture(const Bench& bench);   // SVG: BF16 over FP8, GEMM by GEMM
std::string tokens_picture(const Bench& bench);  // SVG: the same against tokens
std::string page_of(const Bench& bench);         // HTML, with both

// The lines that all of them share.
std::string about_line(const Bench& bench);
std::string rehearsal_line();
std::string pays_line(const Bench& bench);
std::string steps_line(const Bench& bench);

}  // namespace octavo::bench
