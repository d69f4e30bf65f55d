#pragma once
// What liboctavo_s3.so offers; loaded when the first s3:// address is met (s3_input.cpp).

#include <string>
#include <vector>

#include "data/input_file.h"
#include "data/sources.h"

extern "C" {
// The object at an address, or all below it, in the order of their names. Throws octavo::Error.
void octavo_s3_list(const std::string* address, std::vector<octavo::data::Source>* out);
// The caller owns the result.
octavo::data::InputFile* octavo_s3_open(const octavo::data::Source* source);
}
