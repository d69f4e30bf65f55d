#include "train/batching/batch_note.h"

#include "base/error.h"
#include "base/json.h"
#include "base/log.h"
#include "train/state/run_folders.h"

namespace octavo::train {
namespace {

fs::path note_of(const config::Settings& settings) {
  return checkpoint_folder(settings) / "out_of_memory.json";
}

constexpr JsonLimits kNoteLimits{.max_bytes = 4096, .max_depth = 2};

std::optional<Batches> read_note(const config::Settings& settings, const dist::World& world) {
  const fs::path path = note_of(settings);
  if (!fs::exists(path)) return std::nullopt;
  if (settings.resume.empty() && world.rank_info().generation == 0) {
    log_info(str("removed ", path.string(), ": an earlier run's"));
    fs::remove(path);
    return std::nullopt;
  }
  const Json note = read_json(path, kNoteLimits);
  const std::string source = path.string();
  const Batches found{json_int(note, "batch_size", source),
                      json_int(note, "gradient_accumulation_steps", source)};
  if (json_int(note, "ranks", source) != world.size() || found.batch < 1 ||
      found.accumulation < 1) {
    log_warn(
        str(source, " was left by other ranks than these ", world.size(), ", and is not followed"));
    return std::nullopt;
  }
  if (note.value("asked", Json()) != asked_batches(settings)) {
    log_warn(str(source, " was left by a run of other batches than are asked for now (",
                 asked_batches(settings), "), and is not followed"));
    return std::nullopt;
  }
  log_warn(str("rank ", json_int(note, "rank", source), " ran out of memory in step ",
               json_int(note, "step", source), " (", source, "): batch_size ", found.batch,
               ", gradient_accumulation_steps ", found.accumulation));
  return found;
}

}  // namespace

// Without those that are found: config.yaml of the run has them as they were found.
std::string asked_batches(const config::Settings& s) {
  std::string text = str("max_batch_size ", s.max_batch_size);
  if (!s.auto_batch_size) text += str(", batch_size ", s.batch_size);
  if (s.target_effective_batch_size > 0)
    return text + str(", target_effective_batch_size ", s.target_effective_batch_size);
  return text + str(", gradient_accumulation_steps ", s.gradient_accumulation_steps);
}

void write_batch_note(const config::Settings& settings, const dist::World& world, int64_t step,
                      const Batches& next, const std::string& asked) {
  const fs::path path = note_of(settings);
  fs::create_directories(path.parent_path());
  const Json note = {{"batch_size", next.batch}, {"gradient_accumulation_steps", next.accumulation},
                     {"asked", asked},           {"ranks", world.size()},
                     {"rank", world.rank()},     {"step", step}};
  write_file_atomic(path, note.dump(2) + "\n");
  log_warn(str("out of memory in step ", step, " with batch_size ", settings.batch_size,
               ": a restart continues with ", next.batch, " (", path.string(), ")"));
}

std::optional<Batches> batch_note(const config::Settings& settings, dist::World& world) {
  std::string text;
  if (world.is_first())
    if (const auto found = read_note(settings, world))
      text = str(found->batch, " ", found->accumulation);
  text = world.from_first(text, "smaller passes");
  Batches agreed;
  std::istringstream in(text);
  if (!(in >> agreed.batch >> agreed.accumulation)) return std::nullopt;
  return agreed;
}

}  // namespace octavo::train
