// octavo report: the page of a run.

#include <cstdio>

#include "base/error.h"
#include "base/progress.h"
#include "cli/run_folder.h"
#include "cli/verbs.h"
#include "run_report/page.h"

namespace octavo::cli {

int report(const Verb& verb, Args args) {
  const config::Parsed parsed = config::parse(args, verb.arguments);
  if (parsed.positionals.size() != 1)
    fail(ExitCode::kUsage, "cli", "report: wanted one run, found ",
         parsed.positionals.empty() ? "none" : str(parsed.positionals.size()),
         "; name its folder: ", runs_here());
  const fs::path page =
      run_report::write_page(run_folder(parsed.positionals[0]), parsed.settings.output);
  std::error_code error;
  std::printf("page: %s, %s\n", page.c_str(),
              format_bytes(static_cast<double>(fs::file_size(page, error))).c_str());
  return 0;
}

}  // namespace octavo::cli
