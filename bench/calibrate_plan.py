#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# bench:
"""Fits the constants of src/plan/calibration.cpp to the published measurements, and again without each project.

Run by hand: bench/calibrate_plan.py [--rounds N]. Writes src/plan/calibration_table.inc (of all rows) and tests/conformance/plan_left_out.json
(the constants of each fit that did not see one project's rows, by which tests/conformance/plan_published.py judges that project). Coordinate
descent on the logarithm of each constant, within bounds that its meaning allows, pulled to its prior. The loss is the mean absolute
logarithm of forecast / published (each page and GPU weighs by the square root of its rows, so that one large table does not drown the
rest) plus the mean absolute error of FP8's speed-up over the exact pairs, and Transformer Engine's profile of GEMMs.
"""
import argparse
import json
import math
import os
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/conformance"))
import plan_rows  # noqa: E402

PULL = 0.0004
TABLE, LEFT_OUT = ROOT / "src/plan/calibration_table.inc", ROOT / "tests/conformance/plan_left_out.json"
# GeForce clocks itself above the data sheet's boost, 2.4 GHz of an RTX 5090, by up to a fifth: rtx.bf16 may pass 1.
# name: (prior, lower bound, upper bound, how sure the prior is: a deviation of its logarithm)
RATE, LOOSE = 0.15, 0.5
CONSTANTS = {
    "memory": (0.85, 0.7, 0.95, RATE), "ramp": (128, 32, 512, LOOSE), "network": (0.7, 0.2, 1, LOOSE), "nvlink": (0.7, 0.3, 0.9, LOOSE),
    "pcie": (0.6, 0.2, 0.9, LOOSE), "adapters": (1, 0.3, 4, LOOSE), "attention_ramp": (500, 50, 3000, LOOSE), "flash2": (0.6, 0.25, 1, LOOSE),
    "attention": (0.55, 0.3, 1, LOOSE), "attention_cut": (0.9, 0.4, 1.4, LOOSE), "fp8_share": (0.95, 0.7, 1.05, RATE),
    "ampere.bf16": (0.85, 0.35, 1.05, RATE), "hopper.bf16": (0.72, 0.35, 1.05, RATE), "blackwell.bf16": (0.67, 0.35, 1.05, RATE),
    "ada_server.bf16": (0.6, 0.35, 1.05, RATE), "rtx.bf16": (0.95, 0.35, 1.2, RATE), "blackwell_pro.bf16": (0.75, 0.35, 1.05, RATE),
    "native.passes": (0.9, 0.5, 6, LOOSE), "fused.passes": (1, 0.5, 6, LOOSE), "compiled.passes": (1, 0.5, 6, LOOSE),
    "xla.passes": (1, 0.5, 6, LOOSE), "eager.passes": (2.5, 0.5, 6, LOOSE), "foundry.passes": (2, 0.5, 6, LOOSE), "hf.passes": (2.5, 0.5, 6, LOOSE),
    "logits": (12, 4, 48, LOOSE), "quantize": (1.5, 0.3, 4, LOOSE), "host": (80, 5, 400, LOOSE), "overlap": (0.85, 0.2, 1, LOOSE),
    "contention": (0.1, 0.01, 1, LOOSE), "selective": (0.3, 0.02, 1, LOOSE)}


class Loss:
    """Of constants, over some rows."""

    def __init__(self, rows, layers, tool):
        self.rows, self.layers = rows, layers
        self.published = [float(row["tokens_per_s_per_gpu"]) for row in rows]
        group = [(row["source"], row["gpu"]) for row in rows]
        count = {name: group.count(name) for name in set(group)}
        self.weight = [0 if "pair_only" in row else 1 / math.sqrt(count[name]) for row, name in zip(rows, group)]
        self.pairs = plan_rows.exact_pairs(rows)
        self.tool = plan_rows.Tool(rows + [line for layer in layers for line in layer[1]], tool)

    def __call__(self, constants):
        answer = self.tool(constants)
        speed, seconds = answer[:len(self.rows)], answer[len(self.rows):]
        kernels = 0
        for _, lines, milliseconds in self.layers:
            kernels += abs(math.log(sum(seconds[:len(lines)]) * 1e3 / milliseconds)) / len(self.layers)
            seconds = seconds[len(lines):]
        error = sum(w * min(abs(math.log(a / b)), 1) for a, b, w in zip(speed, self.published, self.weight)) / sum(self.weight)
        gain = sum(abs(speed[low] / speed[high] - ratio) for high, low, ratio, _ in self.pairs) / max(1, len(self.pairs))
        pull = sum((math.log(value / CONSTANTS[name][0]) / CONSTANTS[name][3]) ** 2 for name, value in constants.items())
        return error + 0.5 * gain + 0.1 * kernels + PULL * pull


def fit(loss, rounds, constants):
    best = loss(constants)
    random.seed(1)
    sizes = {name: 0.2 for name in constants}
    for _ in range(rounds):
        names = list(constants)
        random.shuffle(names)
        for name in names:
            moved = False
            for factor in (math.exp(sizes[name]), math.exp(-sizes[name])):
                value = min(max(constants[name] * factor, CONSTANTS[name][1]), CONSTANTS[name][2])
                trial = dict(constants, **{name: value})
                found = loss(trial)
                if found < best - 1e-7:
                    best, constants, moved = found, trial, True
                    break
            sizes[name] = min(0.4, sizes[name] * 1.3) if moved else sizes[name] * 0.6
        if max(sizes.values()) < 1e-3:
            break
    loss.tool.close()
    return constants, best


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--tool", default=pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/plan_tool")
    arguments = parser.parse_args()
    assert len(CONSTANTS) <= 30
    rows = plan_rows.usable_rows(plan_rows.read("published.csv"))
    layers = plan_rows.profiled_layers()
    priors = {name: prior for name, (prior, _, _, _) in CONSTANTS.items()}
    constants, best = fit(Loss(rows, layers, arguments.tool), arguments.rounds, priors)
    print(f"all: rows={len(rows)} loss={best:.4f}", flush=True)
    rounded = {name: float(f"{value:.4g}") for name, value in sorted(constants.items())}
    lines = ["// Written by bench/calibrate_plan.py; do not edit.", f"// {len(rows)} rows, {len(plan_rows.exact_pairs(rows))} pairs."]
    TABLE.write_text("\n".join(lines + [f'{{"{name}", {value:.4g}}},' for name, value in rounded.items()]) + "\n")
    left_out = {}
    for project in sorted({plan_rows.project_of(row["source"]) for row in rows}):
        others = [row for row in rows if plan_rows.project_of(row["source"]) != project]
        kept = [layer for layer in layers if plan_rows.project_of(layer[0]) != project]
        found, best = fit(Loss(others, kept, arguments.tool), arguments.rounds, dict(priors))
        left_out[project] = {name: float(f"{value:.4g}") for name, value in sorted(found.items())}
        print(f"without {project}: rows={len(others)} loss={best:.4f}", flush=True)
        LEFT_OUT.write_text(json.dumps({"what": "Constants of src/plan/calibration.cpp fitted without one project's rows (bench/calibrate_plan.py).",
                                        "projects": left_out}, indent=1) + "\n")


main()
