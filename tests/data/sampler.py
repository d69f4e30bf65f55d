#!/usr/bin/env python3
# test: label=unit timeout=600 gate="" measures="src/data"
"""The unit tests of src/data, and what they measured of the sampler at 10^13 virtual tokens on the last line."""
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release")) / "bin" / "test_data"


def main():
    if not TOOL.exists():
        print(f"wanted {TOOL}, found none; ninja -C {TOOL.parents[1]} test_data", file=sys.stderr)
        sys.exit(3)
    done = subprocess.run([TOOL], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(done.stdout, end="")
    lines = re.findall(r"^data_results (.*)$", done.stdout, re.M)
    if not lines:
        sys.exit(f"wanted a data_results line from {TOOL}, found none")
    passed = re.findall(r"^\[  PASSED  \] (\d+) tests?\.", done.stdout, re.M)
    failed = len(re.findall(r"^\[  FAILED  \] .* ms\)$", done.stdout, re.M))
    of = dict(word.split("=") for word in lines[-1].split())
    number = {key: float(value) for key, value in of.items()}
    good = (done.returncode == 0 and failed == 0 and number["sampler_bytes"] < 2**20 and number["seek_ns"] < 10_000
            and number["seek_p99_ns"] < 10_000 and number["exhaustive_sizes"] >= 1000 and number["inverted"] >= 100_000
            and number["missed"] == 0 and number["repeated"] == 0)
    print(f"{lines[-1]} tests={passed[-1] if passed else 0} failed={failed}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
