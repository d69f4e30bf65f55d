#pragma once
// One entry per verb; each verb's file parses, calls the module that does the work and returns the
// exit code.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/own_flags.h"
#include "config/parse.h"

namespace octavo::cli {

struct Verb {
  std::string_view name;   // "data prepare" has the verb "data" and the word "prepare"
  std::string_view usage;  // what follows the name
  std::string_view about;  // one line
  config::Arguments arguments;
  int (*run)(const Verb& verb, Args args);  // args after the name
  OwnFlags own = {};
};

std::span<const Verb> verbs();

int config_show(const Verb& verb, Args args);
int config_check(const Verb& verb, Args args);
int config_import(const Verb& verb, Args args);
int config_schema(const Verb& verb, Args args);
int config_docs(const Verb& verb, Args args);
int data_prepare(const Verb& verb, Args args);
int data_inspect(const Verb& verb, Args args);
int plan(const Verb& verb, Args args);
int dry_run(const Verb& verb, const GivenFlags& given,
            const config::Parsed& parsed);  // plan --dry_run
int compare(const Verb& verb, Args args);
int audit(const Verb& verb, Args args);
int report(const Verb& verb, Args args);
int schedule(const Verb& verb, Args args);
int board(const Verb& verb, Args args);
int logs(const Verb& verb, Args args);
int launch(const Verb& verb, Args args);
int sweep_create(const Verb& verb, Args args);
int sweep_agent(const Verb& verb, Args args);
int sweep_run(const Verb& verb, Args args);
int sweep_status(const Verb& verb, Args args);
int sweep_report(const Verb& verb, Args args);
int sweep_schema(const Verb& verb, Args args);
int examples(const Verb& verb, Args args);
int names(const Verb& verb, Args args);
int completion(const Verb& verb, Args args);
// Verbs that need libtorch: checks the arguments, then loads liboctavo_core.so and calls
// octavo_core_main.
int core(const Verb& verb, Args args);
int verify(const Verb& verb, Args args);  // --for: without libtorch; otherwise core
int doctor(const Verb& verb, Args args);  // verify, under the name that many type first

}  // namespace octavo::cli
