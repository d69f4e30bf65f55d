#include "bench/bench.h"

#include <cstdio>

#include "base/file.h"
#include "base/json.h"
#include "bench/report.h"
#include "cli/core/core_verbs.h"
#include "config/parse.h"

namespace octavo::cli {

int bench(CoreArgs args) {
  const config::Settings settings = config::parse(args, config::kBenchArguments).settings;
  const bench::Bench found = bench::run_bench(settings);
  Json out = bench::json_of(found);
  std::string written = "as a page with pictures: add --output bench.html";
  if (const fs::path page = settings.output; !page.empty()) {
    const auto beside = [&](const char* ending) {
      return page.parent_path() / (page.stem().string() + ending);
    };
    write_file_atomic(page, bench::page_of(found));
    write_file_atomic(beside("-products.svg"), bench::gemms_picture(found));
    write_file_atomic(beside("-tokens.svg"), bench::tokens_picture(found));
    out["page"] = page.string();
    written = "page: " + page.string() + " (pictures: " + beside("-products.svg").string() + ", " +
              beside("-tokens.svg").string() + ")";
  }
  if (settings.json)
    std::printf("%s\n", out.dump(2).c_str());
  else
    std::printf("%s%s\n", bench::text_of(found).c_str(), written.c_str());
  return 0;
}

}  // namespace octavo::cli
