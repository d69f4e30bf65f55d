#include "base/error.h"
#include "model_config/config_file.h"

namespace octavo::model_config {

ModelConfig read(const Json& object, const std::string& source, std::optional<Error>* refusal) {
  const std::string type = json_string(object, "model_type", source);
  if (const Family* family = find_family(type)) return family->read({object, source, refusal});
  std::string known;
  for (const Family* family : families())
    known += (known.empty() ? "" : ", ") + std::string(family->model_type);
  fail(ExitCode::kUsage, "model_config", source, ": model_type '", type,
       "' is not implemented; there are ", known);
}

Json to_json(const ModelConfig& config) {
  Json json = config.family->write(config);
  json["model_type"] = config.family->model_type;
  json["architectures"] = {config.family->architecture};
  return json;
}

}  // namespace octavo::model_config
