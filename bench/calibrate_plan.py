#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# bench:
"""Fits the constants of src/plan/calibration.cpp to the published measurements of the calibration sources.

Run by hand: bench/calibrate_plan.py [--rounds N]. Writes src/plan/calibration_table.inc. Coordinate descent on the logarithm
of each constant, within bounds that its meaning allows. The loss is the mean absolute logarithm of forecast / published
(each page and GPU weighs by the square root of its rows, so that one large table does not drown the rest) plus the mean
absolute error of FP8's speed-up over the exact pairs. Held-out sources are never read.
"""
import argparse
import math
import os
import pathlib
import random
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/conformance"))
import plan_rows  # noqa: E402

PULL = 0.0004
# name: (first value, lower bound, upper bound)
CONSTANTS = {"memory": (0.85, 0.7, 0.95), "ramp": (128, 32, 512), "network": (0.7, 0.2, 1),
             "nvlink": (0.7, 0.3, 0.9), "pcie": (0.6, 0.2, 0.9), "adapters": (1, 0.3, 4), "attention_ramp": (500, 50, 3000), "flash2": (0.6, 0.25, 1)}
for family, bf16, fp8, attention in (("ampere", 0.85, 0, 0.55), ("hopper", 0.72, 0.68, 0.45), ("hopper_500w", 0.6, 0.55, 0.4),
                                     ("blackwell", 0.67, 0.63, 0.5), ("blackwell_ultra", 0.67, 0.63, 0.6), ("ada_server", 0.6, 0.45, 0.4), ("ada", 0.95, 0.9, 0.6),
                                     ("blackwell_rtx", 0.95, 0.9, 0.6), ("blackwell_pro", 0.75, 0.65, 0.5)):
    CONSTANTS[f"{family}.bf16"] = (bf16, 0.35, 1.05)
    if fp8:
        CONSTANTS[f"{family}.fp8"] = (fp8, 0.3, 1.05)
    CONSTANTS[f"{family}.attention"] = (attention, 0.15, 0.8)
for stack, passes, logits, host, overlap, selective in (
        ("foundry", 2, 24, 200, 0.8, 0.5), ("native", 0.9, 8, 10, 0.9, 0.5), ("compiled", 1, 16, 100, 0.85, 0.4),
        ("eager", 2.5, 30, 300, 0.8, 0.5), ("fused", 1, 12, 100, 0.9, 0.1), ("hf", 2.5, 30, 350, 0.6, 0.5),
        ("xla", 1, 16, 50, 0.7, 0.5)):
    CONSTANTS[f"{stack}.passes"] = (passes, 0.5, 5)
    CONSTANTS[f"{stack}.logits"] = (logits, 4, 48)
    CONSTANTS[f"{stack}.host"] = (host, 2, 1500)
    CONSTANTS[f"{stack}.step"] = (5, 0.1, 200)
    CONSTANTS[f"{stack}.overlap"] = (overlap, 0.2, 1)
    CONSTANTS[f"{stack}.selective"] = (selective, 0.02, 1)
    CONSTANTS[f"{stack}.contention"] = (0.1, 0.01, 1)
    CONSTANTS[f"{stack}.quantize"] = (1.5 if stack != "native" else 1, 0.3, 4)
    CONSTANTS[f"{stack}.attention"] = (1, 0.4, 1.5)


