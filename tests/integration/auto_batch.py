#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate="" alone
"""auto_batch_size under a limit of memory (memory_limit_gb) that lies between two sizes, on one rank and on two; and
memory that runs out in the middle of a run: one rank does the step again in passes of half the size, two are started again
by launch and continue so. In both the losses are those of a run that had the smaller passes from the start.

Last line: cases=N worst=X failed=0
"""
import json
import pathlib
import sys
import tempfile

import ranks
from ranks import Job

TARGET, STEPS, MOST = 16, 6, 1e-5
MODEL = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4}
KEYS = {"max_seq_length": 128, "mixed_precision": "fp32", "log_freq": 1}
failures = []


def check(name, holds, found=""):
    print(f"{'ok    ' if holds else 'FAILED'} {name} {found}", flush=True)
    if not holds:
        failures.append(name)


class Runs:
    def __init__(self, work):
        self.work = work
        ranks.prepared(work)
        self.model = ranks.write_model(work / "model", **MODEL)

    def run(self, name, count, launch_flags=(), **keys):
        job = Job(self.work / name, self.model, steps=STEPS, **(KEYS | keys))
        return job.finish(count, launch_flags=launch_flags)

    def peak(self, name, count, **keys):
        job = self.run(name, count, **keys)
        lines = (job.path / "runs" / "run" / "metrics.jsonl").read_text().splitlines()
        return max(json.loads(line).get("memory/peak_bytes", 0) for line in lines), job.losses()


def distance(losses, wanted):
    return max(abs(a - b) / b for a, b in zip(losses, wanted, strict=True))


def check_ranks(runs, count, mode):
    label = f"{count} rank(s)"
    share = TARGET // count
    keys = {"sharding_mode": mode} if count > 1 else {}
    half_peak, half = runs.peak(f"half-{count}", count, batch_size=share // 4, gradient_accumulation_steps=4, **keys)
    full_peak, _ = runs.peak(f"full-{count}", count, batch_size=share // 2, gradient_accumulation_steps=2, **keys)
    check(f"{label}: larger passes take more", full_peak > 1.2 * half_peak, f"{half_peak:.3g} {full_peak:.3g}")
    limit = (half_peak + full_peak) / 2 / 1e9

    found = runs.run(f"auto-{count}", count, auto_batch_size=True, target_effective_batch_size=TARGET,
                     memory_limit_gb=limit, **keys)
    batching = found.receipt()["batching"]
    check(f"{label}: auto_batch_size", batching["auto_batch_size"] == share // 4 and batching["trials"] > 1
          and batching["samples_per_step"] == TARGET and batching["halvings"] == 0, batching)
    far = distance(found.losses(), half)
    check(f"{label}: the same losses", far <= MOST, far)

    # The limit is found out by the first pass: one rank continues by itself, two when launch starts them again.
    broken = runs.run(f"broken-{count}", count, batch_size=share // 2, gradient_accumulation_steps=2, memory_limit_gb=limit,
                      launch_flags=("--max_restarts", "1"), **keys)
    batching = broken.receipt()["batching"]
    check(f"{label}: out of memory", batching["batch_size"] == share // 4 and batching["halvings"] == 1
          and batching["samples_per_step"] == TARGET and "out of memory" in broken.log(), batching)
    gone_on = distance(broken.losses()[-STEPS:], half)
    check(f"{label}: the same losses after it", gone_on <= MOST, gone_on)
    return max(far, gone_on)


def main():
    with tempfile.TemporaryDirectory(prefix="octavo-auto-") as folder:
        runs = Runs(pathlib.Path(folder))
        worst = max(check_ranks(runs, 1, "none"), check_ranks(runs, 2, "fsdp_full"))
    print(f"cases=2 worst={worst:.1e} failed={len(failures)}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
