#include "config/yaml.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <map>
#include <sstream>

#include "base/error.h"

namespace octavo::config {
namespace {

// Takes the parser's events one by one: no tree is built, so nothing can grow beyond the file.
class FlatReader : public YAML::EventHandler {
 public:
  FlatReader(const std::string& source, const YamlShape& shape) : source_(source), shape_(shape) {}
  std::vector<YamlEntry> entries;

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ > 1) refuse(mark, "a second document; keep one");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    if (depth_ == 0) return;  // an empty file
    if (in_item_) refuse(mark, "a field without a value; write one or leave it out");
    if (shape_.nulls && have_key_ && !in_list_) {
      entries.back().is_null = true;
      have_key_ = false;
      return;
    }
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
    if (in_item_) return add_to_item(mark, value);
    if (!have_key_) return begin_entry(mark, value);
    entries.back().values.push_back(value);
    if (!in_list_) have_key_ = false;
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (in_item_) refuse(mark, "a list inside an item of a list");
    if (depth_ == 0 || !have_key_ || in_list_)
      refuse(mark, "a list that is not the value of a key");
    in_list_ = true;
    entries.back().is_list = true;
  }
  void OnSequenceEnd() override {
    YamlEntry& list = entries.back();
    if (!list.fields.empty()) list.fields.resize(list.values.size());
    in_list_ = false;
    have_key_ = false;
  }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (in_list_ && shape_.item_fields) return begin_item(mark);
    if (depth_ != 0) begin_section(mark);
    ++depth_;
  }
  void OnMapEnd() override {
    if (in_item_) {
      in_item_ = false;
      return;
    }
    --depth_;
    have_key_ = false;
    if (depth_ == 0) return;
    const Section& section = sections_.back();
    if (entries.size() == section.first) {  // an empty one is still said
      entries.push_back(section.key);
      entries.back().is_null = true;
    }
    sections_.pop_back();
  }

 private:
  [[noreturn]] void refuse(const YAML::Mark& mark, const std::string& found) const {
    const std::string key = have_key_ ? entries.back().name + ": " : "";
    const int line = have_key_ && !in_list_ ? entries.back().line : mark.line + 1;
    fail(ExitCode::kUsage, "config", source_, ":", line, ": ", key,
         "wanted flat 'key: value' lines, found ", found);
  }
  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != 0) refuse(mark, "an anchor (&); remove it");
  }
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!") refuse(mark, "the tag " + tag + "; remove it");
  }
  void begin_item(const YAML::Mark& mark) {
    if (in_item_) refuse(mark, "a mapping inside an item of a list");
    YamlEntry& list = entries.back();
    list.values.emplace_back();
    list.fields.resize(list.values.size());
    in_item_ = true;
    have_field_ = false;
  }
  void add_to_item(const YAML::Mark& mark, const std::string& text) {
    auto& fields = entries.back().fields.back();
    if (have_field_) {
      fields.back().second = text;
    } else {
      for (const auto& field : fields)
        if (field.first == text) refuse(mark, "the field " + text + " twice");
      if (fields.size() == kMaxFields)
        refuse(mark, "more than " + std::to_string(kMaxFields) + " fields in an item");
      fields.emplace_back(text, "");
    }
    have_field_ = !have_field_;
  }
  // The newest entry turns out to be a section's name.
  void begin_section(const YAML::Mark& mark) {
    if (!shape_.sections || in_list_ || !have_key_)
      refuse(mark, "a nested mapping; keys are flat, without sections");
    if (sections_.size() == kMaxSections)
      refuse(mark, "sections nested deeper than " + std::to_string(kMaxSections));
    YamlEntry key = std::move(entries.back());
    entries.pop_back();
    sections_.push_back({std::move(key), entries.size()});
    have_key_ = false;
  }
  void begin_entry(const YAML::Mark& mark, const std::string& last_part) {
    const std::string name =
        sections_.empty() ? last_part : sections_.back().key.name + "." + last_part;
    const auto [first, is_new] = lines_.emplace(name, mark.line + 1);
    if (!is_new)
      refuse(mark, name + " again (first in line " + std::to_string(first->second) + ")");
    if (entries.size() == kMaxEntries)
      refuse(mark, "more than " + std::to_string(kMaxEntries) + " keys");
    entries.push_back({.name = name, .values = {}, .line = mark.line + 1});
    have_key_ = true;
  }

  struct Section {
    YamlEntry key;
    size_t first;  // its entries begin here
  };
  static constexpr size_t kMaxEntries = 1000, kMaxSections = 16, kMaxFields = 16;
  std::string source_;
  YamlShape shape_;
  std::map<std::string, int> lines_;  // of every name so far, sections too
  std::vector<Section> sections_;     // those that are open
  int depth_ = 0, documents_ = 0;     // of mappings
  bool in_list_ = false;
  bool in_item_ = false, have_field_ = false;  // in a mapping of the list; its value comes next
  bool have_key_ = false;                      // the next event is the value of the newest entry
};

}  // namespace

std::vector<YamlEntry> parse_yaml(std::string_view text, const std::string& source,
                                  const YamlShape& shape) {
  if (text.size() > kMaxYamlBytes)
    fail(ExitCode::kUsage, "config", source, ": wanted at most ", kMaxYamlBytes, " bytes, found ",
         text.size());
  if (text.find('\0') != text.npos)
    fail(ExitCode::kUsage, "config", source,
         ": wanted text, found a NUL byte; is this a YAML file?");
  // yaml-cpp takes a quote that is still open at a final newline as closed; not so before a
  // comment.
  std::istringstream stream{std::string(text) + (text.ends_with('\n') ? "#" : "\n#")};
  FlatReader reader(source, shape);
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
