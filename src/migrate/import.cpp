#include "migrate/import.h"

#include "base/error.h"
#include "base/file.h"
#include "migrate/import_builder.h"

namespace octavo::migrate {
namespace {

// The JSON that a YAML names, as LLaMA-Factory would find it, or beside the YAML when the name is
// of another machine; "" when there is none. It is only read, as JSON, for the one who reads the
// YAML.
std::string named_json(const ForeignFile& yaml) {
  for (const ForeignEntry& entry : yaml.entries) {
    if (entry.path != "deepspeed" || entry.is_null || entry.values.size() != 1) continue;
    const fs::path name(entry.values.front());
    if (name.extension() != ".json") return "";
    const fs::path folder = fs::path(yaml.path).parent_path();
    for (const fs::path& place : {name, folder / name, folder / name.filename()}) {
      std::error_code error;
      if (fs::is_regular_file(place, error)) return place.string();
    }
  }
  return "";
}

}  // namespace

Import import_files(std::span<const std::string> paths) {
  Importer importer;
  std::vector<std::string> named;
  int counts[kForeignForms] = {};
  for (const std::string& path : paths) {
    ForeignFile file = read_foreign(path);
    if (++counts[static_cast<int>(file.form)] > 1)
      fail(ExitCode::kUsage, "config", file.shown,
           ": wanted one file of each kind, found a second ", name_of(file.form),
           " one; import them one by one");
    if (file.form == ForeignForm::kLlamaFactory || file.form == ForeignForm::kTrl)
      if (std::string json = named_json(file); !json.empty()) named.push_back(std::move(json));
    importer.add(std::move(file));
  }
  if (counts[static_cast<int>(ForeignForm::kDeepSpeed)] == 0)
    for (const std::string& path : named) {
      ForeignFile file = read_foreign(path);
      if (file.form != ForeignForm::kDeepSpeed)
        fail(ExitCode::kUsage, "config", file.shown,
             ": wanted DeepSpeed's JSON, because the YAML names it as deepspeed, found keys of ",
             name_of(file.form));
      importer.add(std::move(file));
    }
  importer.run();
  return std::move(importer.result);
}

}  // namespace octavo::migrate
