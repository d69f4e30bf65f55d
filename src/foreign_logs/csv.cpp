// Tables: W&B's exports ("Step","RUN - train/loss","RUN - train/loss__MIN",…), Lightning's
// metrics.csv and scripts' own.

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/lines.h"
#include "base/printable.h"
#include "base/text.h"
#include "foreign_logs/readers.h"
#include "foreign_logs/scan.h"

namespace octavo::foreign_logs {
namespace {

constexpr size_t kLongestCsvLine = size_t{4} << 20, kMostColumns = 20'000;
constexpr std::string_view kBetween = " - ";  // W&B's, of run and metric

// Cells of a line; "" inside of quotes is one quote.
std::vector<std::string> cells_of(std::string_view line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (size_t at = 0; at < line.size() && cells.size() <= kMostColumns; ++at) {
    const char c = line[at];
    if (c == '"' && quoted && at + 1 < line.size() && line[at + 1] == '"')
      cells.back() += line[at++];
    else if (c == '"')
      quoted = !quoted;
    else if (c == ',' && !quoted)
      cells.emplace_back();
    else if (c != '\r' || at + 1 < line.size())
      cells.back() += c;
  }
  return cells;
}

struct Column {
  std::string run, name;  // "" where the column is of no run
  bool used = true;
};

Column column_of(const std::string& title) {
  const size_t at = title.rfind(kBetween);
  if (at == title.npos) return {"", title};
  Column column{title.substr(0, at), title.substr(at + kBetween.size())};
  // The least and most of the values that W&B drew as one point.
  column.used = !column.name.ends_with("__MIN") && !column.name.ends_with("__MAX");
  return column;
}

std::vector<Column> columns_of(std::string_view line, const std::string& run,
                               const std::string& file, const Metrics& metrics) {
  std::vector<Column> columns;
  std::set<std::string> runs;
  for (const std::string& title : cells_of(line)) {
    columns.push_back(column_of(std::string(trim(title))));
    if (columns.back().used && metrics.is_loss(columns.back().name))
      runs.insert(columns.back().run);
  }
  if (columns.size() > kMostColumns)
    fail(ExitCode::kUsage, "foreign_logs", file, ": wanted at most ", kMostColumns,
         " columns, found more");
  runs.erase("");
  if (!run.empty() && !runs.contains(run))
    fail(ExitCode::kUsage, "foreign_logs", file, ": wanted the run '", printable(run),
         "' with a loss, found ", runs.empty() ? "none" : printable(*runs.begin()),
         "; see its first line");
  if (run.empty() && runs.size() > 1)
    fail(ExitCode::kUsage, "foreign_logs", file, ": wanted one run, found the losses of ",
         runs.size(), ": name it behind the file: ", file, "#", printable(*runs.begin()));
  const std::string chosen = run.empty() && !runs.empty() ? *runs.begin() : run;
  for (Column& column : columns) column.used &= column.run.empty() || column.run == chosen;
  return columns;
}

}  // namespace

bool is_csv(std::string_view first_line) {
  if (first_line.find(',') == first_line.npos || first_line.starts_with('{')) return false;
  const std::vector<std::string> titles = cells_of(first_line.substr(0, kLongestCsvLine));
  return std::ranges::any_of(titles, [](const std::string& title) {
    const std::string name = column_of(std::string(trim(title))).name;
    return std::ranges::find(step_names(), name) != step_names().end();
  });
}

void read_csv(const fs::path& path, const std::string& run, Metrics& metrics) {
  std::vector<Column> columns;
  Rows rows(metrics);
  metrics.count_bad_line(for_each_line(path, kLongestCsvLine, [&](std::string_view line) {
    if (columns.empty()) {
      columns = columns_of(line, run, path.filename().string(), metrics);
      return;
    }
    const std::vector<std::string> cells = cells_of(line);
    if (cells.size() > columns.size()) return metrics.count_bad_line();
    std::vector<Field> row;
    for (size_t i = 0; i < cells.size(); ++i)
      if (columns[i].used)
        if (const std::optional<double> number = whole_number_text(cells[i]))
          row.push_back({columns[i].name, *number});
    rows.take(row);
  }));
}

}  // namespace octavo::foreign_logs
