#pragma once
// --help, --help_all and --help KEY, of the program and of each verb.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/verbs.h"

namespace octavo::cli {

struct HelpRequest {
  bool all = false;
  std::string word;  // --help KEY; "" for none
};

// What the arguments ask for, wherever they do.
std::optional<HelpRequest> help_request(Args args);

// The keys that --help shows of a verb; all that it reads when they fit a screen.
std::vector<std::string> common_keys(const Verb& verb);

std::string verb_help(const Verb& verb, const HelpRequest& request);
// The verbs whose name starts with the word, one a line.
std::string verb_lines(std::string_view word);
std::string usage_text();    // what a command without a verb is answered with
std::string program_help();  // octavo --help
// octavo --help KEY
std::string any_key_help(const std::string& word);

}  // namespace octavo::cli
