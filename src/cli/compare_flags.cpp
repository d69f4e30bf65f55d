#include "cli/compare_flags.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace octavo::cli {
namespace {

int64_t tokens_of(const std::string& text) {
  int64_t tokens = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, tokens);
  if (error != std::errc() || stop != end || tokens < 1 || tokens > int64_t{1} << 40)
    fail(ExitCode::kUsage, "cli", "--step_tokens: wanted a number of tokens, found '",
         text.substr(0, 40), "'");
  return tokens;
}

// "--loss-name=x" is {"loss_name", "x"}.
struct Flag {
  std::string name, value;
  bool has_value = false;
};

Flag flag_of(const std::string& arg) {
  Flag flag;
  if (!arg.starts_with("--")) return flag;
  const size_t equals = arg.find('=');
  flag.name = arg.substr(2, equals == arg.npos ? arg.npos : equals - 2);
  std::ranges::replace(flag.name, '-', '_');
  flag.has_value = equals != arg.npos;
  if (flag.has_value) flag.value = arg.substr(equals + 1);
  return flag;
}

}  // namespace

CompareFlags take_compare_flags(Args args) {
  CompareFlags flags;
  for (size_t at = 0; at < args.size(); ++at) {
    const Flag flag = flag_of(args[at]);
    const auto value = [&] {
      if (flag.has_value) return flag.value;
      if (at + 1 == args.size() || args[at + 1].starts_with("--"))
        fail(ExitCode::kUsage, "cli", "--", flag.name, ": wanted a value, found ",
             at + 1 == args.size() ? "nothing" : "the flag " + args[at + 1]);
      return args[++at];
    };
    if (flag.name == "against") {
      if (flag.has_value) flags.against.push_back(flag.value);
      while (at + 1 < args.size() && !args[at + 1].starts_with("--"))
        flags.against.push_back(args[++at]);
      if (flags.against.empty())
        fail(ExitCode::kUsage, "cli", "--against: wanted runs, found nothing behind it");
    } else if (flag.name == "loss_name") {
      flags.logs.loss_name = value();
    } else if (flag.name == "val_loss_name") {
      flags.logs.val_loss_name = value();
    } else if (flag.name == "step_tokens") {
      flags.logs.step_tokens = tokens_of(value());
    } else if (flag.name == "same_batches" && !flag.has_value) {
      flags.same_batches = true;
    } else {
      flags.other_args.push_back(args[at]);
      continue;
    }
    flags.about_logs |= flag.name != "against";
  }
  return flags;
}

}  // namespace octavo::cli
