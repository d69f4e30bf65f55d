#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=1800 gate="--short" night=""
"""No byte crosses the host's network inside a step, in any mode: two ranks and four on fake CUDA devices, alone in a network
namespace of their own, whose interfaces count every byte that anybody sends.

Nothing else says anything either: neither octavo nor libtorch polls the store.

Counted from the end of a rank's first step to the end of its last: by the kernel (/proc/net/dev), and by the world itself
(collectives in the ranks' memory, from the first step on). What ranks say to each other between steps is not part of it:
evaluations, checkpoints, the agreement on the end.

usage: no_host_collective.py [--short]    --short: two modes
Last line: cases=N steps=N host_collectives=0 host_bytes=0 failed=0
"""
import os
import pathlib
import subprocess
import sys
import tempfile

IN_NAMESPACE = "OCTAVO_TEST_OWN_NETWORK"


def enter_network():
    """Starts this script again in a network of its own, where nobody else sends."""
    me = [sys.executable, __file__, *sys.argv[1:]]
    inside = "ip link set lo up && exec \"$@\""
    done = subprocess.run(["unshare", "--net", *([] if os.geteuid() == 0 else ["--map-root-user"]), "sh", "-c", inside, "sh", *me],
                          env=os.environ | {IN_NAMESPACE: "1"}, check=False)
    sys.exit(done.returncode)


if os.environ.get(IN_NAMESPACE) != "1":
    enter_network()

import fake_cuda  # noqa: E402
import nccl_calls  # noqa: E402
import ranks  # noqa: E402
from common import TEXT, octavo  # noqa: E402

STEPS = 6
MIXTURE = ["--dataset_weights", "0.7,0.3"]  # the losses of its sources ride on the loss
CASES = [("ddp", 2, "bf16", []), ("fsdp_full", 2, "fp8", []), ("zero1", 2, "bf16", ["--gradient_accumulation_steps", 2]),
         ("zero2", 2, "fp8", []), ("hybrid", 4, "bf16", []), ("ddp", 4, "fp8", ["--gradient_checkpointing", "true"]),
         ("fsdp_full", 4, "fp8", ["--fp8_recipe", "current"]), ("fsdp_full", 2, "bf16", ["--penalty_weight", 0.001]),
         ("ddp", 2, "bf16", [*MIXTURE, "--gradient_accumulation_steps", 2]), ("fsdp_full", 2, "fp8", MIXTURE)]


def main():
    fake_cuda.require_libraries()
    # c10d's monitor over NCCL asks the store as often as this says, in milliseconds; once a second these steps would not show.
    os.environ["TORCH_NCCL_COORD_CHECK_MILSEC"] = "5"
    cases = CASES[:2] if "--short" in sys.argv else CASES
    steps = collectives = sent = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        model = ranks.prepared(work)
        (work / "other.txt").write_text(TEXT.read_text()[:40_000])
        octavo(work, "data", "prepare", "other.txt", "--output", "other")
        for mode, count, precision, more in cases:
            flags = nccl_calls.train_flags(work, model, "--batch_size", 4, "--max_seq_length", 32, "--sharding_mode", mode,
                                           "--max_steps", 20, "--mixed_precision", precision, *more)
            if MIXTURE[0] in more:
                flags[flags.index("--dataset") + 1] = f"{work / 'data'},{work / 'other'}"
            found = nccl_calls.run_ranks(work, flags, count, STEPS)
            before = (steps, collectives, sent)
            collectives += sum(sum(rank["on_host"]) for rank in found)
            # A rank that is through says so to the others while they still count. The one that was through first heard
            # nobody; were there a collective inside a step, it would have been there too.
            sent += min(rank["host_bytes"][-1] - rank["host_bytes"][0] for rank in found)
            steps += STEPS
            good = (collectives, sent) == before[1:]
            failed += not good
            print(f"{'ok    ' if good else 'FAILED'} {mode}, {count} ranks, {precision} {' '.join(map(str, more))}: "
                  f"{collectives - before[1]} collectives, {sent - before[2]} bytes", flush=True)
    print(f"cases={len(cases)} steps={steps} host_collectives={collectives} host_bytes={sent} failed={failed}")
    sys.exit(failed > 0)


main()
