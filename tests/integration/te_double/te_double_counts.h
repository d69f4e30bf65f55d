#pragma once
// What a test may ask the stand-in, by these names with dlsym.

extern "C" {
// How often a function of the library was called.
unsigned long octavo_te_double_calls(const char* name);
// Tensor handles that exist now.
unsigned long octavo_te_double_handles();
}
