#include "migrate/import.h"

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "migrate/import_builder.h"
#include "model_config/config_file.h"

namespace octavo::migrate {
namespace {

// The JSON that a file names, as its program would find it, or beside the file when the name is of
// another machine; "" when there is none. It is only read, as JSON, for the one who reads the file.
std::string named_json(const ForeignFile& file, std::string_view key) {
  for (const ForeignEntry& entry : file.entries) {
    if (entry.path != key || entry.is_null || entry.values.size() != 1) continue;
    const fs::path name(entry.values.front());
    if (name.extension() != ".json") return "";
    const fs::path folder = fs::path(file.path).parent_path();
    for (const fs::path& place : {name, folder / name, folder / name.filename()}) {
      std::error_code error;
      if (fs::is_regular_file(place, error)) return place.string();
    }
  }
  return "";
}

// Keys of Hugging Face's programs that name a file.
constexpr std::pair<std::string_view, ForeignForm> kNamedFiles[] = {
    {"deepspeed", ForeignForm::kDeepSpeed}, {"fsdp_config", ForeignForm::kFsdp}};

}  // namespace

Import import_files(std::span<const std::string> paths, int64_t gpus) {
  Importer importer;
  importer.known_gpus = gpus;
  std::vector<std::pair<std::string, ForeignForm>> named;
  int counts[kForeignForms] = {};
  for (const std::string& path : paths) {
    ForeignFile file = read_foreign(path);
    if (++counts[static_cast<int>(file.form)] > 1)
      fail(ExitCode::kUsage, "config", file.shown,
           ": wanted one file of each kind, found a second ", name_of(file.form),
           " one; import them one by one");
    if (file.form == ForeignForm::kLlamaFactory || file.form == ForeignForm::kTrl ||
        file.form == ForeignForm::kTrainer)
      for (const auto& [key, form] : kNamedFiles)
        if (std::string json = named_json(file, key); !json.empty())
          named.emplace_back(std::move(json), form);
    importer.add(std::move(file));
  }
  for (const auto& [path, form] : named) {
    if (counts[static_cast<int>(form)] > 0) continue;
    ForeignFile file = read_foreign(path);
    if (file.form != form)
      fail(ExitCode::kUsage, "config", file.shown, ": wanted the JSON of ", name_of(form),
           ", because the other file names it so, found keys of ", name_of(file.form));
    importer.add(std::move(file));
  }
  importer.run();
  return std::move(importer.result);
}

bool is_foreign(const std::string& path) {
  for (const char* ending : {".toml", ".json", ".sh", ".bash", ".sbatch", ".slurm", ".args", ".py"})
    if (path.ends_with(ending)) return true;
  if (path.find(".py:") != path.npos) return true;
  if (!path.ends_with(".yaml") && !path.ends_with(".yml")) return false;
  try {
    return read_foreign(path).form != ForeignForm::kGuide;
  } catch (const Error&) {
    return false;  // whoever reads it as octavo's says what is wrong
  }
}

std::string model_folder(const Import& import) {
  return import.model && import.settings.model_name.ends_with(kModelFolder)
             ? import.settings.model_name
             : "";
}

void place_model(Import& import, const std::string& folder) {
  if (model_folder(import).empty()) return;
  import.settings.model_name = folder;
  const config::Key* key = config::find_key("model_name");
  for (MappedKey& item : import.mapped)
    if (item.ours == "model_name") item.words = {folder}, item.to = key->text(import.settings);
}

std::string model_json(const Import& import) {
  return model_config::to_json(import.model->config).dump(2) + "\n";
}

}  // namespace octavo::migrate
