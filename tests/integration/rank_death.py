#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate="--times 1" night="--times 20" alone
"""kill -9 and SIGSTOP of one rank of four at random moments: every peer names that rank and the collective it was
missed in, and is gone in time; `octavo launch --max_restarts` continues to the weights of a run that was left alone."""
import argparse
import os
import pathlib
import random
import re
import signal
import sys
import tempfile
import time

import common
from rank_runs import Launched, make_folder, named_as_lost, seconds_until_gone

RANKS, STEPS, TIMEOUT = 4, 40, 4
KILLED_LIMIT, STOPPED_LIMIT = 10, TIMEOUT + 5  # seconds until all peers are gone
MODES = ("ddp", "fsdp_full")
FLAGS = ("--nproc", str(RANKS), "--max_restarts", "3")


def new_folder(work, name, mode):
    return make_folder(work / name, STEPS, 5, f"sharding_mode: {mode}\ndist_timeout: {TIMEOUT}\n")


def undisturbed(work, mode):
    """Final weights, and how long the ranks ran."""
    folder = new_folder(work, f"reference-{mode}", mode)
    start = time.monotonic()
    run = Launched(folder, FLAGS)
    code = run.wait(120)
    if code != 0:
        run.end()
        sys.exit(f"the undisturbed run ended with exit code {code}:\n{run.said()[-3000:]}\n{run.log(0)[-3000:]}")
    weights = folder.tensors(STEPS)
    if not weights:
        sys.exit(f"the undisturbed run left no checkpoint of step {STEPS} in {folder.named('')}")
    return weights, time.monotonic() - start


def disturb(run, how, victim, moment):
    """Sends the signal; the problems that were found until all peers were gone, and how long that took."""
    ranks = run.wait_for_ranks(RANKS)
    if not ranks:
        return [f"the ranks did not start:\n{run.said()[-2000:]}"], 0
    time.sleep(moment)
    peers = [pid for rank, pid in ranks.items() if rank != victim]
    before = {rank: len(run.log(rank)) for rank in ranks}
    try:
        os.kill(ranks[victim], how)
    except ProcessLookupError:
        return None, 0  # the run was over: no trial
    limit = KILLED_LIMIT if how == signal.SIGKILL else STOPPED_LIMIT
    seconds = seconds_until_gone(peers, limit + 10)
    if "done: " in run.log(0)[:before[0]]:
        return None, 0  # it was only on its way out
    problems = []
    if seconds is None or seconds > limit:
        problems.append(f"peers were gone after {seconds} s, wanted {limit}")
    for rank in ranks:
        if rank == victim:
            continue
        said = run.log(rank)[before[rank]:]
        named = named_as_lost(said)
        if named != {victim}:
            problems.append(f"rank {rank} named {sorted(named)}, wanted {victim}: {said[-1500:]}")
        elif not re.search(r"(missed in|failed in|this rank \(in) [^;]*", said):
            problems.append(f"rank {rank} named no collective: {said[-1500:]}")
    return problems, seconds or 0


def trial(work, number, how, mode, length, chance, wanted):
    victim = chance.randrange(RANKS)
    for attempt in range(5):
        folder = new_folder(work, f"trial-{number}-{attempt}", mode)
        moment = chance.uniform(0, length * 0.7 ** attempt)
        run = Launched(folder, FLAGS)
        try:
            problems, seconds = disturb(run, how, victim, moment)
            if problems is None:
                continue
            code = run.wait(120)
        finally:
            run.end()
        if code != 0:
            problems.append(f"the launcher ended with exit code {code}, wanted 0:\n{run.said()[-3000:]}")
        elif f"rank {victim} " not in run.said():
            problems.append(f"the launcher did not name rank {victim}:\n{run.said()[-3000:]}")
        elif "launcher of node 0 warning: rank " not in (merged := common.octavo(folder.path, "logs", "run").stdout):
            problems.append(f"octavo logs has no line of the launcher's restart:\n{merged[-3000:]}")
        differs = code == 0 and folder.tensors(STEPS) != wanted
        print(f"{signal.Signals(how).name} to rank {victim} after {moment:.2f} s ({mode}): peers gone after "
              f"{seconds:.1f} s; {'; '.join(problems) or 'named by all'}; weights "
              f"{'DIFFER' if differs else 'same' if code == 0 else 'MISSING'}", flush=True)
        return bool(problems), differs or code != 0, seconds
    sys.exit(f"trial {number}: the run was over before every signal")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=20, help="of each of the two signals")
    parser.add_argument("--seed", type=int, default=4)
    options = parser.parse_args()
    common.require_files()
    chance = random.Random(options.seed)
    slowest = {signal.SIGKILL: 0, signal.SIGSTOP: 0}
    unnamed = differing = 0
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        common.prepare_data(work)
        references = {}
        for i in range(options.times):
            mode = MODES[(options.seed + i) % len(MODES)]
            if mode not in references:
                references[mode] = undisturbed(work, mode)
            wanted, length = references[mode]
            for how in slowest:
                short, differs, seconds = trial(work, f"{i}-{int(how)}", how, mode, length * 0.8, chance, wanted)
                unnamed += short
                differing += differs
                slowest[how] = max(slowest[how], seconds)
    print(f"kills={options.times} stops={options.times} short={unnamed} slowest_after_kill_s="
          f"{slowest[signal.SIGKILL]:.1f} slowest_after_stop_s={slowest[signal.SIGSTOP]:.1f} timeout_s={TIMEOUT} "
          f"weights_differing={differing}")
    sys.exit(1 if unnamed or differing else 0)


if __name__ == "__main__":
    main()
