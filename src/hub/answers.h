#pragma once
// What an answer of the hub that is no file means to the user, and what to do about it.

#include <string>

#include "hub/cache.h"
#include "hub/http.h"

namespace octavo::hub {

// "HTTP 503", "Could not resolve host: …"
std::string describe(const HttpResponse& answer);

// `file` may be empty: the list of files was asked for.
[[noreturn]] void fail_answer(const HttpResponse& answer, const RepoCache& cache, const Http& http,
                              const std::string& file);

// Whether the name may as well be a mistyped path: one without an owner that nobody is known to
// have published, one that ends as a file of data does, or one beside whose place as a path
// something of nearly that name lies.
bool may_be_path(const RepoCache& cache);
// What to type then, a sentence; else "".
std::string path_words(const RepoCache& cache);

// How to do without the network; ends a message.
std::string manual_steps(const RepoCache& cache);

}  // namespace octavo::hub
