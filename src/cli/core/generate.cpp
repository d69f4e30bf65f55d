#include "eval/generate.h"

#include <cstdio>
#include <iostream>

#include "base/error.h"
#include "base/log.h"
#include "base/progress.h"
#include "cli/core/core_verbs.h"
#include "config/parse.h"
#include "data/chat_template.h"
#include "data/own_template.h"
#include "hub/hub.h"
#include "tokenizer/special_tokens.h"
#include "train/device.h"
#include "train/state/model_tokenizer.h"
#include "train/state/persist.h"
#include "train/state/switched_precision.h"

namespace octavo::cli {
namespace {

using tokenizer::TokenId;
using tokenizer::Tokenizer;

eval::GenerateOptions options_of(const config::Settings& s, const Tokenizer& tokenizer) {
  eval::GenerateOptions options{.max_new_tokens = s.max_new_tokens,
                                .temperature = s.temperature,
                                .top_k = s.top_k,
                                .top_p = s.top_p,
                                .seed = static_cast<uint64_t>(s.seed),
                                .stop = {}};
  if (const fs::path folder = tokenizer::folder_of(tokenizer.name()); !folder.empty())
    options.stop = tokenizer::read_special_tokens(folder, tokenizer).stop;
  return options;
}

// Token by token, as they come: a letter of several tokens is whole after its last.
auto print_with(const Tokenizer& tokenizer) {
  return [&tokenizer](TokenId id) {
    std::fputs(tokenizer.decode_more({id}, true).c_str(), stdout);
    std::fflush(stdout);
  };
}

// The turns of standard input, or the one of the prompt, each answered.
void chat(const config::Settings& s, const train::Loaded& loaded, const Tokenizer& tokenizer) {
  const bool is_auto = s.chat_template == config::ChatTemplate::kAuto;
  const auto own = is_auto ? data::OwnTemplate::usable(tokenizer, false) : nullptr;
  const auto kind = is_auto ? data::template_of(tokenizer) : s.chat_template;
  if (!own) data::check_template(kind, tokenizer);
  log_info(octavo::str("generate: chat_template ",
                       own ? "of " + own->file() : std::string(name_of(kind))));
  eval::GenerateOptions options = options_of(s, tokenizer);
  options.never = eval::ids_without_token(*loaded.model, tokenizer);
  options.stop.push_back(tokenizer.end_of_document());
  for (const char* marker : {"<|im_end|>", "<|eot_id|>"})
    if (const auto id = tokenizer.added_token(marker)) options.stop.push_back(*id);
  std::vector<data::Message> messages;
  if (!s.system_prompt.empty()) messages.push_back({"system", s.system_prompt, ""});
  const bool one_turn = !s.prompt.empty();
  std::string line = s.prompt;
  const auto read = [&] {
    if (octavo::Progress::on_terminal()) std::fputs("> ", stderr);
    return static_cast<bool>(std::getline(std::cin, line));
  };
  while (one_turn || read()) {
    messages.push_back({"user", line, ""});
    const auto ids =
        own ? own->encode(messages, /*open_turn=*/true, /*with_mask=*/false).ids
            : data::encode_chat(tokenizer, data::render_chat(kind, messages, /*open_turn=*/true))
                  .ids;
    // The whole chat is read again: an answer's own tokens need not be those its text gives.
    eval::Generator generator(*loaded.engine, *loaded.model);
    const auto answer = generator.continue_text(ids, options, print_with(tokenizer));
    std::fputs("\n", stdout);
    messages.push_back({"assistant", tokenizer.decode(answer, true), ""});
    if (one_turn) break;
  }
}

}  // namespace

int generate(CoreArgs args) {
  config::Settings s = config::parse(args, config::kGenerateArguments).settings;
  s.checkpoint_dir = train::root_of_checkpoint(s);
  s.tokenizer = hub::resolve_tokenizer(s.tokenizer, s);
  train::prepare_process(s);
  const train::Loaded loaded = train::load_model(s);
  const auto tokenizer = train::tokenizer_of(loaded, s.tokenizer);
  if (s.chat) {
    chat(s, loaded, *tokenizer);
    return static_cast<int>(ExitCode::kOk);
  }
  std::fputs(s.prompt.c_str(), stdout);
  eval::generate(*loaded.engine, *loaded.model, *tokenizer, s.prompt, options_of(s, *tokenizer),
                 print_with(*tokenizer));
  std::fputs("\n", stdout);
  return static_cast<int>(ExitCode::kOk);
}

}  // namespace octavo::cli
