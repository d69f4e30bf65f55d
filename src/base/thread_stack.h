#pragma once
// Where another thread of this process is, for a message about a hang: its state in the kernel, and
// its stack, which it takes itself in the handler of a signal.

#include <chrono>
#include <cstdint>
#include <string>

namespace octavo {

// Once, before a stack is asked for: what the handler needs is loaded then, not inside it.
void prepare_thread_stacks();

// One frame a line, the innermost first; or one line that says why there is none (a thread that
// waits in the kernel without heed to signals, for a disk or a driver, cannot answer).
std::string stack_of_thread(int32_t thread,
                            std::chrono::milliseconds patience = std::chrono::milliseconds(2000));

}  // namespace octavo
