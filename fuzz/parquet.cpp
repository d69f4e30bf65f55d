// Parquet files.
#include "fuzz/arrow_rows.h"

OCTAVO_FUZZ_TARGET(input) {
  octavo::fuzz::read_arrow(input, true);
}
