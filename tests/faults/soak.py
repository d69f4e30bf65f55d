#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=faults timeout=600 night="--short" alone
"""Hours of training with a fault of a random kind about every minute, at random times; the last line has the results.

Half of the time two ranks train under `octavo launch --max_restarts` and a random one is killed, stopped, or fails in one of the
ways of restarts.py that a restart cures; in the other half a process trains alone, is killed by a random signal, and started
again with --resume latest. Beside them one trains that nobody disturbs.

goodput   at least 95%: seconds of the steps whose results were kept / (elapsed seconds - those of start-up: from the launcher's
          decision, or a process's start, to its first step). A fault costs the steps since the last checkpoint, and the time until
          it is noticed. Start-up has the time that the launcher gives storage (15 to 30 s) and networks (5 s) to come back:
          `waited_seconds` of `startup_seconds`. goodput_of_all counts both as lost
growth    of the undisturbed process's memory from after its warm-up to the end: less than 1%. Of a restarted process,
          at the same number of steps after its start, and of the launcher, from the first restarts to the last: less
          than 10 MB, since a resumed run reads up to 8 MiB of its metrics
lost      restarts that did not resume from the newest checkpoint, steps that are missing or there twice, losses that the
          undisturbed process does not have

usage: soak.py [--minutes N] [--short]    --short: half a minute with a fault every few seconds, for CI; its limits are
                                          wider: half of the time is kept, memory grows by less than a fifth
"""
import argparse
import pathlib
import random
import signal
import statistics
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import common  # noqa: E402
from soak_runs import OneProcess, Ranks, Undisturbed  # noqa: E402

LEAST_GOODPUT, MOST_GROWTH, MOST_RESTART_GROWTH = 95.0, 1.0, 10.0  # percent, percent, MB
SHORT_GOODPUT, SHORT_GROWTH = 50.0, 20.0
KILL_GAP = (25, 90)  # seconds from a run's first step to the next kill
CHECKPOINT_GAP = 2.0  # about, in seconds


def checkpoint_freq(undisturbed):
    """As somebody would choose it on this machine, however busy that is: by how long steps take now."""
    times = [step["perf/step_seconds"] for step in undisturbed.newest_steps()]
    return max(1, min(100, round(CHECKPOINT_GAP / statistics.median(times))))


def soak(chain, seconds, gap, chance, whole):
    """Kills until the time is over. `whole`: (when all began, when all will end)."""
    deadline = time.monotonic() + seconds
    while True:
        moment = time.monotonic() + chance.uniform(*gap)
        if moment > deadline and chain.kills > 0:
            time.sleep(max(0, deadline - time.monotonic()))
            break
        time.sleep(max(0, moment - time.monotonic()))
        kind = chain.disturb(chance)
        life = chain.lives[-1]
        print(f"{time.monotonic() - whole[0]:6.0f} s, {max(0, whole[1] - time.monotonic()) / 60:.0f} min left: "
              f"{chain.name}, {kind}, fault {chain.kills}, checkpoint {chain.kept_before_kill[-1]}, continues with step "
              f"{life.first_step}, start-up {life.startup_seconds(0):.1f} s", flush=True)
    chain.stop()


def same_losses(chain, undisturbed):
    """How many steps both have, and the first that differs."""
    paths = [c.folder.path / "runs" / "run" / "metrics.jsonl" for c in (chain, undisturbed)]
    steps = [[r for r in common.read_records(path) if "train/loss" in r] for path in paths]
    together = min(map(len, steps))
    return together, common.record_difference(*(found[:together] for found in steps))


def report(chains, undisturbed, short):
    problems = [p for chain in (*chains, undisturbed) for p in chain.problems]
    kept = sum(chain.check_end() for chain in chains)
    problems += [p for chain in chains for p in chain.problems if p not in problems]
    elapsed = sum(chain.ended - chain.began for chain in chains)
    startup = sum(chain.startup_seconds() for chain in chains)
    goodput, of_all = 100 * kept / (elapsed - startup), 100 * kept / elapsed
    together, difference = same_losses(chains[1], undisturbed)
    problems += [f"alone and undisturbed: {difference}"] if difference else []
    growth, growth_unbacked = undisturbed.growth()
    restarts = [*(chain.growth_over_restarts() for chain in chains), chains[0].launcher_growth()]
    kills = sum(chain.kills for chain in chains)
    print("\n".join(problems) or "every restart resumed from the newest checkpoint, every step is there once")
    # Half a minute is warm-up all through, and a fault every few seconds loses more.
    limit, least = (SHORT_GROWTH, SHORT_GOODPUT) if short else (MOST_GROWTH, LEAST_GOODPUT)
    grown = max(growth, growth_unbacked) >= limit or max(restarts) >= MOST_RESTART_GROWTH
    print(f"tried={kills} survived={max(0, kills - len(problems))} lost={len(problems)} minutes={elapsed / 60:.1f} "
          f"faults={kills} kinds={len(set().union(*(chain.kinds for chain in chains)))} steps_kept={sum(chain.folder.newest() for chain in chains)} goodput_percent={goodput:.2f} "
          f"goodput_of_all_percent={of_all:.2f} startup_seconds={startup:.1f} waited_seconds={chains[0].waited:.1f} startups={sum(len(chain.lives) for chain in chains)} "
          f"memory_growth_percent={growth:.3f} unbacked_memory_growth_percent={growth_unbacked:.3f} "
          f"restart_memory_growth_mb={max(restarts[:2]):.2f} launcher_memory_growth_mb={restarts[2]:.2f} "
          f"memory_mb={undisturbed.samples[-1][1] / 1e6:.0f} "
          f"steps_same_as_undisturbed={together}")
    return not problems and not grown and goodput >= least


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--seed", type=int, default=10)
    options = parser.parse_args()
    common.require_files()
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # a shell ignores it for what it runs in the background, and it is inherited
    chance = random.Random(options.seed)
    gap = (2, 4) if options.short else KILL_GAP
    measured = 20 if options.short else 300
    seconds = 22 if options.short else 60 * options.minutes
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        common.prepare_data(work)
        undisturbed, chains = Undisturbed(work, checkpoint_freq=25, measured=measured), []
        try:
            undisturbed.start()
            began = time.monotonic()
            whole = began, began + seconds
            for kind, end in ((Ranks, began + seconds / 2), (OneProcess, began + seconds)):
                freq = 20 if options.short else checkpoint_freq(undisturbed)
                chains.append(kind(work, checkpoint_freq=freq, measured=measured))
                chains[-1].start()
                print(f"{chains[-1].name}: checkpoints every {freq} steps", flush=True)
                soak(chains[-1], end - time.monotonic(), gap, chance, whole)
            undisturbed.stop()
        finally:
            for chain in (*chains, undisturbed):
                chain.abandon()
        good = report(chains, undisturbed, options.short)
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
