#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=faults timeout=1800 gate="--short" night="" alone
"""A part of one rank stops for ever, at a random moment; the last line has the results.

main        the main thread, wherever a signal finds it
loader      the thread that reads data
device      the (fake) CUDA device never becomes ready; one rank
collective  no byte comes in any more at one rank: all wait, and no rank is to blame, or that one when all others had their bytes
stopped     the whole process (SIGSTOP): its launcher names it

Each must be named within hang_timeout, and no other; what it says must have the stack of the thread and what it waits for;
and `octavo launch --max_restarts` must start the run again, which then gets on.

usage: hang.py [--short] [--only KIND] [--times N]    --short: each kind once, with hang_timeout 8 instead of 60
"""
import argparse
import concurrent.futures
import os
import pathlib
import random
import re
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import common  # noqa: E402
import fake_cuda  # noqa: E402
from common import BUILD  # noqa: E402
from process_ranks import steps_done  # noqa: E402
from rank_runs import Launched, make_folder  # noqa: E402

KINDS = ("main", "loader", "device", "collective", "stopped")
MODES = ("ddp", "fsdp_full", "zero1")
RANKS, NEVER, PATIENCE = 3, 100_000_000, 120
LIBRARY = BUILD / "lib" / "libhang_faults.so"
FLAGS = ("--max_restarts", "2", "--auto_resume")
# What the one that hangs says: of itself, or its launcher of it.
NAMED = re.compile(r"rank (\d+) (?:\([^)]*\) )?hangs: no (?:progress|sign of life)")
ALL_WAIT = "ranks wait and none hangs by itself"
# Beside the name, in what the rank wrote.
DETAILS = {"main": ("main thread:", "hang_faults"), "loader": ("waits for the loader", "loader:", "hang_faults"),
           "device": (r"waits for the device|the device has not finished", "hang_faults"), "collective": ("waits in ", "group "), "stopped": ()}
# Of a collective that all ranks wait in, none is at fault: it is the network's.
RESTARTED = {"stopped": "stood still", "collective": r"\((network|hang)\)", "main": r"\(hang\)", "loader": r"\(hang\)", "device": r"\(hang\)"}


class Trial:
    def __init__(self, work, number, kind, timeout, chance):
        self.kind, self.timeout, self.chance = kind, timeout, chance
        self.ranks = 1 if kind == "device" else RANKS
        self.victim, mode = chance.randrange(self.ranks), MODES[number % len(MODES)]
        precision = "mixed_precision: bf16\n" if kind == "device" else f"sharding_mode: {mode}\n"
        self.folder = make_folder(work / f"{kind}-{number}", NEVER, 0, f"hang_timeout: {timeout}\n{precision}")
        self.faults = self.folder.path / "faults"
        self.faults.mkdir()

    def launch(self):
        base = dict(os.environ, LD_PRELOAD=str(LIBRARY))
        if self.kind == "device":
            text = self.folder.path / "train.yaml"
            text.write_text(text.read_text().replace("mixed_precision: fp32\n", "", 1))
            base = fake_cuda.environment(base=base)
            base["LD_PRELOAD"] = f"{LIBRARY} {fake_cuda.DEVICE}"  # in front of what it stands for
        return Launched(self.folder, ("--nproc", str(self.ranks), *FLAGS), environment=base | {
            "OCTAVO_HANG_FAULT": str(self.faults)})

    def wait_for(self, run, what, patience=PATIENCE):
        deadline = time.monotonic() + patience
        while not what():
            if run.process.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(0.03)
        return True

    def disturb(self, run):
        """When it hangs."""
        if self.kind == "stopped":
            os.kill(run.ranks()[self.victim], signal.SIGSTOP)
            return time.monotonic()
        waiting = self.faults / f".{self.victim}"
        waiting.write_text(self.kind)
        waiting.rename(self.faults / str(self.victim))
        self.wait_for(run, (self.faults / f"{self.victim}.taken").exists)
        return time.monotonic()

    def texts(self, run):
        return run.said() + "".join(run.log(rank) for rank in range(self.ranks))

    def is_named(self, run):
        text = self.texts(run)
        return (self.kind == "collective" and ALL_WAIT in text) or NAMED.search(text) is not None

    def judged(self, run, seconds):
        text, found, wrong = self.texts(run), [], []
        if seconds is None or seconds > self.timeout:
            found.append(f"named after {seconds} s, wanted {self.timeout}")
        named = {int(rank) for rank in NAMED.findall(text)}
        if named - {self.victim}:
            wrong.append(f"ranks {sorted(named)} were named")
        missing = [detail for detail in DETAILS[self.kind] if not re.search(detail, text)]
        if missing:
            found.append(f"nothing says {missing}")
        at = steps_done(self.folder)
        if not self.wait_for(run, lambda: re.search(RESTARTED[self.kind], run.said()) and "restart 1 of" in run.said(), 40):
            found.append("it was not started again for it")
        elif not self.wait_for(run, lambda: steps_done(self.folder) > at):
            found.append("it did not get on after the restart")
        return found, wrong

    def run(self):
        """How long until it was named, what is missing, and who was named wrongly."""
        moment, run = self.chance.randrange(5, 60), self.launch()
        try:
            if not self.wait_for(run, lambda: steps_done(self.folder) >= moment):
                return None, [f"it did not come to step {moment}"], [], run
            time.sleep(self.chance.uniform(0, 0.1))
            began = self.disturb(run)
            named = self.wait_for(run, lambda: self.is_named(run), self.timeout + 30)
            seconds = time.monotonic() - began if named else None
            found, wrong = self.judged(run, seconds)
            return seconds, found, wrong, run
        finally:
            run.end()


def trial(work, number, kind, timeout, seed):
    it = Trial(work, number, kind, timeout, random.Random(f"{seed} {number}"))
    seconds, found, wrong, run = it.run()
    took = "not named" if seconds is None else f"named after {seconds:.1f} s"
    print(f"{kind} of rank {it.victim}: {took}; {'; '.join(found + wrong) or 'started again, and gets on'}", flush=True)
    if found or wrong:
        print(run.said()[-3000:])
        for rank in range(it.ranks):
            print(f"--- rank {rank}\n{run.log(rank)[-4000:]}")
    return seconds, found, wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--times", type=int, default=8, help="of each kind")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--timeout", type=float, default=60, help="hang_timeout")
    parser.add_argument("--seed", type=int, default=31)
    options = parser.parse_args()
    common.require_files()
    fake_cuda.require_libraries()
    if not LIBRARY.exists():
        sys.exit(f"wanted {LIBRARY}, found none; build the target hang_faults")
    timeout = 8 if options.short else options.timeout
    kinds = [options.only] if options.only else KINDS
    trials = [kind for _ in range(1 if options.short else options.times) for kind in kinds]
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        common.prepare_data(work)
        # Most of a trial is waiting: several at once, but not while the time-out is short.
        with concurrent.futures.ThreadPoolExecutor(1 if timeout < 30 else 8) as pool:
            results = list(pool.map(lambda it: trial(work, it[0], it[1], timeout, options.seed), enumerate(trials)))
    late = sum(seconds is not None and seconds > timeout for seconds, _, _ in results)
    wrong = sum(bool(wrong) for _, _, wrong in results)
    named = sum(not found and not wrong for _, found, wrong in results)
    slowest = max((seconds or 0) for seconds, _, _ in results)
    print(f"tried={len(results)} named={named} late={late} wrong_rank={wrong} slowest_s={slowest:.1f} timeout_s={timeout:g}")
    sys.exit(1 if named < len(results) else 0)


if __name__ == "__main__":
    main()
