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

void add_row(chart::StackedBars& panel, const std::string& name, const std::string& end,
             const std::vector<Part>& parts) {
  panel.parts.clear();
  chart::StackedBars::Row row{name, end, {}};
  for (const Part& part : parts) {
    panel.parts.emplace_back(part.name);
    row.values.push_back(part.value);
  }
  panel.rows.push_back(row);
}

}  // namespace

std::string picture_of(const Forecast& f) {
  chart::StackedPicture picture;
  picture.title = str(f.shape.name, " on ", f.gpus, " x ", f.gpu->title);
  chart::StackedBars memory, time;
  memory.heading = str("memory of one GPU (", one_digit(f.memory_limit / 1e9), " GB to use)");
  add_row(memory, "BF16", one_digit(f.bf16_memory.total / 1e9) + " GB", parts_of(f.bf16_memory));
  add_row(memory, "FP8", one_digit(f.fp8_memory.total / 1e9) + " GB", parts_of(f.fp8_memory));
  time.heading = "time of one step";
  for (const RecipeForecast& r : f.recipes) {
    if (!r.refusal.empty()) continue;
    char gain[32];
    std::snprintf(gain, sizeof gain, " ms, %.2fx", r.gain);
    add_row(time, std::string(name_of(r.recipe)), one_digit(1e3 * r.time.total) + gain,
            parts_of(r.time));
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
