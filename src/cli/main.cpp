// octavo VERB [CONFIG.yaml] [--key value]…: finds the verb, gives it the rest, turns errors into
// exit codes.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>

#include "base/error.h"
#include "base/failure.h"
#include "base/host.h"
#include "base/library.h"
#include "base/log_file.h"
#include "base/printable.h"
#include "base/rank_status.h"
#include "base/secrets.h"
#include "base/text.h"
#include "cli/help.h"
#include "cli/verbs.h"
#include "launch/rank_info.h"

namespace octavo::cli {
namespace {

// What people type first, and what it is here.
struct OtherVerb {
  std::string_view typed, here;
};
constexpr OtherVerb kOtherVerbs[] = {
    {"export", "octavo checkpoints export"},
    {"convert", "octavo checkpoints export"},
    {"list", "octavo checkpoints list"},
    {"runs", "octavo checkpoints list"},
    {"resume", "octavo train CONFIG.yaml --resume latest"},
    {"pretrain", "octavo train"},
    {"finetune", "octavo train"},
    {"fine-tune", "octavo train"},
    {"sft", "octavo train"},
    {"lora", "octavo train --lora_rank 8"},
    {"inference", "octavo generate"},
    {"infer", "octavo generate"},
    {"chat", "octavo generate --chat"},
    {"sample", "octavo generate"},
    {"evaluate", "octavo eval"},
    {"benchmark", "octavo bench"},
    {"estimate", "octavo plan"},
    {"import", "octavo config import"},
    {"migrate", "octavo config import"},
    {"check", "octavo config check"},
    {"prepare", "octavo data prepare"},
    {"tokenize", "octavo data prepare"},
    {"models", "octavo names models"},
    {"gpus", "octavo names gpus"},
    {"tensorboard", "octavo board"},
    {"version", "octavo --version"},
};

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
  for (const OtherVerb& other : kOtherVerbs)
    if (other.typed == args[0])
      fail(ExitCode::kUsage, "cli", "unknown verb '", args[0], "'; it is ", other.here);
  if (second_words.empty()) unknown("verb", args[0], first_words);
  if (args.size() > 1 && help_request(args.subspan(1, 1))) return {nullptr, 1};
  std::string words;
  for (std::string_view word : second_words)
    words += (words.empty() ? "" : ", ") + std::string(word);
  if (args.size() > 1 && !nearest_name(args[1], second_words).empty())
    unknown(args[0] + " verb", args[1], second_words);
  fail(ExitCode::kUsage, "cli", args[0], ": wanted one of ", words, ", found ",
       args.size() > 1 ? "'" + args[1] + "'" : "nothing", "; see octavo ", args[0], " --help");
}

bool is_verb(const std::string& word) {
  return std::ranges::any_of(
      verbs(), [&](const Verb& verb) { return split(verb.name, ' ').front() == word; });
}

int run(Args args);

// octavo --help, octavo --help KEY; octavo --help VERB is octavo VERB --help.
int print_help(const std::string& key, Args words) {
  if (!key.empty()) {
    std::cout << any_key_help(key);
  } else if (words.empty()) {
    std::cout << program_help();
  } else if (is_verb(words[0])) {
    std::vector<std::string> turned(words.begin(), words.end());
    turned.emplace_back("--help");
    return run(turned);
  } else {
    std::cout << any_key_help(words[0]);
  }
  return 0;
}

// Of launch -- train --help, the command's.
int print_help(const Verb& verb, Args args) {
  const auto dashes = std::ranges::find(args, "--");
  const auto own = static_cast<size_t>(dashes - args.begin());
  const std::optional<HelpRequest> request = help_request(args.subspan(0, own));
  if (!request && own + 1 < args.size() && is_verb(args[own + 1]))
    return run(args.subspan(own + 1));
  std::cout << verb_help(verb, request.value_or(HelpRequest{}));
  return 0;
}

int run(Args args) {
  if (args.empty()) {
    std::cerr << usage_text();
    return static_cast<int>(ExitCode::kUsage);
  }
  const std::optional<HelpRequest> request = help_request(args.subspan(0, 1));
  if (args[0] == "help" || request)
    return print_help(request ? request->word : "", args.subspan(1));
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
  return help_request(rest) ? print_help(*verb, rest) : verb->run(*verb, rest);
}

constexpr std::string_view kShortage =
    "[cli] wanted memory or a thread, found that the system gives no more; free some, raise the "
    "limit (ulimit -a, the container's), or lower batch_size. Checkpoints are as they were";

// Which is no bug, wherever it is met: a std::thread says "Resource temporarily unavailable".
bool is_shortage(const std::exception& error) {
  return failure_of(error) == Failure::kHostMemory;
}

std::terminate_handler usual_end = nullptr;

// Where nobody can catch: a library's own start, a thread of a library.
void end_without_memory() {
  try {
    if (const std::exception_ptr error = std::current_exception()) std::rethrow_exception(error);
  } catch (const std::exception& error) {
    if (is_shortage(error)) {
      // Text also where log lines are JSON, which takes memory to make.
      for (const std::string_view part : {std::string_view("octavo: "), kShortage, {"\n", 1}})
        static_cast<void>(!::write(STDERR_FILENO, part.data(), part.size()));
      note_failure(Failure::kHostMemory);
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

// "rank 3 of 8 on node07: " under srun, torchrun and mpirun, which show who speaks to nobody;
// octavo launch does, and lines of JSON have the rank.
static std::string speaker(octavo::cli::Args args) {
  if (!args.empty() && args.front() == "launch") return "";  // a launcher on each node of a step
  const octavo::Variables variables = octavo::launch::environment();
  const auto told = octavo::launch::told_rank(variables);
  if (!told || variables.contains("OCTAVO_RANK")) return "";
  return octavo::str("rank ", told->rank, " of ", told->ranks, " on ", octavo::host_name(), ": ");
}

// Why the process ends. A run has it in its log file already.
static void print_end(octavo::cli::Args args, std::string_view why) {
  if (octavo::log_detail::is_json())
    std::cerr << octavo::log_detail::line_of(octavo::LogLevel::kError, std::string(why));
  else
    std::cerr << "octavo: " << speaker(args) << why << "\n";
}

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + std::min(argc, 1), argv + argc);
  octavo::cli::usual_end = std::set_terminate(octavo::cli::end_without_memory);
  octavo::own_page();  // before anything else reads the environment
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
    print_end(args, shown(error));
    octavo::note_failure(octavo::failure_of(error));
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    if (octavo::is_environment(error)) {
      if (octavo::cli::is_shortage(error))
        print_end(args, octavo::cli::kShortage);
      else
        print_end(args, octavo::str("[cli] wanted a file, found: ", shown(error),
                                    "; check the file system (df, mount, dmesg)"));
      octavo::note_failure(octavo::failure_of(error));
      return static_cast<int>(octavo::ExitCode::kEnvironment);
    }
    print_end(args, "a bug, please report it with the command line: " + shown(error));
    return 1;
  }
}
