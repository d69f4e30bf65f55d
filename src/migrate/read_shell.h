#pragma once
// Launch scripts of bash, read as data: literal assignments, lists of arguments, conditions on them
// and the command that starts Python. Nothing is executed; what is not understood is counted and
// listed.

#include <string>
#include <string_view>
#include <vector>

#include "migrate/import_read.h"

namespace octavo::migrate {

struct ShellScript {
  std::string program;                 // "pretrain_gpt.py"; "" when no command starts one
  std::vector<ForeignEntry> flags;     // of the program: path without dashes
  std::vector<ForeignEntry> launcher;  // of torchrun, srun and #SBATCH
  std::vector<ForeignEntry> exports;   // environment variables
  std::vector<ForeignEntry> others;    // what was not understood
};

ShellScript read_shell(std::string_view text, const std::string& shown);

// "--num-layers 32 --bf16": the arguments themselves, as a file that a program takes with @FILE.
std::vector<ForeignEntry> argument_entries(std::string_view text, const std::string& shown);

}  // namespace octavo::migrate
