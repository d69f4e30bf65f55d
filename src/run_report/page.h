#pragma once
// The page of a run: one HTML file that asks nothing of a network.

#include <string>

#include "base/json.h"
#include "run_report/run_contents.h"

namespace octavo::run_report {

// Everything that the page's script draws from.
Json page_data(const RunContents& run);

std::string page_of(const RunContents& run);

// Reads the folder and writes its page to `output`, or to run.html in the folder. Returns where.
fs::path write_page(const fs::path& folder, const fs::path& output = {});

}  // namespace octavo::run_report
