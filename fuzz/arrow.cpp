// Arrow IPC files and streams.
#include "fuzz/arrow_rows.h"

OCTAVO_FUZZ_TARGET(input) {
  octavo::fuzz::read_arrow(input, false);
}
