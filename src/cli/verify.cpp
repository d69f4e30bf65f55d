// octavo verify --for te|torchao|megatron [--python PATH]: a Python environment, judged from files
// and without libtorch. Without --for it is this program's own machine, by the core.

#include "verify/judge_python.h"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "cli/verbs.h"
#include "verify/report.h"

namespace octavo::cli {
namespace {

// What --for reads of verify's keys; the others are about a run of octavo's.
void refuse_other_keys(const config::Parsed& parsed) {
  constexpr std::string_view kRead[] = {"json", "output", "verbose", "require_gpu"};
  for (const auto& [name, origin] : parsed.origins)
    if (std::ranges::find(kRead, name) == std::end(kRead))
      fail(ExitCode::kUsage, "cli", "verify --for does not read ", name,
           ", which is about octavo's own runs; it reads --python, --require_gpu, --verbose, "
           "--json and --output");
}

int verify_python(const std::string& trainer, const std::string& python,
                  const std::vector<std::string>& rest) {
  const config::Parsed parsed = config::parse(rest, config::kVerifyArguments);
  refuse_other_keys(parsed);
  const config::Settings& s = parsed.settings;
  verify::PythonFacts facts = verify::gather_python(verify::trainer_named(trainer), python);
  facts.require_gpu = s.require_gpu;
  const std::vector<verify::Finding> findings = verify::judge_python(facts);
  // Names of files and values of variables may be in any encoding.
  const std::string json =
      verify::to_json(findings, false).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  if (!s.output.empty()) write_file_atomic(s.output, json);
  std::string text;
  for (const verify::Section section :
       {verify::Section::kGpu, verify::Section::kPython, verify::Section::kFit,
        verify::Section::kKnownBad, verify::Section::kEnvironment})
    text += verify::section_text(section, findings, false, s.verbose);
  text += verify::summary_line(findings, false, s.verbose);
  std::fputs(s.json ? json.c_str() : text.c_str(), stdout);
  return verify::exit_code(findings);
}

}  // namespace

int verify(const Verb& verb, Args args) {
  const GivenFlags given = take_own_flags(verb.own.flags, args);
  const auto trainer = given.value("for"), python = given.value("python");
  if (trainer) return verify_python(*trainer, python.value_or(""), given.other_args);
  if (python)
    fail(ExitCode::kUsage, "cli",
         "wanted --for te, torchao or megatron beside --python, found it "
         "alone; say what trains in that environment");
  return core(verb, args);
}

}  // namespace octavo::cli
