#include "cli/own_flags.h"

#include <algorithm>

#include "base/error.h"

namespace octavo::cli {
namespace {

// "--loss-name=x" is the flag loss_name with the value x.
const OwnFlag* find_flag(std::span<const OwnFlag> flags, std::string_view arg) {
  if (!arg.starts_with("--")) return nullptr;
  std::string name(arg.substr(2, arg.substr(2).find('=')));
  std::ranges::replace(name, '-', '_');
  const auto found = std::ranges::find(flags, name, &OwnFlag::name);
  return found == flags.end() ? nullptr : &*found;
}

bool takes_several(const OwnFlag& flag) {
  return flag.value.ends_with("…");
}

}  // namespace

std::optional<std::string> GivenFlags::value(std::string_view name) const {
  const auto found = values.find(name);
  if (found == values.end() || found->second.empty()) return std::nullopt;
  return found->second.back();
}

GivenFlags take_own_flags(std::span<const OwnFlag> flags, Args args) {
  GivenFlags given;
  for (size_t at = 0; at < args.size(); ++at) {
    const OwnFlag* const flag = find_flag(flags, args[at]);
    const size_t equals = args[at].find('=');
    const bool has_value = equals != args[at].npos;
    if (flag == nullptr || (has_value && flag->value.empty())) {
      given.other_args.push_back(args[at]);
      continue;
    }
    std::vector<std::string>& values = given.values[std::string(flag->name)];
    if (has_value) values.push_back(args[at].substr(equals + 1));
    const size_t wanted = takes_several(*flag) ? args.size() : has_value ? 0 : 1;
    for (size_t taken = 0; !flag->value.empty() && taken < wanted && at + 1 < args.size() &&
                           !args[at + 1].starts_with("--");
         ++taken)
      values.push_back(args[++at]);
    if (values.empty() && !flag->value.empty())
      fail(ExitCode::kUsage, "cli", "--", flag->name, ": wanted ", flag->value,
           " behind it, found ", at + 1 == args.size() ? "nothing" : "the flag " + args[at + 1]);
  }
  return given;
}

std::string own_flags_help(const OwnFlags& own) {
  constexpr size_t kColumn = 28;
  std::string out(own.about);
  for (const OwnFlag& flag : own.flags) {
    std::string line = str("  --", flag.name, flag.value.empty() ? "" : " ", flag.value);
    const auto continuation = std::ranges::count_if(
        line, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U; });
    const size_t width = line.size() - static_cast<size_t>(continuation);
    line.append(width < kColumn ? kColumn - width : 2, ' ');
    out += str(line, flag.about, "\n");
  }
  return out;
}

}  // namespace octavo::cli
