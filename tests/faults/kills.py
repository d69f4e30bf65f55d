#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=faults timeout=600 gate="--short"
"""200 kill -9 at random points, at least 80 of them inside a save; the last line has the results.

Runs in BF16 and in FP8 (delayed), of one process and of two ranks, are killed up to ten times each and continue each time:
with --resume latest, or as `octavo launch` starts ranks again. After every kill all checkpoints are whole; at the end
the records and the final tensors are those of a run that was left alone, bit for bit.
A kill was inside a save when it left something of the save behind: a temporary folder or link, a folder half deleted.

usage: kills.py [--short]    --short: 12 kills of two kinds of runs, for CI
"""
import argparse
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import common  # noqa: E402
from rank_runs import Launched, seconds_until_gone  # noqa: E402

STEPS, KILLS_OF_A_RUN = 60, 10
MOST_TIMES_WANTED = 3  # kills or runs: the wanted kills inside a save do not come
PATIENCE = 60  # seconds for the next checkpoint, for an end
SAVE_SECONDS = 0.03  # about
CONFIG = f"""
model_name: custom
n_layer: 2
n_head: 2
n_embd: 128
max_seq_length: 32
batch_size: 2
max_steps: {STEPS}
learning_rate: 3e-3
eval_freq: 30
eval_batches: 1
checkpoint_freq: 2
keep_checkpoints: 2
num_threads: 1
run_name: run
"""
FP8 = "mixed_precision: fp8\nfp8_recipe: delayed\nfp8_amax_history: 16\nfp8_stats_freq: 7\n"
# Of two ranks one kind saves on the first, the other on both.
KINDS = {"bf16": (1, ""), "fp8_two_ranks": (2, FP8 + "sharding_mode: zero1\n"),
         "fp8": (1, FP8), "bf16_two_ranks": (2, "sharding_mode: ddp\n")}


class Killed(common.Folder):
    """A run's folder, and what was found in it after kills."""

    def __init__(self, path, kind):
        self.ranks, extra = KINDS[kind]
        super().__init__(path, CONFIG + extra, "checkpoints_fp8" if FP8 in extra else "checkpoints")
        self.kills = self.in_save = self.unloadable = 0
        self.running, self.left, self.killed = None, set(), ""
        self.gave_up = 0  # launchers that ended though only a rank was killed

    def leavings(self):
        """With inodes: what an earlier kill left is not counted again."""
        if not self.checkpoints.exists():
            return set()
        return {(e.name, e.inode()) for e in os.scandir(self.checkpoints) if e.name.startswith(common.LEFT_BY_A_SAVE)}

    def begin(self):
        if self.ranks > 1:
            self.running = Launched(self, ("--nproc", str(self.ranks), "--max_restarts", "100", "--auto_resume"))
        else:
            self.running = self.start(*self.again(), "--log_freq", "1000")

    def process(self):
        return self.running.process if self.ranks > 1 else self.running

    def is_over(self):
        return self.process().poll() is not None

    def begin_again(self):
        """After an end that was no success. Of a launcher it is one only when everything was killed."""
        self.gave_up += self.killed.startswith("rank")
        self.begin()

    def wait_for(self, what):
        """Until it is so; False when the run was over before."""
        deadline = time.monotonic() + PATIENCE
        while not what():
            if self.is_over():
                return False
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.path.name}: no progress in {PATIENCE} s:\n{self.said()}")
            time.sleep(0.0005)
        return True

    def wait_for_moment(self, chance):
        """A random one: soon after the start, between saves, or inside one. False when the run was over before."""
        how = chance.random()
        if how < 0.15:
            time.sleep(chance.uniform(0, 1))
            return not self.is_over()
        before = self.newest()
        if not self.wait_for(lambda: self.newest() > before):
            return False
        if how < 0.35:
            time.sleep(chance.uniform(0, 0.2))
            return not self.is_over()
        if not self.wait_for(lambda: self.leavings() - self.left):
            return False
        time.sleep(chance.uniform(0, SAVE_SECONDS))
        return not self.is_over()

    def kill(self, chance):
        """One process, or everything at once. Returns what was killed; "" when the run was over."""
        if self.ranks == 1:
            self.running.kill()
            self.running.communicate()
            return "process" if self.running.returncode == -signal.SIGKILL else ""
        pids = self.running.ranks()
        if len(pids) == self.ranks and chance.random() < 0.5:
            victim = chance.randrange(self.ranks)
            try:
                os.kill(pids[victim], signal.SIGKILL)
            except ProcessLookupError:
                return ""
            seconds_until_gone(pids.values(), PATIENCE)
            return f"rank {victim}"
        if self.is_over():
            return ""
        self.running.end()
        return "all"

    def look(self, at_rest):
        """What the last kill left. Not `at_rest`: a launcher is about to start ranks that tidy up and save."""
        left = self.leavings()
        inside, self.left = bool(left - self.left), left
        self.in_save += inside
        problem = self.unsound() if at_rest else ""
        if problem:
            self.unloadable += 1
            print(problem)
        return inside

    def logs(self):
        """Of all starts, whole, by the names of their files."""
        paths = [p for pattern in ("stderr.txt", "launch-*", "logs/*") for p in sorted(self.path.glob(pattern))]
        return {p.name: p.read_text(errors="replace") for p in paths}

    def said(self):
        return "\n".join(f"{name}: {text[-3000:]}" for name, text in self.logs().items())

    def finish_running(self):
        """To the end. Returns the exit code."""
        if self.running is None:
            self.begin()
        elif self.is_over() and self.process().returncode != 0:
            self.begin_again()
        try:
            if self.ranks == 1:
                self.running.communicate(timeout=PATIENCE)
            return self.process().wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            return None

    def abandon(self):
        if self.running is not None and not self.is_over():
            self.running.kill() if self.ranks == 1 else self.running.end()


