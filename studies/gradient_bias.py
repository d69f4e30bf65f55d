#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# study:
"""Is FP8's error in the gradient noise, which averages out, or bias, which does not? No run has to be long for it, so chance
in training plays no part.

At five points of a BF16 run (the model and text of fp8_equivalence.py) the gradient is averaged over N = 16 to 1024 batches, the
same for all, in FP32, BF16 and by every recipe. e(N) is the distance to FP32's average over the same batches, relative to the
length of FP32's gradient over 1024 batches. If rounding were noise, e would fall as 1/sqrt(N); what does not fall is bias:
e(N)^2 = bias^2 + noise^2 / N, fitted for each weight matrix by least squares of e(N)^2 * N over N with neither below zero.

The gradient comes out of the program as it is: a step of N passes from the checkpoint with a learning rate that moves nothing,
no clipping; AdamW's first moment is then 1 - beta1 times the gradient. Before the N passes come
32 that are left out on every side (what a step of these alone gives is subtracted): `delayed` begins without a history, and
its scales find their size layer by layer.

A row for each matrix goes to results/gradient_bias.csv when a side is done at a checkpoint; it is not done again under the
same settings, so the study may be stopped and started at will.
Last line: checkpoints=N and for each side the median over matrices and checkpoints, and the worst: bias_…=… worst_…=…
"""
import argparse
import pathlib
import sys
import tempfile

import numpy as np
from safetensors.numpy import load_file

from fp8_equivalence import CHOSEN, RECIPES, TEXT, config_hash, settings_of, side_settings
from runs import OCTAVO, ROOT, Table, octavo

NAME = "gradient_bias"
BATCHES = (16, 64, 256, 1024)
BEFORE = 32  # passes that are left out
SIDES = ["bf16", *RECIPES]
POINTS = 5
BETA1 = 0.9
COLUMNS = ["step", "side", "matrix", *(f"e_{n}" for n in BATCHES), "config"]


def run(folder, given, name):
    flags = [word for key, value in given.items() for word in (f"--{key}", str(value))]
    code, said = octavo(folder, "train", *flags, "--run_name", name)
    if code != 0:
        sys.exit(f"{name}: octavo train ended with exit code {code}:\n{said[-2000:]}")
    return next(folder.glob(f"checkpoints*/{name}"))  # checkpoints, or checkpoints_fp8


def gradient(folder, settings, side, checkpoint, batches, cache):
    """{matrix: FP32 array}"""
    given = side_settings(settings, side) | {"dataset": TEXT, "data_cache": cache, "seed": 7, "init_from": checkpoint, "max_steps": 1, "warmup_steps": 0,
              "gradient_accumulation_steps": batches, "learning_rate": 1e-12, "weight_decay": 0, "max_grad_norm": 0,
              "beta1": BETA1, "eval_freq": 0, "log_freq": 1}
    made = run(folder, given, f"{side}-{checkpoint.name}-{batches}")
    moments = load_file(made / "step-00000001" / "optimizer.safetensors")
    return {name[2:]: value / (1 - BETA1) for name, value in moments.items()
            if name.startswith("m.h.") and value.ndim == 2}


def gradients(folder, settings, side, checkpoint, cache):
    """{N: {matrix: average over N passes behind the first ones}}"""
    before = gradient(folder, settings, side, checkpoint, BEFORE, cache)
    whole = {n: gradient(folder, settings, side, checkpoint, BEFORE + n, cache) for n in BATCHES}
    return {n: {name: ((BEFORE + n) * value - BEFORE * before[name]) / n for name, value in found.items()} for n, found in whole.items()}


def fit(errors):
    """(bias, noise) of e(N)^2 = bias^2 + noise^2 / N."""
    n, squares = np.array(BATCHES, float), np.array(errors) ** 2
    a = np.stack([n, np.ones_like(n)], axis=1)  # e^2 N = bias^2 N + noise^2
    (bias, noise), *_ = np.linalg.lstsq(a, squares * n, rcond=None)
    if noise < 0:
        bias, noise = float((squares * n) @ n / (n @ n)), 0.0
    if bias < 0:
        bias, noise = 0.0, float((squares * n).mean())
    return bias ** 0.5, noise ** 0.5


