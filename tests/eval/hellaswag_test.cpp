// Rows of HellaSwag, as its own file and as the hub has them.

#include "eval/hellaswag.h"

#include <gtest/gtest.h>

#include "expect_failure.h"
#include "scratch.h"

namespace octavo::eval {
namespace {

std::string row_with(const std::string& label) {
  return R"({"ind":24,"activity_label":"Roof shingle removal","ctx_a":"A man sits. [step] Now",)"
         R"("ctx_b":"HE starts","endings":["a","b [substeps] c","d","e"],"label":)" +
         label + "}";
}

TEST(HellaSwag, ALabelIsANumberOrText) {
  for (const char* label : {"3", "\"3\""}) {
    const HellaSwagPrompt prompt = hellaswag_prompt(row_with(label), "rows:1");
    EXPECT_EQ(prompt.label, 3) << label;
    EXPECT_EQ(prompt.context, "Roof shingle removal: A man sits. Now He starts");
    EXPECT_EQ(prompt.endings, (std::vector<std::string>{"a", "b c", "d", "e"}));
  }
  // The hub's test split has none: no row of it may count as label 0.
  for (const char* label : {"\"\"", "\"4\"", "\"a\"", "\"12\"", "\" 1\"", "-1", "4"})
    expect_failure(ExitCode::kDamaged, "a label of 0 to 3",
                   [&] { hellaswag_prompt(row_with(label), "rows:1"); });
}

TEST(HellaSwag, AFileIsCheckedByItsFirstRow) {
  const Scratch scratch;
  const auto check = [&](const std::string& name, const std::string& text) {
    write_file_atomic(scratch / name, text);
    check_hellaswag_file(scratch / name);
  };
  check("rows.jsonl", row_with("1") + "\n");
  check("no-newline.jsonl", row_with("1"));
  check("rows", row_with("1") + "\n" + row_with("2") + "\n");  // whatever it is called
  check("rows.json", "[" + row_with("1") + ",\n" + row_with("2") + "]");
  expect_failure(ExitCode::kDamaged, "other.jsonl:1",
                 [&] { check("other.jsonl", "{\"text\": \"x\"}\n"); });
  expect_failure(ExitCode::kDamaged, "wanted a file of rows", [&] { check("empty.jsonl", ""); });
  expect_failure(ExitCode::kDamaged, "wanted lines of at most",
                 [&] { check("long.jsonl", std::string(size_t{3} << 20, 'x')); });
  expect_failure(ExitCode::kDamaged, "none.parquet", [&] { check("none.parquet", "not Parquet"); });
}

}  // namespace
}  // namespace octavo::eval
