#include "train/batching/batch_note.h"

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "train/state/persist.h"

namespace octavo::train {
namespace {

fs::path note_of(const Run& run) {
  return checkpoint_folder(run.settings) / "out_of_memory.json";
}

constexpr JsonLimits kNoteLimits{.max_bytes = 4096, .max_depth = 2};

std::optional<Batches> read_note(const Run& run) {
  const fs::path path = note_of(run);
  if (!fs::exists(path)) return std::nullopt;
  if (run.settings.resume.empty() && run.world.rank_info().generation == 0) {
    log_info(str("removed ", path.string(), ": an earlier run's"));
    fs::remove(path);
    return std::nullopt;
  }
  const Json note = read_json(path, kNoteLimits);
  const std::string source = path.string();
  const Batches found{json_int(note, "batch_size", source),
                      json_int(note, "gradient_accumulation_steps", source)};
  if (json_int(note, "ranks", source) != run.world.size() || found.batch < 1 ||
      found.accumulation < 1) {
    log_warn(str(source, " was left by other ranks than these ", run.world.size(),
                 ", and is not followed"));
    return std::nullopt;
  }
  log_warn(str("rank ", json_int(note, "rank", source), " ran out of memory in step ",
               json_int(note, "step", source), " (", source, "): batch_size ", found.batch,
               ", gradient_accumulation_steps ", found.accumulation));
  return found;
}

}  // namespace

void write_batch_note(const Run& run, const Batches& next) {
  const fs::path path = note_of(run);
  fs::create_directories(path.parent_path());
  const Json note = {{"batch_size", next.batch},
                     {"gradient_accumulation_steps", next.accumulation},
                     {"ranks", run.world.size()},
                     {"rank", run.world.rank()},
                     {"step", run.progress.step + 1}};
  write_file_atomic(path, note.dump(2) + "\n");
  log_warn(str("out of memory in step ", run.progress.step + 1, " with batch_size ",
               run.settings.batch_size, ": a restart continues with ", next.batch, " (",
               path.string(), ")"));
}

std::optional<Batches> batch_note(Run& run) {
  std::string text;
  if (run.world.is_first())
    if (const auto found = read_note(run)) text = str(found->batch, " ", found->accumulation);
  text = run.world.from_first(text, "smaller passes");
  Batches agreed;
  std::istringstream in(text);
  if (!(in >> agreed.batch >> agreed.accumulation)) return std::nullopt;
  return agreed;
}

}  // namespace octavo::train
