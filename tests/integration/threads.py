#!/usr/bin/env python3
# test: label=integration timeout=300 gate="" night=""
"""How many threads a run computes with and how they wait: what its line says, and what libgomp itself says that it read.

OMP_DISPLAY_ENV makes libgomp print its settings when it is loaded; that is the oracle for the time of spinning. The number of threads is
compared with the affinity mask that this script gives the run, and with a control group's quota where one can be made (as root).
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import common
from common import OCTAVO

TRAIN = ("train --dataset text.txt --model_name custom --n_layer 1 --n_head 2 --n_embd 32 --tokenizer bytes --batch_size 2 "
         "--max_seq_length 32 --max_steps 1 --warmup_steps 0 --eval_freq 0 --checkpoint_freq 0").split()
LIBGOMP_SPINS = 300000  # its own number
OURS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS")
SLEEPS = "a waiting thread sleeps after 50 µs"
CPUS = sorted(os.sched_getaffinity(0))
FAILED, RUNS = [], []


def check(good, what):
    if not good:
        FAILED.append(what)
        print(f"  WRONG: {what}")


def run(folder, name, *words, variables=None, before=None):
    """What a run printed; `before` is called in its process before it starts."""
    clean = {key: value for key, value in os.environ.items() if key not in OURS}
    done = subprocess.run([OCTAVO, *words, "--run_name", name], cwd=folder, text=True, errors="replace", timeout=120,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, preexec_fn=before,
                          env=clean | {"OMP_DISPLAY_ENV": "verbose"} | (variables or {}))
    RUNS.append(name)
    check(done.returncode == 0, f"{name}: exit code {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout


def threads_line(text):
    """(count, the rest of the line)."""
    match = re.search(r"^info: threads: (\d+) (.*)$", text, re.M)
    return (int(match[1]), match[2]) if match else (0, "no such line")


def spins(text):
    """What libgomp says that it read."""
    found = re.findall(r"GOMP_SPINCOUNT = '(\d+)'", text)
    return [int(word) for word in found]


def expect(text, what, count, words):
    found = threads_line(text)
    check(found[0] == count and words in found[1], f"{what}: wanted {count} threads and '{words}', found {found}")


def by_itself(folder):
    text = run(folder, "alone", *TRAIN)
    count, words = threads_line(text)
    check(1 <= count <= len(CPUS) and words.startswith("for ") and "physical core" in words and words.endswith(SLEEPS),
          f"by itself: found {count, words}")
    check(len(spins(text)) == 1 and 100 <= spins(text)[0] < LIBGOMP_SPINS, f"libgomp read {spins(text)}")
    return count


def as_the_user_says(folder):
    text = run(folder, "count", *TRAIN, variables={"GOMP_SPINCOUNT": "777"})
    check(spins(text) == [777] and "threads wait as GOMP_SPINCOUNT=777 says" in text, f"GOMP_SPINCOUNT: {spins(text)}")
    text = run(folder, "passive", *TRAIN, variables={"OMP_WAIT_POLICY": "passive"})
    check(spins(text) == [0] and "threads wait as OMP_WAIT_POLICY=passive says" in text, f"OMP_WAIT_POLICY: {spins(text)}")
    expect(run(folder, "variable", *TRAIN, variables={"OMP_NUM_THREADS": "3"}), "variable", 3, "as OMP_NUM_THREADS=3 says (found ")
    expect(run(folder, "key", *TRAIN, "--num_threads", "1", variables={"OMP_NUM_THREADS": "3"}), "key", 1, "as num_threads says (found ")


def on_one_cpu(folder):
    text = run(folder, "affinity", *TRAIN, before=lambda: os.sched_setaffinity(0, CPUS[:1]))
    expect(text, "affinity", 1, "for 1 of " if len(CPUS) > 1 else "for 1 physical core")


def ranks(folder, alone):
    text = run(folder, "ranks", "launch", "--nproc", "2", "--", *TRAIN)
    expect(text, "two ranks", max(1, alone // 2), ", 2 ranks on this node; " + SLEEPS)
    check(len(spins(text)) == 2 and max(spins(text)) < LIBGOMP_SPINS, f"two ranks: libgomp read {spins(text)}")


def quota(folder):
    """A quota of one CPU; False where no control group can be made."""
    for parent, name, value in (("/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "100000"), ("/sys/fs/cgroup", "cpu.max", "100000 100000")):
        group = pathlib.Path(parent) / f"octavo-threads-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / name).write_text(value)
            text = run(folder, "quota", *TRAIN, before=lambda: (group / "cgroup.procs").write_text(str(os.getpid())))
            expect(text, "quota", 1, "CPU quota 1; ")
            return True
        except OSError:
            continue
        finally:
            group.rmdir()
    return False


def main():
    common.require_files()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_text(common.TEXT.read_text()[:20000])
        alone = by_itself(folder)
        as_the_user_says(folder)
        on_one_cpu(folder)
        ranks(folder, alone)
        limited = quota(folder)
    print(f"runs={len(RUNS)} failed={len(FAILED)} threads={alone} quota={'tested' if limited else 'not_possible_here'}")
    sys.exit(1 if FAILED else 0)


if __name__ == "__main__":
    main()
