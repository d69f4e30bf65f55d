#pragma once
// A preparation that several processes do together (work_folder.h), each of them from the start to
// the end: hash the inputs, encode their chunks, write the shards, write the index. The items of a
// stage are claimed one by one; a stage begins when the one before it is done.

#include "data/prepare.h"
#include "data/prepare_plan.h"

namespace octavo::data {

// The inputs are not hashed yet.
PrepareResult prepare_in_chunks(const PrepareOptions& options,
                                const tokenizer::Tokenizer& tokenizer, Inputs inputs, int workers);

// Whether processes share a preparation in the folder, or left one that can be continued: hashes of
// inputs alone are none.
bool has_shared_work(const fs::path& output);

}  // namespace octavo::data
