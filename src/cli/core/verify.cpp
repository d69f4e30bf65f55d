#include "verify/verify.h"

#include <cstdio>

#include "base/file.h"
#include "cli/core/core_verbs.h"
#include "config/parse.h"
#include "verify/report.h"

namespace octavo::cli {

int verify(CoreArgs args) {
  const config::Parsed parsed = config::parse(args, config::kVerifyArguments);
  const config::Settings& s = parsed.settings;
  const verify::Report report = verify::run(parsed, [&](const std::string& text) {
    if (s.json) return;  // standard output is for the JSON
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
  });
  // A value from the environment may be in any encoding.
  const std::string json = verify::to_json(report.findings, report.fake_device)
                               .dump(2, ' ', false, Json::error_handler_t::replace) +
                           "\n";
  if (!s.output.empty()) write_file_atomic(s.output, json);
  if (s.json)
    std::fputs(json.c_str(), stdout);
  else
    std::fputs(verify::summary_line(report.findings, report.fake_device, s.verbose).c_str(),
               stdout);
  return verify::exit_code(report.findings);
}

}  // namespace octavo::cli
