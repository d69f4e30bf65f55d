#include "config/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <sstream>

#include "base/error.h"

namespace octavo::config {
namespace {

// Takes the parser's events one by one: no tree is built, so nothing can grow beyond the file.
class FlatReader : public YAML::EventHandler {
 public:
  explicit FlatReader(const std::string& source) : source_(source) {}
  std::vector<YamlEntry> entries;

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) refuse(mark, "a second document; keep one");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    if (depth_ == 0) return;  // an empty file
    refuse(mark, have_key_ ? "no value; write '' for empty text or leave the key out"
                           : "an empty name or list item");
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    refuse(mark, "an alias (*); write the value out");
  }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (depth_ == 0) refuse(mark, "text where 'key: value' lines belong");
    if (!have_key_) return begin_entry(mark, value);
    entries.back().values.push_back(value);
    if (depth_ == 1) have_key_ = false;
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (depth_ != 1 || !have_key_) refuse(mark, "a list that is not the value of a key");
    ++depth_;
    entries.back().is_list = true;
  }
  void OnSequenceEnd() override {
    --depth_;
    have_key_ = false;
  }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (depth_ != 0) refuse(mark, "a nested mapping; keys are flat, without sections");
    ++depth_;
  }
  void OnMapEnd() override { --depth_; }

 private:
  [[noreturn]] void refuse(const YAML::Mark& mark, const std::string& found) const {
    const std::string key = have_key_ ? entries.back().name + ": " : "";
    const int line = have_key_ && depth_ == 1 ? entries.back().line : mark.line + 1;
    fail(ExitCode::kUsage, "config", source_, ":", line, ": ", key,
         "wanted flat 'key: value' lines, found ", found);
  }
  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != 0) refuse(mark, "an anchor (&); remove it");
  }
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!") refuse(mark, "the tag " + tag + "; remove it");
  }
  void begin_entry(const YAML::Mark& mark, const std::string& name) {
    for (const YamlEntry& entry : entries)
      if (entry.name == name)
        refuse(mark, name + " again (first in line " + std::to_string(entry.line) + ")");
    if (entries.size() == kMaxEntries)
      refuse(mark, "more than " + std::to_string(kMaxEntries) + " keys");
    entries.push_back({.name = name, .values = {}, .line = mark.line + 1});
    have_key_ = true;
  }

  static constexpr size_t kMaxEntries = 1000;
  std::string source_;
  int depth_ = 0, documents_ = 0;
  bool have_key_ = false;  // the next event is the value of the newest entry
};

}  // namespace

std::vector<YamlEntry> parse_yaml(std::string_view text, const std::string& source) {
  if (text.size() > kMaxYamlBytes)
    fail(ExitCode::kUsage, "config", source, ": wanted at most ", kMaxYamlBytes, " bytes, found ",
         text.size());
  if (text.find('\0') != text.npos)
    fail(ExitCode::kUsage, "config", source,
         ": wanted text, found a NUL byte; is this a YAML file?");
  // yaml-cpp takes a quote that is still open at a final newline as closed; not so before a
  // comment.
  std::istringstream stream{std::string(text) + (text.ends_with('\n') ? "#" : "\n#")};
  FlatReader reader(source);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(reader)) {
    }
  } catch (const YAML::Exception& error) {
    fail(ExitCode::kUsage, "config", source, ":", error.mark.line + 1,
         ": wanted YAML, found an error: ", error.msg);
  }
  return std::move(reader.entries);
}

}  // namespace octavo::config
