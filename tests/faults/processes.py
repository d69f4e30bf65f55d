#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=faults timeout=600 night="--short" alone
"""Faults of processes; the last line has the results.

signals    SIGTERM or SIGUSR1 to one of three ranks at a random moment: all save together and exit with 75 within one
           step and 5 s, 100 times; each time the run resumes from there, and has the records of one left alone
stops      SIGSTOP of one of four ranks: named in time, and started again; or SIGCONT before the time-out: no matter
straggler  a rank that needs half as long again as the others: named by the flag slow_rank
clocks     the clock of the day jumps by a day, forward and back: training, saves, retention, time left, time-outs stay
memory     a cap on memory is reached: a message and exit code 3, or a kill and a restart; checkpoints stay whole

usage: processes.py [--short] [--only CASE]    --short: fewer of each, for CI
"""
import argparse
import pathlib
import random
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import common  # noqa: E402
from process_limits import clocks, memory  # noqa: E402
from process_ranks import signals, stops, straggler  # noqa: E402

# Times in the long form and in the short one, where tests/integration has stops.
CASES = {signals: (100, 2), stops: (6, 0), straggler: (4, 0), clocks: (2, 1), memory: (12, 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", choices=[case.__name__ for case in CASES])
    parser.add_argument("--seed", type=int, default=10)
    options = parser.parse_args()
    common.require_files()
    tried = lost = not_tried = 0
    results = {}
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        for case, times in CASES.items():
            if not times[options.short] or options.only not in (None, case.__name__):
                continue
            work = pathlib.Path(temporary) / case.__name__
            work.mkdir()
            common.prepare_data(work)
            problems, found = case(work, times[options.short], random.Random(f"{options.seed} {case.__name__}"))
            known = [problem for problem in problems if problem is not None]
            bad = sum(map(bool, known))
            tried, lost, not_tried = tried + len(known), lost + bad, not_tried + len(problems) - len(known)
            results |= {case.__name__: len(known) - bad} | found
            print(f"{case.__name__}: {len(known) - bad} of {len(known)}, {len(problems) - len(known)} could not be tried, "
                  f"{time.monotonic() - began:.0f} s so far", flush=True)
    print(f"tried={tried} survived={tried - lost} lost={lost} not_tried={not_tried} "
          + " ".join(f"{name}={value}" for name, value in results.items()))
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