def cross_check(rows, constants, arguments):
    """How well calibration pages are forecast by a fit that did not see them: what --pull was chosen by."""
    speed = plan_rows.Tool(rows, arguments.tool)(constants)
    place = {row["id"]: index for index, row in enumerate(rows)}
    errors = [abs(a / float(row["tokens_per_s_per_gpu"]) - 1) for a, row in zip(speed, rows)]
    gains = [abs(speed[place[pair["lowp_id"]]] / speed[place[pair["bf16_id"]]] - float(pair["speedup"]))
             for pair in plan_rows.read("published_pairs.csv")
             if pair["match"].startswith("exact") and pair["bf16_id"] in place and pair["lowp_id"] in place]
    print(f"pull={arguments.pull} left_out={arguments.leave_out!r} rows={len(rows)} median={plan_rows.quantile(errors, 0.5):.3f} "
          f"p90={plan_rows.quantile(errors, 0.9):.3f} pairs={len(gains)} within={sum(gain <= 0.12 for gain in gains)}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--tool", default=pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/plan_tool")
    parser.add_argument("--output", default=ROOT / "src/plan/calibration_table.inc")
    parser.add_argument("--start", help="continue from a table")
    parser.add_argument("--pull", type=float, default=PULL)
    parser.add_argument("--leave_out", help="fit without the calibration sources that contain this text, then test on them")
    arguments = parser.parse_args()
    everything = plan_rows.read("published.csv")
    plan_rows.check_split(everything)
    rows = plan_rows.calibration_rows(everything)
    everyone = rows
    if arguments.leave_out:
        rows = [row for row in rows if arguments.leave_out not in row["source"]]
    place = {row["id"]: index for index, row in enumerate(rows)}
    published = [float(row["tokens_per_s_per_gpu"]) for row in rows]
    group = [(row["source"], row["gpu"]) for row in rows]
    weight = [0 if "pair_only" in row else 1 / math.sqrt(group.count(name)) for row, name in zip(rows, group)]
    pairs = [(place[pair["bf16_id"]], place[pair["lowp_id"]], float(pair["speedup"]))
             for pair in plan_rows.read("published_pairs.csv")
             if pair["match"].startswith("exact") and pair["bf16_id"] in place and pair["lowp_id"] in place]
    layers = [layer for layer in plan_rows.profiled_layers() if not plan_rows.held_out(layer[0])]
    tool = plan_rows.Tool(rows + [line for layer in layers for line in layer[1]], arguments.tool)

    def loss(constants):
        answer = tool(constants)
        speed, seconds = answer[:len(rows)], answer[len(rows):]
        kernels = 0
        for _, lines, milliseconds in layers:
            kernels += abs(math.log(sum(seconds[:len(lines)]) * 1e3 / milliseconds)) / len(layers)
            seconds = seconds[len(lines):]
        error = sum(w * min(abs(math.log(a / b)), 1) for a, b, w in zip(speed, published, weight)) / sum(weight)
        gain = sum(abs(speed[low] / speed[high] - ratio) for high, low, ratio in pairs) / max(1, len(pairs))
        # A pull to the first guess keeps constants that few rows speak about where physics and Transformer Engine's
        # profile put them.
        pull = sum((10 if name.endswith((".bf16", ".fp8")) else 1) * math.log(value / CONSTANTS[name][0]) ** 2
                   for name, value in constants.items())
        # No calibration page has BF16 on B200; one architecture, one ratio of the two rates (Transformer Engine's profile
        # of a B300 gives it).
        ratio = math.log(constants["blackwell.bf16"] / constants["blackwell.fp8"] *
                         constants["blackwell_ultra.fp8"] / constants["blackwell_ultra.bf16"])
        pull += 50 * ratio ** 2
        return error + 0.5 * gain + 0.1 * kernels + arguments.pull * pull

    constants = {name: first for name, (first, _, _) in CONSTANTS.items()}
    if arguments.start:
        for line in pathlib.Path(arguments.start).read_text().splitlines():
            if line.startswith("{"):
                name, value = line.strip("{},").split(", ")
                if name.strip('"') in constants:
                    constants[name.strip('"')] = float(value)
    best = loss(constants)
    random.seed(1)
    sizes = {name: 0.2 for name in constants}
    for turn in range(arguments.rounds):
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
        print(f"round {turn}: loss {best:.4f}", flush=True)
    tool.close()
    if arguments.leave_out:
        cross_check([row for row in everyone if arguments.leave_out in row["source"] and "pair_only" not in row], constants, arguments)
        return
    lines = ["// Written by bench/calibrate_plan.py from the calibration sources alone; do not edit.",
             f"// {len(rows)} rows, {len(pairs)} pairs."]
    lines += [f'{{"{name}", {value:.4g}}},' for name, value in sorted(constants.items())]
    pathlib.Path(arguments.output).write_text("\n".join(lines) + "\n")
    speed = plan_rows.Tool(rows, arguments.tool)(constants)
    errors = [abs(a / b - 1) for a, b in zip(speed, published)]
    print(f"calibration: median={plan_rows.quantile(errors, 0.5):.3f} p90={plan_rows.quantile(errors, 0.9):.3f} rows={len(rows)}")


main()
