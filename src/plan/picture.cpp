// Two stacked bars for each precision: the memory of a GPU and the time of a step, by part.

#include <cstdio>

#include "base/error.h"
#include "chart/stacked_bars.h"
#include "plan/accuracy.h"
#include "plan/report.h"

namespace octavo::plan {
namespace {

std::string one_digit(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

chart::StackedBars::Row& add_row(chart::StackedBars& panel, const std::string& name,
                                 const std::string& end, const std::vector<Part>& parts) {
  panel.parts.clear();
  chart::StackedBars::Row row{name, end, {}};
  for (const Part& part : parts) {
    panel.parts.emplace_back(part.name);
    row.values.push_back(part.value);
  }
  panel.rows.push_back(row);
  return panel.rows.back();
}

void add_memory(chart::StackedBars& panel, const Forecast& f, const std::string& name,
                const Memory& memory, bool chosen) {
  const bool over = !f.cpu && memory.total > f.memory_limit;
  chart::StackedBars::Row& row =
      add_row(panel, name, one_digit(memory.total / 1e9) + (over ? " GB: does not fit" : " GB"),
              parts_of(memory));
  row.chosen = chosen;
  row.bad = over;
}

}  // namespace

std::string picture_of(const Forecast& f) {
  chart::StackedPicture picture;
  picture.title = str(f.shape.name, " on ", f.gpus, " x ", f.gpu->title);
  chart::StackedBars memory, time;
  memory.heading = "memory of one GPU";
  memory.unit = "GB";
  memory.per_unit = 1e9;
  if (!f.cpu) {
    memory.limit = f.memory_limit;
    memory.limit_name =
        str(one_digit(f.memory_limit / 1e9), " GB: what a run can use of ", f.gpu->title);
  }
  add_memory(memory, f, "BF16", f.bf16_memory, !f.wants_fp8);
  add_memory(memory, f, "FP8", f.fp8_memory, f.wants_fp8);
  time.heading = "time of one step";
  time.unit = "ms";
  time.per_unit = 1e-3;
  for (const RecipeForecast& r : f.recipes) {
    if (!r.refusal.empty()) continue;
    char gain[32];
    std::snprintf(gain, sizeof gain, " ms, %.2fx", r.gain);
    add_row(time, std::string(name_of(r.recipe)), one_digit(1e3 * r.time.total) + gain,
            parts_of(r.time))
        .chosen = r.recipe == f.wanted;
  }
  char note[160];
  std::snprintf(note, sizeof note,
                "A forecast: time within %.0f%% for half and %.0f%% for nine tenths of held-out "
                "measurements, memory within %.0f%%.",
                100 * kMedianError, 100 * kNinetyError, 100 * kMemoryError);
  picture.panels = {memory, time};
  picture.note = note;
  return chart::svg(picture);
}

}  // namespace octavo::plan
