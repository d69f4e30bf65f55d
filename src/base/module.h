#pragma once
// Parts of the program that need large libraries (Arrow) are libraries of their own, loaded when
// they are first needed.

#include <string>

namespace octavo {

// A function of a library that lies beside our own. `purpose` says in messages who wants it.
void* module_symbol(const std::string& library, const char* symbol, const std::string& purpose);

}  // namespace octavo
