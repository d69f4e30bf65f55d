// octavo data prepare|inspect

#include <iomanip>
#include <iostream>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "base/signals.h"
#include "base/text.h"
#include "cli/verbs.h"
#include "config/mixture_keys.h"
#include "config/names.h"
#include "data/default_tokenizer.h"
#include "data/prepare.h"
#include "hub/hub.h"

namespace octavo::cli {

int data_prepare(const Verb& verb, Args args) {
  install_stop_handlers();
  const GivenFlags given = take_own_flags(verb.own.flags, args);
  const config::Parsed parsed = config::parse(given.other_args, verb.arguments);
  config::Settings settings = parsed.settings;
  if (!parsed.positionals.empty() && parsed.given("dataset"))
    fail(ExitCode::kUsage, "cli", "data prepare: wanted the input once, found files and dataset (",
         parsed.origin_of("dataset").text(), "); give one of them");
  if (!parsed.positionals.empty()) settings.dataset = parsed.positionals;
  if (config::is_mixture(settings))
    fail(ExitCode::kUsage, "cli", "data prepare: wanted one data set, found a mixture of ",
         settings.dataset.size(), " (", parsed.origin_of("dataset").text(),
         "); train prepares its sources by itself, or prepare each one: octavo data prepare ",
         settings.dataset.empty() ? "FILES" : settings.dataset.front(), " --output FOLDER");
  if (settings.dataset.empty())
    fail(ExitCode::kUsage, "cli",
         "data prepare: wanted files or folders of text or rows (JSONL, JSON), found none; name "
         "them, or a data set that octavo names lists");
  if (settings.output.empty())
    fail(ExitCode::kUsage, "cli",
         "data prepare: wanted --output FOLDER, found none; name a folder for the shards");

  for (const std::string& note : parsed.notes) log_info(note);
  for (const std::string& note : config::resolve_datasets(settings, parsed.given("dataset_config"),
                                                          parsed.given("split_name")))
    log_info(note);
  settings.tokenizer = hub::resolve_tokenizer(settings.tokenizer, settings);
  data::PrepareOptions options = data::prepare_options(settings, settings.dataset);
  if (settings.tokenizer.empty() && parsed.given("model_name"))
    options.tokenizer = data::default_tokenizer(settings);
  else if (settings.tokenizer.empty())
    log_info("tokenizer: bytes, since none is named; --tokenizer PATH names one");
  options.output = settings.output;
  options.shared = given.has("shared");
  options.deduplicate = given.has("deduplicate");
  options.extend = given.has("extend");
  options.val_fraction_given = parsed.given("val_fraction");
  const data::PrepareResult result = data::prepare(options);

  std::cout << settings.output << ": " << result.train_tokens << " training and "
            << result.val_tokens << " validation tokens (" << options.tokenizer << ") of "
            << counted(result.documents, "document")
            << (options.deduplicate
                    ? str(" (", counted(result.duplicates, "duplicate"), " left out)")
                    : "")
            << ", " << format_bytes(static_cast<double>(result.bytes)) << ", in "
            << counted(static_cast<uint64_t>(result.shards), "shard") << " ("
            << result.shards_reused << " kept from before), " << format_duration(result.seconds)
            << "\n";
  if (result.sample_length > 0) {
    const double tokens = static_cast<double>(result.train_tokens + result.val_tokens) / 100;
    std::cout << "packed into samples of " << result.sample_length << ": " << std::fixed
              << std::setprecision(1) << static_cast<double>(result.loss_tokens) / tokens
              << "% of the tokens are loss tokens, "
              << static_cast<double>(result.padding_tokens) / tokens << "% are padding\n";
  }
  return 0;
}

int data_inspect(const Verb& verb, Args args) {
  const config::Parsed parsed = config::parse(args, verb.arguments);
  if (parsed.positionals.empty())
    fail(ExitCode::kUsage, "cli", "data inspect: wanted a prepared folder, found none; name it");
  std::cout << data::inspect(parsed.positionals.front(), parsed.settings.verify_hashes);
  return 0;
}

}  // namespace octavo::cli
