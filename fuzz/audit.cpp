// Traces of profilers: Chrome's JSON, plain and gzipped, and Nsight's SQLite. Behind a # the name
// of a kernel alone, which mutates faster.
#include "audit/audit.h"

#include <nlohmann/json.hpp>

#include "fuzz/harness.h"

namespace {

void check_sums(const octavo::audit::Audit& audit) {
  using namespace octavo;
  int64_t calls = 0;
  for (const audit::Time& time : audit.kinds) calls += time.calls;
  fuzz::check(calls == audit.total.work.calls, "classes that do not add up to the work");
  fuzz::check(audit.total.busy_ns <= audit.total.span_ns, "busier than time went by");
  fuzz::check(audit.total.hidden_ns <= audit.total.collective_ns, "more hidden than there was");
  fuzz::check(!audit.headline.empty(), "no verdict");
}

}  // namespace

OCTAVO_FUZZ_TARGET(input) {
  using namespace octavo;
  if (input.starts_with('#')) {
    const audit::KernelClass found = audit::classify_kernel(input.substr(1));
    fuzz::check(!audit::name_of(found.kind).empty(), "a kind without a name");
    return;
  }
  static fuzz::ScratchFolder folder;  // SQLite takes no file of memory
  const fs::path path = folder.write("trace", input);
  fuzz::refusal_of([&] {
    const audit::Audit audit = audit::audit_traces({path});
    check_sums(audit);
    if (input.size() % 16 != 0) return;  // the reports are long: for some of the inputs
    audit::text_of(audit);
    audit::json_of(audit).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  });
}
