// octavo VERB [CONFIG.yaml] [--key value]…: finds the verb, gives it the rest, turns errors into
// exit codes.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <system_error>

#include "base/error.h"
#include "base/library.h"
#include "base/printable.h"
#include "base/secrets.h"
#include "base/text.h"
#include "cli/verbs.h"
#include "config/print.h"

namespace octavo::cli {
namespace {

constexpr std::string_view kIntroduction =
    "octavo " OCTAVO_VERSION
    ": trains language models and proves that it worked.\n\n"
    "usage: octavo VERB [CONFIG.yaml] [--key value]…\n"
    "       octavo VERB --help    the keys that a verb reads\n"
    "       octavo --version\n\n";

constexpr std::string_view kExamples =
    "\nexamples:\n"
    "  octavo train --dataset input.txt --model_name custom --n_layer 4 --n_head 4 --n_embd 128 "
    "--max_steps 2000\n"
    "  octavo train --model_name meta-llama/Llama-3.2-1B --dataset_name openai/gsm8k "
    "--dataset_config main --use_fp8\n"
    "  octavo train config.yaml --resume latest\n"
    "  octavo launch --nproc 8 --max_restarts 3 -- train config.yaml\n"
    "  octavo generate --checkpoint best --prompt \"To be, or\"\n"
    "  octavo data prepare corpus/ --tokenizer tokenizer.json --output data/corpus\n"
    "  octavo schedule --max_steps 10000 --learning_rate 3e-4 --output schedule.svg\n"
    "\nexit codes: 0 done, 2 wrong use or config, 3 environment, 4 training stopped by a guard, 5 "
    "data or checkpoint\n"
    "damaged, 6 compare had not enough data, 75 stopped on request and resumable. Every key: "
    "docs/reference/configuration.md or\noctavo config show.\n";

// The verbs whose name starts with the word ("" all of them), one a line.
std::string verb_lines(std::string_view word) {
  std::string out;
  for (const Verb& verb : verbs()) {
    if (!word.empty() && split(verb.name, ' ').front() != word) continue;
    std::string name = "  " + std::string(verb.name);
    name.resize(18, ' ');
    out += str(name, verb.about, "\n");
  }
  return out;
}

void print_verb_help(const Verb& verb) {
  std::cout << "usage: octavo " << verb.name << " " << verb.usage << "\n\n" << verb.about << "\n";
  const std::string keys = config::help_text(verb.arguments.reader);
  if (!keys.empty()) std::cout << "\n" << keys;
}

bool asks_for_help(const std::string& arg) {
  return arg == "--help" || arg == "-h";
}

[[noreturn]] void unknown(std::string_view what, const std::string& found,
                          const std::vector<std::string_view>& names) {
  const std::string nearest = nearest_name(found, names);
  fail(ExitCode::kUsage, "cli", "unknown ", what, " '", found, "'; ",
       nearest.empty() ? "see octavo --help" : "did you mean " + nearest + "?");
}

// The verb, and how many arguments its name took. A verb of two words may be asked for help with
// one.
std::pair<const Verb*, size_t> find_verb(Args args) {
  std::vector<std::string_view> first_words, second_words;
  for (const Verb& verb : verbs()) {
    const size_t space = verb.name.find(' ');
    first_words.push_back(verb.name.substr(0, space));
    if (first_words.back() != args[0]) continue;
    if (space == verb.name.npos) return {&verb, 1};
    second_words.push_back(verb.name.substr(space + 1));
    if (args.size() > 1 && second_words.back() == args[1]) return {&verb, 2};
  }
  if (second_words.empty()) unknown("verb", args[0], first_words);
  if (args.size() > 1 && asks_for_help(args[1])) return {nullptr, 1};
  std::string words;
  for (std::string_view word : second_words)
    words += (words.empty() ? "" : ", ") + std::string(word);
  if (args.size() > 1 && !nearest_name(args[1], second_words).empty())
    unknown(args[0] + " verb", args[1], second_words);
  fail(ExitCode::kUsage, "cli", args[0], ": wanted one of ", words, ", found ",
       args.size() > 1 ? "'" + args[1] + "'" : "nothing", "; see octavo ", args[0], " --help");
}

int run(Args args) {
  if (args.empty()) {
    std::cerr << kIntroduction << "verbs:\n" << verb_lines("");
    return static_cast<int>(ExitCode::kUsage);
  }
  if (asks_for_help(args[0]) || args[0] == "help") {
    std::cout << kIntroduction << "verbs:\n" << verb_lines("") << kExamples;
    return 0;
  }
  if (args[0] == "--version") {
    std::cout << "octavo " OCTAVO_VERSION "\n";
    return 0;
  }
  const auto [verb, words] = find_verb(args);
  const Args rest = args.subspan(words);
  if (verb == nullptr) {
    std::cout << "verbs:\n" << verb_lines(args[0]);
    return 0;
  }
  if (std::any_of(rest.begin(), rest.end(), asks_for_help)) {
    print_verb_help(*verb);
    return 0;
  }
  return verb->run(*verb, rest);
}

constexpr std::string_view kShortage =
    "octavo: [cli] wanted memory or a thread, found that the system gives no more; free some, "
    "raise the limit (ulimit -a, the container's), or lower batch_size. Checkpoints are as they "
    "were\n";

// Which is no bug, wherever it is met: a std::thread says "Resource temporarily unavailable".
bool is_shortage(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) return true;
  const auto* refused = dynamic_cast<const std::system_error*>(&error);
  return refused != nullptr && (refused->code() == std::errc::resource_unavailable_try_again ||
                                refused->code() == std::errc::not_enough_memory);
}

std::terminate_handler usual_end = nullptr;

// Where nobody can catch: a library's own start, a thread of a library.
void end_without_memory() {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::exception& error) {
    if (is_shortage(error)) {
      static_cast<void>(!::write(STDERR_FILENO, kShortage.data(), kShortage.size()));
      ::_exit(static_cast<int>(ExitCode::kEnvironment));
    }
  } catch (...) {  // as usual
  }
  usual_end();
}

}  // namespace
}  // namespace octavo::cli

// A message may quote an untrusted file.
constexpr size_t kMostMessage = 4000;

static std::string shown(const std::exception& error) {
  return octavo::printable(octavo::without_secrets(error.what()), kMostMessage, true);
}

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  octavo::cli::usual_end = std::set_terminate(octavo::cli::end_without_memory);
  try {
    octavo::protect_environment();
    octavo::use_site_packages(argv);
    const int code = octavo::cli::run(args);
    std::cout.flush();
    if (!std::cout || std::fflush(stdout) != 0)
      octavo::fail(octavo::ExitCode::kEnvironment, "cli",
                   "wanted to write to standard output, found an error");
    return code;
  } catch (const octavo::Error& error) {
    std::cerr << "octavo: " << shown(error) << "\n";
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    if (octavo::cli::is_shortage(error)) {
      std::cerr << octavo::cli::kShortage;
      return static_cast<int>(octavo::ExitCode::kEnvironment);
    }
    std::cerr << "octavo: a bug, please report it with the command line: " << shown(error) << "\n";
    return 1;
  }
}