def disturb(folder, most, chance):
    """Kills it until it was killed often enough or came to its end."""
    folder.begin()
    while folder.kills < most:
        if folder.is_over():
            if folder.process().returncode == 0:
                return
            folder.begin_again()
        if not folder.wait_for_moment(chance):
            continue
        at = folder.newest()
        what = folder.kill(chance)
        if not what:
            continue
        folder.kills, folder.killed = folder.kills + 1, what
        inside = folder.look(at_rest=what in ("process", "all"))
        print(f"  {folder.path.name}: kill {folder.kills} of {what} after the checkpoint of step {at}"
              f"{', in a save' if inside else ''}", flush=True)


def differences(folder, reference):
    found = [common.record_difference(folder.records(), reference.records())]
    mine, wanted = folder.tensors(STEPS), reference.tensors(STEPS)
    found += [f"{name} differs" for name in sorted(mine.keys() | wanted.keys()) if mine.get(name) != wanted.get(name)]
    return list(filter(None, [*found, "" if wanted else "the run left alone has no final checkpoint"]))


def left_alone(work, kind):
    folder = Killed(work / f"{kind}-left-alone", kind)
    folder.begin()
    code = folder.finish_running()
    if code != 0:
        folder.abandon()
        sys.exit(f"{kind}: the run left alone ended with exit code {code}:\n{folder.said()}")
    return folder


def killed_run(work, name, kind, most, chance, reference):
    """Returns kills, those inside a save, checkpoints that did not load, and what differs at the end."""
    folder = Killed(work / name, kind)
    try:
        disturb(folder, most, chance)
        code = folder.finish_running()
        found = differences(folder, reference) if code == 0 else [f"it ended with exit code {code}"]
        found += [f"the launcher gave up {folder.gave_up} times"] if folder.gave_up else []
        # After a rank's kill nothing else looks at checkpoints: the launcher has started ranks again.
        folder.unloadable += sum("CHECKPOINT NOT USABLE" in text for text in folder.logs().values())
    finally:
        folder.abandon()
    print(f"{name}: kills {folder.kills}, in a save {folder.in_save}; {'; '.join(found) or 'same'}", flush=True)
    if found or folder.unloadable:
        print(folder.said())
    return folder.kills, folder.in_save, folder.unloadable, bool(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=10)
    options = parser.parse_args()
    common.require_files()
    chance = random.Random(options.seed)
    wanted, wanted_in_save, kinds = (12, 3, list(KINDS)[:2]) if options.short else (options.kills,
                                                                                 options.kills * 2 // 5, list(KINDS))
    kills = in_save = unloadable = lost = run = 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        common.prepare_data(work)
        references = {kind: left_alone(work, kind) for kind in kinds}
        while (kills < wanted or in_save < wanted_in_save) and max(kills, run) < MOST_TIMES_WANTED * wanted:
            kind = kinds[run % len(kinds)]
            most = min(KILLS_OF_A_RUN, -(-wanted // len(kinds)), max(1, wanted - kills))
            of_run = killed_run(work, f"{kind}-{run}", kind, most, chance, references[kind])
            kills, in_save, unloadable = kills + of_run[0], in_save + of_run[1], unloadable + of_run[2]
            lost += of_run[0] if of_run[2] or of_run[3] else 0
            run += 1
            elapsed = time.monotonic() - began
            left = elapsed / max(1, kills) * max(0, wanted - kills)
            print(f"{kills} of {wanted} kills, {elapsed:.0f} s, about {left:.0f} s left", flush=True)
    print(f"tried={kills} survived={kills - lost} lost={lost} kill_in_save={in_save} unloadable={unloadable} "
          f"runs={run} kinds={','.join(kinds)} seconds={time.monotonic() - began:.0f}")
    if kills < wanted or in_save < wanted_in_save:
        sys.exit(f"wanted {wanted} kills and {wanted_in_save} of them in a save")
    sys.exit(1 if lost or unloadable else 0)


if __name__ == "__main__":
    main()
