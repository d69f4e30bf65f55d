#pragma once
// This machine's name and the present time, as texts.

#include <ctime>
#include <string>

namespace octavo {

std::string host_name();  // "unknown host" when there is none

// By strftime's `format`, in UTC.
std::string utc_text(const char* format, std::time_t seconds);
// "2026-11-17T23:30:39.123Z" with so many digits of a second (0: and no point): sorted as text,
// sorted by time.
std::string utc_now(int digits);

}  // namespace octavo
