#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# study:
"""Does it hurt to reduce gradients in BF16? A small GPT-2 on the repository's own text on four ranks: the same weights and batches,
gradients reduced in FP32 and in BF16, for several seeds, in BF16 and in FP8 training.

The gap of the final validation loss to FP32's of the same seed, in percent, with the 95% interval of a paired t test; fails when an
interval does not lie below 1%. Writes results/grad_reduce.md.

usage: grad_reduce.py [--seeds 5] [--steps 200] [--ranks 4]
"""
import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

from runs import OCTAVO, ROOT, t_quantile

TABLE = ROOT / "studies" / "results" / "grad_reduce.md"
MOST_PERCENT = 1
PRECISIONS = {"bf16": ("--mixed_precision", "bf16"), "FP8, delayed": ("--use_fp8",)}
CONFIG = f"""
model_name: custom
n_layer: 2
n_head: 2
n_embd: 128
max_seq_length: 128
batch_size: 4
dataset: [{ROOT / "docs"}]
learning_rate: 1e-3
warmup_steps: 20
eval_batches: 20
log_freq: 50
"""


def validation_loss(folder, name, words, options, reduced, seed):
    command = [OCTAVO, "launch", "--nproc", str(options.ranks), "--", "train", "study.yaml", *words, "--grad_reduce_dtype", reduced, "--seed",
               str(seed), "--max_steps", str(options.steps), "--eval_freq", str(options.steps), "--run_name", name]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=os.environ | {"OMP_WAIT_POLICY": "passive"})
    records = [json.loads(line) for line in (folder / "runs" / name / "metrics.jsonl").read_text().splitlines()]
    return [record["val/loss"] for record in records if "val/loss" in record][-1]


def main():
    parser = argparse.ArgumentParser()
    for name, default in (("seeds", 5), ("steps", 200), ("ranks", 4)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    rows, worst = [], 0.0
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "study.yaml").write_text(CONFIG)
        for precision, words in PRECISIONS.items():
            gaps = []
            for seed in range(options.seeds):
                fp32, bf16 = (validation_loss(folder, f"{precision[:4]}-{seed}-{reduced}", words, options, reduced, seed)
                              for reduced in ("fp32", "bf16"))
                gaps.append(100 * (bf16 / fp32 - 1))
                print(f"{precision}, seed {seed}: {fp32:.6f} reduced in FP32, {bf16:.6f} in BF16: {gaps[-1]:+.3f}%", flush=True)
            half = t_quantile(len(gaps) - 1) * np.std(gaps, ddof=1) / len(gaps) ** 0.5
            rows.append((precision, np.mean(gaps), half, len(gaps)))
            worst = max(worst, np.mean(gaps) + half)
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    lines = [f"`studies/grad_reduce.py --seeds {options.seeds} --steps {options.steps} --ranks {options.ranks}`, {datetime.date.today()}, {commit}, "
             f"{os.cpu_count()} cores. Final validation loss with gradients reduced in BF16 against FP32:", "",
             "| training | gap, % | 95% interval | seeds |", "|---|---|---|---|"]
    lines += [f"| {precision} | {mean:+.3f} | {mean - half:+.3f} to {mean + half:+.3f} | {seeds} |" for precision, mean, half, seeds in rows]
    TABLE.write_text("\n".join(lines) + "\n")
    print(" ".join(f"gap_{'fp8' if 'FP8' in precision else 'bf16'}={mean:.3f} half_{'fp8' if 'FP8' in precision else 'bf16'}={half:.3f}"
                   for precision, mean, half, _ in rows), f"ranks={options.ranks} seeds={options.seeds} worst={worst:.3f}")
    sys.exit(1 if worst > MOST_PERCENT else 0)


if __name__ == "__main__":
    main()
