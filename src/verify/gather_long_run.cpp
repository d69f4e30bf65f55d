// What a config would do here: its data, its size, its disk, the runs before it.

#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <regex>

#include "base/checked.h"
#include "base/error.h"
#include "base/first_line.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/checkpoint.h"
#include "config/rules.h"
#include "config/yaml.h"
#include "fp8/execution.h"
#include "launch/scripts.h"
#include "model_config/presets.h"
#include "monitor/wandb_login.h"
#include "optim/schedule.h"
#include "tokenizer/tokenizer.h"
#include "train/dataset.h"
#include "train/model_factory.h"
#include "train/run.h"
#include "train/state/mixture_order.h"
#include "train/state/persist.h"
#include "verify/before_long_run.h"
#include "verify/gather.h"

namespace octavo::verify {
namespace {

constexpr size_t kMostRuns = 200, kMostRecordBytes = size_t{64} << 20;
constexpr double kUsableMemory = 0.9;  // of what a machine has left, for the rest of it

// Keys and tokens as their issuers write them. The lines, never the text.
std::vector<int> lines_with_secrets(const std::string& file) {
  static const std::regex kSecret(
      "hf_[A-Za-z0-9]{20,}|AKIA[A-Z0-9]{16}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|"
      "(api[_-]?key|token|secret|password)[\"']?\\s*[:=]\\s*[\"']?[A-Za-z0-9+/_-]{16,}|"
      "(^|[^0-9A-Za-z])[0-9a-f]{40}([^0-9A-Za-z]|$)",
      std::regex::icase);
  std::vector<int> found;
  if (file.empty()) return found;
  const auto lines = split(read_file(file, config::kMaxYamlBytes), '\n');
  for (size_t i = 0; i < lines.size(); ++i)
    if (lines[i].size() < 4096 && std::regex_search(lines[i], kSecret))
      found.push_back(static_cast<int>(i) + 1);
  return found;
}

// Of data that is not prepared yet; 0 when its tokenizer cannot be read.
int64_t tokenizer_size(const config::Settings& resolved) try {
  return tokenizer::load_tokenizer(resolved.tokenizer)->vocab_size();
} catch (const std::exception&) {
  return 0;
}

// The tokenizer that the data has; why not, when that is on the hub and not here. What is known
// without it is looked at all the same.
std::string settle_tokenizer_here(config::Settings& resolved) {
  try {
    train::settle_tokenizer(resolved);
    return "";
  } catch (const std::exception& error) {
    const std::string problem = first_line(error.what());
    if (!problem.starts_with("[hub]")) throw;  // about the data
    // No data can have been prepared with it: not with bytes, which "" would mean.
    if (resolved.tokenizer.empty()) resolved.tokenizer = resolved.model_name;
    return problem;
  }
}

// What the sources of a mixture give in so many samples.
using SourcesAfter = std::function<std::vector<monitor::SourceUse>(uint64_t samples)>;

SourcesAfter sources_after(const std::shared_ptr<data::TokenData>& tokens,
                           const std::shared_ptr<const data::Mixture>& mixture, int64_t length) {
  return [tokens, mixture, length](uint64_t samples) {
    data::Position last;
    last.samples = mixture->end() > 0 ? std::min(samples, mixture->end()) : samples;
    last.mixture = mixture;
    return train::source_uses(*tokens->mixed(), last, length);
  };
}

RunData long_run_data(config::Settings resolved, bool may_download, int64_t ranks,
                      SourcesAfter& after) {
  RunData data;
  if (resolved.dataset.empty()) return data;
  std::vector<train::DataPosition> places;
  try {
    if (resolved.tokenizer.empty()) {  // whether there is data at all comes first
      config::Settings any = resolved;
      any.tokenizer = "bytes";
      train::data_positions(any);
    }
    data.tokenizer_problem = settle_tokenizer_here(resolved);
    places = train::data_positions(resolved);
  } catch (const std::exception& error) {
    data.problem = first_line(error.what());
    // The path is no file, and the hub was not asked.
    const bool on_hub = may_download && data.problem.starts_with("[hub]");
    data.state = on_hub ? RunData::State::kOnHub : RunData::State::kMissing;
    return data;
  }
  std::vector<fs::path> folders;
  for (const train::DataPosition& place : places) {
    folders.push_back(place.folder);
    data.place += (data.place.empty() ? "" : ", ") + place.folder.string();
  }
  data.state = RunData::State::kNotPrepared;
  if (!std::ranges::all_of(places, &train::DataPosition::is_prepared)) {
    data.vocab = tokenizer_size(resolved);
    return data;
  }
  try {
    const train::DataSet set = train::open_prepared(resolved, folders);
    data.tokens = set.train->tokens();
    data.vocab = set.train->vocab_size();
    data.fingerprint = set.train->fingerprint();
    data.samples = data::sample_count(*set.train, resolved.max_seq_length);
    if (const data::MixedTokens* mixed = set.train->mixed(); mixed != nullptr) {
      const auto mixture = train::new_mixture(resolved, static_cast<int>(ranks), *mixed);
      data.mixture_samples = mixture->end();
      after = sources_after(set.train, mixture, resolved.max_seq_length);
    }
    if (set.val != nullptr) {
      data.val_tokens = set.val->tokens();
      data.val_samples = data::sample_count(*set.val, resolved.max_seq_length);
    }
    data.state = RunData::State::kPrepared;
  } catch (const std::exception& error) {
    data.state = RunData::State::kDamaged;
    data.problem = first_line(error.what());
  }
  return data;
}

void count_steps(LongRun& run) {
  const config::Settings& s = run.settings;
  run.batch = s.auto_batch_size      ? s.max_batch_size
              : s.max_batch_size > 0 ? std::min(s.batch_size, s.max_batch_size)
                                     : s.batch_size;
  run.step_samples = s.target_effective_batch_size > 0
                         ? s.target_effective_batch_size
                         : run.batch * s.gradient_accumulation_steps * run.ranks;
  run.steps = s.max_steps;
  if (run.steps == 0 && run.step_samples > 0) {
    const int64_t asked =
        run.data.mixture_samples > 0
            ? static_cast<int64_t>(run.data.mixture_samples)
            : static_cast<int64_t>(run.data.samples) * std::max<int64_t>(1, s.num_epochs);
    // The last step may be a short one, the first may not.
    if (asked >= run.step_samples) run.steps = ceil_div(asked, run.step_samples);
  }
  run.warmup_steps = s.warmup_steps >= 0 ? s.warmup_steps : optim::automatic_warmup(run.steps);
}

void forecast_long_run(LongRun& run, const Facts& facts, bool gpu_named) {
  config::Settings s = run.settings;
  const bool gpu_here = !facts.gpus.gpus.empty() && s.device != config::DeviceChoice::kCpu;
  run.on_gpu = gpu_here || gpu_named;
  const plan::Gpu* gpu = gpu_named ? &plan::wanted_gpu(s.gpu) : plan::find_gpu(s.gpu);
  if (gpu_here && !gpu_named) gpu = plan::gpu_of_device(facts.gpus.gpus.front().name);
  if (run.on_gpu && gpu == nullptr)
    run.forecast_problem = str("octavo plan does not know this machine's ",
                               facts.gpus.gpus.front().name, "; name one with --gpu");
  if (gpu != nullptr && !gpu_named) s.gpu = std::string(gpu->name);  // it may name a file
  s.device = run.on_gpu ? config::DeviceChoice::kCuda : config::DeviceChoice::kCpu;
  s.num_gpus = run.ranks;
  s.offline = true;
  if (s.vocab_size == 0) s.vocab_size = run.data.vocab;
  s.batch_size = std::max<int64_t>(run.batch, 1);
  if (run.step_samples > 0)
    s.gradient_accumulation_steps =
        std::max<int64_t>(1, run.step_samples / (s.batch_size * run.ranks));
  try {
    run.forecast = plan::forecast(s);
  } catch (const std::exception& error) {
    run.forecast_problem = first_line(error.what());
    return;
  }
  run.device = run.on_gpu ? std::string(run.forecast->gpu->title) : "this machine's CPU";
  run.memory_limit = run.on_gpu ? run.forecast->memory_limit
                                : kUsableMemory * static_cast<double>(facts.host.memory_available);
  if (run.on_gpu && gpu == nullptr) run.forecast.reset();
  if (!run.forecast) return;
  if (!run.forecast->shape.refusal.empty())
    run.contradictions.push_back("train cannot run the model: " + run.forecast->shape.refusal);
  share_in_fp8(run);
  const double trained =
      static_cast<double>(s.lora_rank > 0 ? plan::lora_parameters(run.forecast->shape, s.lora_rank,
                                                                  run.forecast->lora_targets)
                                          : plan::parameters(run.forecast->shape));
  run.checkpoint_bytes =
      trained * (plan::bytes_of(s.master_dtype) + 2 * plan::bytes_of(s.moment_dtype));
}

// The losses of a run's metrics.jsonl, of which a very long one is read in part.
void count_earlier_losses(const fs::path& file, EarlierRun& run) {
  std::ifstream in(file);
  run.finite = in.good();
  size_t bytes = 0;
  for (std::string line; std::getline(in, line);) {
    if ((bytes += line.size() + 1) > kMostRecordBytes) {
      run.cut = true;
      return;
    }
    const Json record = Json::parse(line, nullptr, false);
    if (!record.is_object() || !record.contains("train/loss")) continue;
    const Json& loss = record["train/loss"];
    run.finite = run.finite && loss.is_number() && std::isfinite(loss.get<double>());
    ++run.steps;
  }
}

void look_at_earlier_runs(LongRun& long_run) {
  const config::Settings& s = long_run.settings;
  std::error_code error;
  std::vector<fs::path> folders;
  for (fs::directory_iterator it(s.runs_dir, error), end; !error && it != end; it.increment(error))
    if (fs::exists(it->path() / "config.yaml", error)) folders.push_back(it->path());
  std::ranges::sort(folders);
  if (folders.size() > kMostRuns) {
    long_run.unread_runs = static_cast<int64_t>(folders.size() - kMostRuns);
    folders.erase(folders.begin(), folders.end() - static_cast<std::ptrdiff_t>(kMostRuns));
  }
  for (const fs::path& folder : folders) try {
      const std::string text = read_file(folder / "config.yaml", config::kMaxYamlBytes);
      const config::Settings other = config::parse_text(text, folder.string()).settings;
      EarlierRun run{.name = folder.filename().string(),
                     .same_model = other.model_name == s.model_name && other.n_layer == s.n_layer &&
                                   other.n_embd == s.n_embd,
                     .same_data = other.dataset == s.dataset,
                     .in_fp8 = fp8::wants_fp8(other)};
      count_earlier_losses(folder / "metrics.jsonl", run);
      long_run.earlier.push_back(std::move(run));
    } catch (const std::exception&) {
      ++long_run.unread_runs;  // not a run of this version: it proves nothing
    }
}

// The flags of the command line that train reads too, to be typed again.
std::string flags_for_train(const config::Parsed& parsed) {
  std::string text;
  for (const auto& [name, origin] : parsed.origins) {
    const config::Key& key = *config::find_key(name);
    if (origin.kind != config::Origin::Kind::kFlag || !(key.readers & config::reader::kTrain))
      continue;
    text += str(" --", name, " ", launch::shell_quoted(join(key.load(parsed.settings), ",")));
  }
  return text;
}

}  // namespace

LongRun gather_long_run(const config::Parsed& parsed, const Facts& facts) {
  LongRun run;
  run.settings = parsed.settings;
  config::Settings& s = run.settings;
  run.config_file = parsed.config_file;
  run.flags = flags_for_train(parsed);
  run.wants_fp8 = fp8::wants_fp8(s);
  const bool many_here = s.device != config::DeviceChoice::kCpu && !facts.gpus.gpus.empty();
  run.ranks = parsed.given("num_gpus") ? s.num_gpus
              : many_here              ? static_cast<int64_t>(facts.gpus.gpus.size())
                                       : 1;
  s.num_gpus = 1;  // train counts its own
  run.contradictions = config::contradictions(s, config::reader::kTrain);
  run.contradictions.insert(run.contradictions.end(), parsed.conflicts.begin(),
                            parsed.conflicts.end());
  run.secret_lines = lines_with_secrets(parsed.config_file);

  const char* offline = getenv("HF_HUB_OFFLINE");
  run.may_download = !s.offline && (offline == nullptr || std::string_view(offline) != "1");
  config::Settings resolved = s;
  resolved.offline = true;  // looking must not begin a download of gigabytes
  try {
    resolved = train::with_resolved_names(resolved);
  } catch (const std::exception& error) {
    run.model_problem = first_line(error.what());
  }
  run.starts_from_weights =
      s.init_from != "random" && (!s.init_from.empty() || !model_config::is_built_in(s.model_name));
  SourcesAfter sources;
  run.data = long_run_data(resolved, run.may_download, run.ranks, sources);
  count_steps(run);
  if (sources && run.steps > 0 && run.step_samples > 0)
    run.sources = sources(static_cast<uint64_t>(run.steps * run.step_samples));
  forecast_long_run(run, facts, parsed.given("gpu"));

  run.checkpoint_folder =
      s.run_name.empty() ? fs::path(train::checkpoint_dir(s)) : train::checkpoint_folder(s);
  run.disk_free = static_cast<double>(facts.disk.free_bytes);
  run.disk_rate = facts.disk.write_rate;
  run.disk_problem = facts.disk.problem;
  std::error_code error;
  if (!s.run_name.empty() && fs::is_directory(run.checkpoint_folder, error))
    run.checkpoints_there =
        static_cast<int64_t>(checkpoint::step_paths(run.checkpoint_folder).size());
  run.run_folder_there = !s.run_name.empty() && fs::exists(train::run_folder(s) / "metrics.jsonl");
  look_at_earlier_runs(run);
  run.has_wandb_key =
      monitor::wandb_mode() == monitor::WandbMode::kOnline && !monitor::wandb_key_place().empty();
  run.in_slurm = getenv("SLURM_JOB_ID") != nullptr;
  return run;
}

}  // namespace octavo::verify