def measure(folder, settings, checkpoint, sides, cache, table, config):
    step = int(checkpoint.name.partition("-")[2])
    exact = gradients(folder, settings, "fp32", checkpoint, cache)
    lengths = {name: np.linalg.norm(value) for name, value in exact[BATCHES[-1]].items()}
    for side in sides:
        found = gradients(folder, settings, side, checkpoint, cache)
        table.add(*([step, side, name, *(repr(float(np.linalg.norm(found[n][name] - exact[n][name]) / length)) for n in BATCHES), config]
                    for name, length in lengths.items()))
        print(f"step {step} {side}: done", flush=True)


def report(options, rows):
    steps = sorted({int(row["step"]) for row in rows})
    fits = {side: [(*fit([float(row[f"e_{n}"]) for n in BATCHES]), row) for row in rows if row["side"] == side] for side in SIDES}
    lines = ["# Noise and bias of the gradient", "", f"Written by `studies/{NAME}.py`; every matrix is in `{NAME}.csv`.", "",
             f"At steps {', '.join(map(str, steps))} of a BF16 run; in percent of the length of FP32's gradient over {BATCHES[-1]} batches.", "",
             f"| side | e({BATCHES[0]}) | e({BATCHES[-1]}) | bias, median of matrices | bias, worst | worst matrix |", "|---|---|---|---|---|---|"]
    figures = []
    for side, found in fits.items():
        if not found:
            continue
        bias, worst = float(np.median([each[0] for each in found])), max(found, key=lambda each: each[0])
        first, last = (100 * np.median([float(row[f"e_{n}"]) for _, _, row in found]) for n in (BATCHES[0], BATCHES[-1]))
        lines.append(f"| {side} | {first:.2f}% | {last:.2f}% | {100 * bias:.2f}% | {100 * worst[0]:.2f}% | "
                     f"{worst[2]['matrix']}, step {worst[2]['step']} |")
        figures.append(f"bias_{side}={100 * bias:.2f}% worst_{side}={100 * worst[0]:.2f}%")
    (options.results / f"{NAME}.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))
    print(f"checkpoints={len(steps)}", *figures)
    return 0 if len(steps) == POINTS and all(fits.values()) else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "studies/results", help="folder for table, CSV")
    parser.add_argument("--report_only", action="store_true", help="run nothing")
    options = parser.parse_args()
    if not OCTAVO.exists() or not TEXT.exists():
        sys.exit(f"wanted {OCTAVO} and {TEXT}; build octavo, or set OCTAVO_TEST_DATA")
    settings = settings_of(CHOSEN)
    config = config_hash(settings, BATCHES, BEFORE, POINTS)
    table = Table(options.results / f"{NAME}.csv", COLUMNS)
    if not options.report_only:
        with tempfile.TemporaryDirectory(prefix="octavo-study-") as name:
            folder = pathlib.Path(name)
            given = {**side_settings(settings, "bf16"), "dataset": TEXT, "data_cache": folder / "data", "seed": 1,
                     "checkpoint_freq": settings["max_steps"] // POINTS, "keep_checkpoints": POINTS}
            made = sorted(path for path in run(folder, given, "base").glob("step-*"))
            # The ends first, so that a study that was cut short still has a range.
            for checkpoint in [made[-1], made[0], *made[1:-1]]:
                there = {row["side"] for row in table.rows() if row["config"] == config and int(row["step"]) == int(checkpoint.name[5:])}
                if left := [side for side in SIDES if side not in there]:
                    measure(folder, settings, checkpoint, left, folder / "data", table, config)
    return report(options, [row for row in table.rows() if row["config"] == config])


if __name__ == "__main__":
    sys.exit(main())
