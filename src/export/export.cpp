#include "export/export.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <cmath>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "export/chat.h"
#include "export/convert.h"
#include "export/fixed_text.h"
#include "export/source.h"
#include "train/device.h"
#include "train/lora_run.h"
#include "train/model_factory.h"
#include "train/state/base_model.h"

namespace octavo::exporter {
namespace {

using config::ExportFormat;

// A folder that is deleted unless it was given its name.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const fs::path& output) {
    const fs::path target = fs::absolute(output).lexically_normal();
    final_ = target.has_filename() ? target : target.parent_path();
    if (fs::exists(final_) && !(fs::is_directory(final_) && fs::is_empty(final_)))
      fail(ExitCode::kUsage, "train", "output ", output.string(),
           " exists and is not an empty folder; name another, or delete it");
    fs::create_directories(final_.parent_path());
    path_ =
        final_.parent_path() / octavo::str(".tmp-", final_.filename().string(), "-", ::getpid());
    fs::remove_all(path_);
    fs::create_directory(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const fs::path& path() const { return path_; }
  void give_name() {
    fsync_path(path_);
    fs::rename(path_, final_);
    fsync_path(final_.parent_path());
    path_.clear();
  }

 private:
  fs::path final_, path_;
};

void check_format(const ExportSource& source, ExportFormat format) {
  if (format == ExportFormat::kBf16 || format == ExportFormat::kPeft) return;
  if (source.config.at("model_type") == "gpt2")
    fail(ExitCode::kUsage, "train", "export_format ", name_of(format),
         ": GPT-2's files keep matrices as [in, out] (Conv1D), for which the FP8 formats have no "
         "layout; export it as bf16");
}

Json quantization_config(ExportFormat format) {
  if (format == ExportFormat::kFp8Block)
    return {{"quant_method", "fp8"},
            {"fmt", "e4m3"},
            {"activation_scheme", "dynamic"},
            {"weight_block_size", {kExportSide, kExportSide}},
            {"modules_to_not_convert", {"lm_head"}}};
  const auto side = [](const char* strategy, bool dynamic) {
    return Json{{"num_bits", 8},
                {"type", "float"},
                {"strategy", strategy},
                {"symmetric", true},
                {"dynamic", dynamic}};
  };
  return {{"quant_method", "compressed-tensors"},
          {"format", "float-quantized"},
          {"quantization_status", "compressed"},
          {"global_compression_ratio", nullptr},
          {"kv_cache_scheme", nullptr},
          {"ignore", {"lm_head"}},
          {"config_groups",
           {{"group_0",
             {{"targets", {"Linear"}},
              {"weights", side("channel", false)},
              {"input_activations", side("token", true)},
              {"output_activations", nullptr}}}}}};
}

// Null when there is none. One that is not the checkpoint's any more is not handed on.
std::unique_ptr<tokenizer::Tokenizer> take_tokenizer(ExportSource& source) {
  try {
    auto found = tokenizer::load_tokenizer(source.tokenizer);
    const std::string& wanted = source.loaded.tokenizer_fingerprint;
    if (wanted.empty() || wanted == found->fingerprint()) return found;
    log_warn(octavo::str("export: '", source.tokenizer,
                         "' is another tokenizer now than the checkpoint was trained with; its "
                         "files are not put into the export"));
    source.files.clear();
  } catch (const Error& error) {
    log_warn(octavo::str("export: no tokenizer (", error.what(), ")"));
  }
  return nullptr;
}

void check_space(const fs::path& folder, uint64_t bytes) {
  const uint64_t free = fs::space(folder).available;
  if (free < bytes)
    fail(ExitCode::kEnvironment, "train", "the export needs ",
         format_bytes(static_cast<double>(bytes)), ", ", folder.parent_path().string(), " has ",
         format_bytes(static_cast<double>(free)), " free; make room or name another output");
}

void write_weights(const ExportSource& source, ExportFormat format, const fs::path& folder,
                   uint64_t max_shard_bytes) {
  ExportConverter converter(source, format);
  const uint64_t total = checkpoint::data_bytes(converter.outlines());
  check_space(folder, total);
  std::map<std::string, uint64_t> size_of;
  for (const auto& [name, tensor] : converter.outlines()) size_of[name] = tensor.nbytes();
  octavo::Progress progress("export", static_cast<double>(total) / 1e6, "MB");
  uint64_t done = 0;
  checkpoint::write_hf_weights(
      folder, converter.outlines(),
      [&](const std::string& name) {
        at::Tensor made = converter.produce(name);
        done += size_of.at(name);
        progress.set(static_cast<double>(done) / 1e6);
        return made;
      },
      max_shard_bytes);
  progress.finish();
}

void write_model_folder(const ExportSource& source, const tokenizer::Tokenizer* tokenizer,
                        ExportFormat format, const fs::path& folder, uint64_t max_shard_bytes) {
  Json config = source.config;
  config["dtype"] = config["torch_dtype"] = "bfloat16";  // the new name and the old
  add_token_ids(source, tokenizer, config);
  if (format != ExportFormat::kBf16) config["quantization_config"] = quantization_config(format);
  write_file_atomic(folder / "config.json", config.dump(2) + "\n");
  write_weights(source, format, folder, max_shard_bytes);
}

// The checkpoint's adapters, whose names and places the model knows.
void write_adapters(const config::Settings& settings, const ExportSource& source,
                    const fs::path& folder) {
  const auto found = checkpoint::load_resolved(train::checkpoint_dir(settings), settings.checkpoint,
                                               settings.run_name);
  const auto lora =
      train::attach_lora(*source.loaded.engine, *source.loaded.model, found.state, source.name);
  const train::BaseModel base = train::stored_base(found.state, source.name);
  train::write_peft(*lora, *source.loaded.model, base_for_peft(base, source.name), folder,
                    base.revision);
}

// Before anything large is read.
void require_adapters(const config::Settings& settings) {
  if (train::is_peft_folder(settings.checkpoint))
    fail(ExitCode::kUsage, "train", "export_format peft: ", settings.checkpoint,
         " is a PEFT folder already");
  const auto found = checkpoint::load_resolved(train::checkpoint_dir(settings), settings.checkpoint,
                                               settings.run_name);
  if (!train::is_lora(found.state))
    fail(ExitCode::kUsage, "train", "export_format peft: wanted a checkpoint of adapters, found ",
         found.path.string(), " with a whole model; export it as bf16");
  base_for_peft(train::stored_base(found.state, found.path.string()), found.path.string());
}

// Adapters as anybody reads them: the model that they name, and they merged into it.
double loss_of_adapters(config::Settings settings, const fs::path& folder, const FixedText& text) {
  settings.checkpoint = folder.string();
  const train::Loaded loaded = train::load_model(settings);
  return text_loss(*loaded.engine, *loaded.model, text);
}

// Reads the folder as anybody would and computes the text's loss with it.
double loss_of_folder(const fs::path& folder, const engine::Target& target, const FixedText& text) {
  const engine::Engine engine(target);
  const fs::path config = folder / "config.json";
  const auto model =
      train::make_model(read_json(config), config.string(), engine, {.trainable = false});
  train::load_weights(*model, folder);
  return text_loss(engine, *model, text);
}

void compare_losses(const FixedText& text, ExportReport& report) {
  report.text = octavo::str(text.ids.size() - 1, " tokens of ", text.what);
  report.difference = std::fabs(report.export_loss - report.source_loss) / report.source_loss;
  if (!(report.difference <= report.bound))  // NaN too
    fail(ExitCode::kGuard, "train", "the export was read back and is not the model: ", report.text,
         " have a loss of ", report.source_loss, " with the source and of ", report.export_loss,
         " with the export, apart by more than ", 100 * report.bound,
         " %; nothing was kept. Are the source's weights good?");
}

}  // namespace

double loss_bound(ExportFormat format) {
  return format == ExportFormat::kBf16 || format == ExportFormat::kPeft ? 0.005 : 0.05;
}

ExportReport export_model(const config::Settings& settings, uint64_t max_shard_bytes) {
  const at::NoGradGuard no_grad;
  if (settings.output.empty())
    fail(ExitCode::kUsage, "train", "wanted --output FOLDER for the export, found none");
  TemporaryFolder folder(settings.output);
  const ExportFormat format = settings.export_format;
  const bool adapters_alone = format == ExportFormat::kPeft;
  if (adapters_alone) require_adapters(settings);
  ExportReport report{.bound = loss_bound(format)};
  FixedText text;
  const engine::Target target = train::cpu_target_of(settings);
  {
    ExportSource source = open_export_source(settings);
    check_format(source, format);
    const auto tokenizer = take_tokenizer(source);
    text = fixed_text(*source.loaded.model, tokenizer.get());
    report.source_loss = text_loss(*source.loaded.engine, *source.loaded.model, text);
    write_companions(source, tokenizer.get(), folder.path(), report);
    if (adapters_alone)
      write_adapters(settings, source, folder.path());
    else
      write_model_folder(source, tokenizer.get(), format, folder.path(), max_shard_bytes);
  }  // the source's memory is free now
  report.export_loss = adapters_alone ? loss_of_adapters(settings, folder.path(), text)
                                      : loss_of_folder(folder.path(), target, text);
  compare_losses(text, report);
  for (const auto& entry : fs::directory_iterator(folder.path())) {
    ++report.files;
    report.bytes += entry.file_size();
  }
  folder.give_name();
  return report;
}

}  // namespace octavo::exporter
