#include "verify/report.h"

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace octavo::verify {
namespace {

constexpr size_t kLineWidth = 110;
constexpr std::string_view kFakePrefix = "fake CUDA device | ";

// As wide as the widest, so that the names line up.
std::string_view mark_of(Status status) {
  constexpr std::string_view kMarks[] = {"ok         ", "note       ", "WARN       ", "FAIL       ",
                                         "not checked"};
  return kMarks[static_cast<size_t>(status)];
}

// `text` in lines of at most `width` bytes, cut at spaces.
std::vector<std::string> wrapped(const std::string& text, size_t width) {
  std::vector<std::string> lines(1);
  for (const std::string& word : split(text, ' ')) {
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width)
      lines.emplace_back();
    lines.back() += (lines.back().empty() ? "" : " ") + word;
  }
  return lines;
}

std::string text_of(const Finding& f, size_t id_width, std::string_view prefix) {
  std::string found = f.found;
  const bool is_bad = f.status == Status::kWarn || f.status == Status::kFail;
  if (is_bad && !f.wanted.empty()) found = str("wanted ", f.wanted, "; found ", f.found);
  std::vector<std::string> lines =
      wrapped(found, kLineWidth > id_width + 40 ? kLineWidth - id_width - 15 : 60);
  if (!f.fix.empty() && f.status != Status::kOk)
    for (const std::string& line :
         wrapped("fix: " + f.fix, kLineWidth > id_width + 40 ? kLineWidth - id_width - 15 : 60))
      lines.push_back(line);
  if (f.status != Status::kOk)  // in one line each, so that they can be copied
    for (const std::string& command : f.commands) lines.push_back("run: " + command);
  std::string id = f.id;
  id.resize(std::max(id_width, id.size()), ' ');
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i)
    out += i == 0 ? str(prefix, "  ", mark_of(f.status), " ", id, "  ", lines[i], "\n")
                  : str(prefix, std::string(16 + id_width, ' '), lines[i], "\n");
  return out;
}

}  // namespace

std::string section_text(Section section, const std::vector<Finding>& findings, bool fake_device,
                         bool verbose) {
  const std::string_view prefix = fake_device ? kFakePrefix : "";
  const bool all = verbose || section >= Section::kRunSettings;
  std::vector<const Finding*> shown;
  size_t id_width = 0, folded = 0;
  for (const Finding& f : findings) {
    if (f.section != section) continue;
    if (!all && f.status == Status::kOk) {
      ++folded;
      continue;
    }
    shown.push_back(&f);
    id_width = std::max(id_width, f.id.size());
  }
  if (shown.empty() && folded == 0) return "";
  std::string out = str(prefix, name_of(section), folded > 0 ? str(": ", folded, " ok") : "", "\n");
  for (const Finding* f : shown) out += text_of(*f, std::min<size_t>(id_width, 40), prefix);
  return out;
}

std::string summary_line(const std::vector<Finding>& findings, bool fake_device, bool verbose) {
  const Count c = count(findings);
  return str(fake_device ? kFakePrefix : "", "verify: ", c.fail == 0 ? "nothing failed" : "FAILED",
             " | ", c.ok, " ok, ", c.note, " notes, ", c.warn, " warnings, ", c.fail, " failures, ",
             c.not_checked, " not checked", verbose ? "" : "; every line: --verbose", "\n");
}

Json to_json(const std::vector<Finding>& findings, bool fake_device) {
  Json rows = Json::array();
  for (const Finding& f : findings)
    rows.push_back({{"section", name_of(f.section)},
                    {"id", f.id},
                    {"status", name_of(f.status)},
                    {"wanted", f.wanted},
                    {"found", f.found},
                    {"fix", f.fix},
                    {"commands", f.commands},
                    {"absent_device", fake_device}});
  const Count c = count(findings);
  return {{"findings", rows},
          {"summary",
           {{"ok", c.ok},
            {"note", c.note},
            {"warn", c.warn},
            {"fail", c.fail},
            {"not_checked", c.not_checked}}},
          {"absent_device", fake_device},
          {"exit_code", exit_code(findings)}};
}

int exit_code(const std::vector<Finding>& findings) {
  return static_cast<int>(count(findings).fail == 0 ? ExitCode::kOk : ExitCode::kEnvironment);
}

}  // namespace octavo::verify
