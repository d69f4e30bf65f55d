#pragma once
// SIGTERM, SIGINT and SIGUSR1 ask for a stop at the next step boundary (exit 75, resumable).
// A second SIGINT ends the process at once.

namespace octavo {

void install_stop_handlers();
bool stop_requested();
const char* stop_reason();  // "SIGTERM", …; "" when none
void request_stop(const char* reason);

}  // namespace octavo
