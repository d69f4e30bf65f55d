#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=300 gate="" measures="src/checkpoint src/fake_cuda"
"""Saves of a GPU's tensors while training goes on, on the fake CUDA device: they pass through pinned memory; an update that comes
before the disk is done queues copies and does not wait for the device; a thread that reads while the step runs has a stream of its
own, which waits for what was queued when the save began. And the file has the numbers of that time.

Last line: cases=N failed=0
"""
import json
import subprocess
import sys
import tempfile

import fake_cuda
from common import BUILD

TOOL = BUILD / "bin" / "gpu_save_tool"
BYTES = 4 * 20 << 20
failures = []


def check(name, holds, found=""):
    print(f"{'ok    ' if holds else 'FAILED'} {name} {found}", flush=True)
    if not holds:
        failures.append(name)


def main():
    fake_cuda.require_libraries()
    if not TOOL.exists():
        sys.exit(f"wanted {TOOL}, found none; ninja gpu_save_tool")
    with tempfile.TemporaryDirectory(prefix="octavo-gpu-save-") as folder:
        done = subprocess.run([TOOL, folder], text=True, capture_output=True, check=False, env=fake_cuda.environment(compute=True))
    if done.returncode != 0:
        sys.exit(f"gpu_save_tool ended with {done.returncode}: {done.stderr[-2000:]}")
    cases = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    for case in cases:
        name, save = case["case"], case["save"]
        check(f"{name}: it was saved, as it was at the start", case["saved"] and case["right"])
        check(f"{name}: every byte is read once", save["bytes"] == BYTES, save["bytes"])
        pageable = case.get("until_update", save)["pageable"]  # by then all was read or queued
        check(f"{name}: into pinned memory", pageable == 0, pageable)
        own = [stream for stream in save["streams"] if not stream["default"]]
        if name == "secured":
            before = case["until_update"]
            check(f"{name}: all was queued before the update", case["copied"] == BYTES and before["bytes"] == BYTES, before["bytes"])
            check(f"{name}: nobody waited for the device", before["waits"] == 0, before["waits"])
            check(f"{name}: in the order of training's own stream", not own, save["streams"])
        else:
            check(f"{name}: what was not copied is read on another stream, after what was queued", [stream["told"] for stream in own] == [True],
                  save["streams"])
    check("half: a part was copied, a part waited for", 0 < cases[1]["copied"] < BYTES, cases[1]["copied"])
    print(f"cases={len(cases)} failed={len(failures)}")
    sys.exit(1 if failures or len(cases) != 3 else 0)


if __name__ == "__main__":
    main()
