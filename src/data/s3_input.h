#pragma once
// Inputs on S3 (object_store/object_store.h).

#include <memory>
#include <string>
#include <vector>

#include "data/input_file.h"
#include "object_store/address.h"

namespace octavo::data {

using object_store::is_s3_address;
// The object, or all objects below a prefix: path, name, bytes, time and hash.
std::vector<Source> list_s3(const std::string& address);
std::unique_ptr<InputFile> open_s3(const Source& source);

}  // namespace octavo::data
