#pragma once
// Parts of this module that need large libraries are loaded when they are first needed.

#include <string>

namespace octavo::data {

// A function of a library that lies beside our own. `purpose` says in messages who wants it.
void* module_symbol(const std::string& library, const char* symbol, const std::string& purpose);

}  // namespace octavo::data
