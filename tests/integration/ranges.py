#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate=""
"""The NVTX ranges of a training run, as a profiler gets them: a library that stands in for one (nvtx_recorder.cpp) writes
them down. They arrive, nest as step, pass, block and layer do, and each one ends on the thread on which it began; with
recomputation the blocks show in the backward pass too.

Last line: ranges=N failed=0
"""
import collections
import os
import pathlib
import subprocess
import sys
import tempfile

from common import BUILD, OCTAVO, ROOT

RECORDER = BUILD / "lib" / "libnvtx_recorder.so"
STEPS, LAYERS, MICRO_BATCHES = 3, 2, 2
failures = []


def check(name, holds, found=""):
    print(f"{'ok    ' if holds else 'FAILED'} {name} {found}", flush=True)
    if not holds:
        failures.append(name)


def train(work, *flags):
    """The paths (outer/inner/…) of all ranges of a run and how often each was there; whether they are balanced."""
    file = work / "ranges.txt"
    file.unlink(missing_ok=True)
    command = [OCTAVO, "train", "--model_name", "custom", "--n_layer", LAYERS, "--n_head", 2, "--n_embd", 32,
               "--max_seq_length", 16, "--batch_size", 2, "--tokenizer", "bytes", "--dataset", ROOT / "README.md",
               "--data_cache", work / "data", "--runs_dir", work / "runs", "--checkpoint_dir", work / "checkpoints",
               "--checkpoint_freq", 0, "--max_steps", STEPS, "--gradient_accumulation_steps", MICRO_BATCHES,
               "--eval_freq", STEPS, "--eval_batches", 2, "--device", "cpu", *flags]
    done = subprocess.run([str(word) for word in command], cwd=work, text=True, capture_output=True, check=False,
                          env=os.environ | {"NVTX_INJECTION64_PATH": str(RECORDER), "OCTAVO_RANGES": str(file),
                                            "OMP_WAIT_POLICY": "passive"})
    if done.returncode != 0:
        sys.exit(f"octavo train ended with {done.returncode}:\n{done.stderr[-2000:]}")
    open_ranges, paths, balanced = collections.defaultdict(list), collections.Counter(), True
    for line in file.read_text().splitlines() if file.exists() else []:
        kind, thread, name = line.split(" ", 2)
        if kind == "push":
            open_ranges[thread].append(name)
            paths["/".join(open_ranges[thread])] += 1
        elif open_ranges[thread]:
            open_ranges[thread].pop()
        else:
            balanced = False
    return paths, balanced and not any(open_ranges.values())


def check_names(paths, recomputed):
    for step in range(1, STEPS + 1):
        inside = {"read data": 1, "forward": MICRO_BATCHES, "backward": MICRO_BATCHES, "update": 1}
        for name, count in inside.items():
            check(f"step {step}/{name}", paths[f"step {step}/{name}"] == count, paths[f"step {step}/{name}"])
        for block in range(LAYERS):
            path = f"step {step}/forward/block {block}"
            layers = [f"{path}/h.{block}.{name}" for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj")]
            check(path, paths[path] == MICRO_BATCHES and all(paths[layer] == MICRO_BATCHES for layer in layers))
            # On the CPU autograd runs on the thread that asked for it.
            back = f"step {step}/backward/"
            again = paths[f"{back}block {block}"]
            check(f"{back}h.{block}.mlp.c_fc", paths[f"{back}h.{block}.mlp.c_fc"] == MICRO_BATCHES)
            check(f"{back}block {block}, recomputed: {recomputed}", again == (MICRO_BATCHES if recomputed else 0), again)
    check("evaluation/block 1", paths["evaluation/block 1"] == 2, paths["evaluation/block 1"])


def main():
    for path in (OCTAVO, RECORDER):
        if not path.exists():
            sys.exit(f"wanted {path}, found none; ninja octavo nvtx_recorder")
    total = 0
    with tempfile.TemporaryDirectory(prefix="octavo-ranges-") as folder:
        for recomputed in (False, True):
            paths, balanced = train(pathlib.Path(folder), "--gradient_checkpointing", str(recomputed).lower())
            check("balanced", balanced)
            check_names(paths, recomputed)
            total += sum(paths.values())
    print(f"ranges={total} failed={len(failures)}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
