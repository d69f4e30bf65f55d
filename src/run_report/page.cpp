#include "run_report/page.h"

#include "base/error.h"
#include "chart/escape.h"
#include "run_report/assets.h"
#include "run_report/encode.h"

namespace octavo::run_report {

std::string page_of(const RunContents& run) {
  return str(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n"
      // Whatever text a run has, a browser loads nothing and runs no script but the page's own.
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; script-src 'sha256-",
      base64_of_hex(kScriptSha256), "'; base-uri 'none'; form-action 'none'\">\n<title>",
      chart::escaped(run.name()), " · octavo run</title>\n<style>\n", kStyle,
      "</style>\n</head>\n<body>\n<main id=\"page\"><noscript>This page draws its charts with a "
      "script of its own; allow scripts for it.</noscript></main>\n"
      "<div id=\"tip\" role=\"status\" hidden></div>\n"
      "<script type=\"application/json\" id=\"run-data\">",
      json_for_script(page_data(run)), "</script>\n<script>", kScript,
      "</script>\n</body>\n</html>\n");
}

fs::path write_page(const fs::path& folder, const fs::path& output) {
  const fs::path page = output.empty() ? folder / "run.html" : output;
  write_file_atomic(page, page_of(read_contents(folder)));
  return page;
}

}  // namespace octavo::run_report
