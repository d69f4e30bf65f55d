#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=300 gate="" measures="src/kernels src/engine/own"
"""Our own CUDA kernels through the engine's CUDA path, on the fake CUDA device.

Told to compute, the device has the numbers of the kernels' host bodies: AdamW of every storage, three steps, bit for bit as
the reference, cross-entropy, FP8 statistics, norms with the residual and their gradients, rotary positions, and quantizers. Told not to, it counts: AdamW of Llama-3.1-8B with low-bit state in at most 4 launches (the
target of issue 24 is 100), without waiting. A build without nvcc has no such kernels; then nothing is shown, which is said.
"""
import os
import re
import subprocess
import sys

import fake_cuda
from common import BUILD

TOOL = BUILD / "bin" / "own_kernels_tool"
ONE_LAUNCH = ("norm", "norm_backward", "rope", "rope_pack", "weights", "quantize_sum")
MOST_LAUNCHES = {"adamw_8b_launches": 4, "cross_entropy_launches": 2, "fp8_stats_launches": 2} | {f"{name}_launches": 1 for name in ONE_LAUNCH}


def run(mode, compute):
    done = subprocess.run([TOOL, mode], capture_output=True, text=True, check=False,
                          env=fake_cuda.environment(compute=compute) | {"OMP_WAIT_POLICY": "passive"})
    print(done.stdout, end="")
    if done.returncode != 0:
        sys.exit(f"own_kernels_tool {mode} ended with {done.returncode}: {done.stderr[-2000:]}")
    if "skipped:" in done.stdout:
        print("skipped=1")
        sys.exit(1 if os.environ.get("CI") == "true" else 0)
    return {key: int(value) for key, value in re.findall(r"(\w+)=(\d+)", done.stdout)}


def main():
    fake_cuda.require_libraries()
    found = run("values", True) | run("launches", False)
    too_many = [key for key, most in MOST_LAUNCHES.items() if not 1 <= found[key] <= most]
    waits = sum(value for key, value in found.items() if key.endswith(("_waits", "_unexpected")))
    print(f"cases={found['cases']} failed={found['failed'] + len(too_many)} adamw_8b_launches={found['adamw_8b_launches']} "
          f"cross_entropy_launches={found['cross_entropy_launches']} fp8_stats_launches={found['fp8_stats_launches']} in_one_launch={sum(found[f'{name}_launches'] == 1 for name in ONE_LAUNCH)} waits={waits}")
    sys.exit(1 if too_many or waits or found["failed"] else 0)


if __name__ == "__main__":
    main()
