#pragma once
// Inputs on S3, by way of liboctavo_s3.so. Endpoint and credentials come from the environment.

#include <memory>
#include <string>
#include <vector>

#include "data/input_file.h"

namespace octavo::data {

bool is_s3_address(const std::string& text);  // "s3://…"
// The object, or all objects below a prefix: path, name, bytes, time and hash.
std::vector<Source> list_s3(const std::string& address);
std::unique_ptr<InputFile> open_s3(const Source& source);

}  // namespace octavo::data
