#pragma once
// HellaSwag: four endings for a text, one of them real. Prompts and scores as lm-eval's task has
// them: the label, ": ", ctx_a, " " and ctx_b capitalised, cleaned of WikiHow's marks; an ending's
// score is the log likelihood of " " + ending (acc), also divided by its characters (acc_norm).

#include <functional>
#include <string>
#include <vector>

#include "base/file.h"
#include "engine/engine.h"
#include "models/model.h"
#include "tokenizer/tokenizer.h"

namespace octavo::eval {

struct HellaSwagRow {
  int64_t row = 0, label = 0, pred = 0, pred_norm = 0;
};

struct HellaSwagResult {
  int64_t rows = 0, right = 0, right_norm = 0;
  double acc() const { return static_cast<double>(right) / static_cast<double>(rows); }
  double acc_norm() const { return static_cast<double>(right_norm) / static_cast<double>(rows); }
};

// The first `limit` rows (0: all) of a file (data::benchmark_file): JSON lines, or Parquet as on
// the hub; `on_row` sees each.
HellaSwagResult hellaswag(const engine::Engine& engine, const models::Model& model,
                          const tokenizer::Tokenizer& tokenizer, const fs::path& file,
                          int64_t limit, const std::function<void(const HellaSwagRow&)>& on_row,
                          bool shows_progress = true);

// Fails unless the file's first row is one of HellaSwag: before a run begins.
void check_hellaswag_file(const fs::path& file);

// Of one row, for tests: the context and the four endings, cleaned.
struct HellaSwagPrompt {
  std::string context;
  std::vector<std::string> endings;
  int64_t label = 0;
};
HellaSwagPrompt hellaswag_prompt(const std::string& line, const std::string& source);

}  // namespace octavo::eval
