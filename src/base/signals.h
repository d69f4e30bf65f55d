#pragma once
// SIGTERM, SIGINT, SIGUSR1 and SIGHUP (the terminal is gone; not under nohup) ask for a stop at the
// next step boundary (exit 75, resumable). A second SIGINT ends the process at once. A reader of
// our output that is gone (SIGPIPE) ends nothing.

namespace octavo {

void install_stop_handlers();
bool stop_requested();
const char* stop_reason();  // "SIGTERM", …; "" when none
void request_stop(const char* reason);
double seconds_since_stop_request();  // 0 when there was none

}  // namespace octavo
