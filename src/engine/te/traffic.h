#pragma once
// What the library's calls read and write, for engine/traffic.h: a call names handles, and what a
// handle describes is remembered while somebody listens.

#include <transformer_engine/transformer_engine.h>

#include <cstdint>
#include <initializer_list>

namespace octavo::engine::te {

void remember_buffer(NVTETensor handle, NVTETensorParam param, int64_t bytes);
void forget_buffers(NVTETensor handle);
// `arguments`: those of the call, null where one is no pointer.
void report_call(const char* name, std::initializer_list<const void*> arguments);

}  // namespace octavo::engine::te
