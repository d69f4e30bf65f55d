#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 measures="src/plan"
"""`octavo plan`'s forecast of tokens/s against published measurements of sources that nothing was fitted to.

Passes when, over the held-out rows with enough detail (plan_rows.py says what that is), the median absolute error of
tokens/s is at most 10% and the 90th percentile at most 30%, and FP8's forecast speed-up is within 0.12 of the published one
for at least 80% of the held-out exact pairs. Prints errors by source and by GPU and every outlier with its reason.
"""
import collections
import csv
import os
import pathlib
import re
import sys

import plan_rows

ROOT = pathlib.Path(__file__).resolve().parents[2]
MEDIAN, NINETY, GAIN, PAIRS = 0.10, 0.30, 0.12, 0.80
PARTS = ("gemms", "adapters", "head", "attention", "elementwise", "quantize", "optimizer", "collectives", "host")


def summary(errors):
    sizes = [abs(error) for error in errors]
    return (f"n={len(errors)} median={plan_rows.quantile(sizes, 0.5):.3f} p90={plan_rows.quantile(sizes, 0.9):.3f} "
            f"bias={sum(errors) / len(errors):+.3f}")


def explain(row, error, times):
    """One line on what the data cannot tell, for a row that is more than 30% off."""
    share = {name: value / times[-1] for name, value in zip(PARTS, times[1:])}
    largest = max(share, key=share.get)
    tokens = int(row["micro_batch_per_gpu"]) * int(row["seq_len"])
    if plan_rows.lora_rank(row) and error > 0:
        reason = "LoRA: no calibration page has adapters in this stack, so their launches and small GEMMs are a guess"
    elif error > 0 and tokens <= 4096:
        reason = f"a micro-batch of {tokens} tokens: gaps between kernels that no calibration row of this stack shows"
    elif "POWER-LIMITED" in row["notes"]:
        reason = "the page says its GPU was power-limited; by how much is not published"
    else:
        reason = f"largest part of the forecast: {largest}, {share[largest]:.0%}"
    return (f"  {row['id']}: {plan_rows.gpu_of(row)} x {row['n_gpus']} {row['model']} {row['micro_batch_per_gpu']}x{row['seq_len']} "
            f"{row['precision']} rank {row['lora_rank']}: {error:+.0%} of {row['tokens_per_s_per_gpu']}: {reason}")


def explain_gain(row, off):
    if plan_rows.lora_rank(row) and off > 0:
        return ("adapters in hand-written CUDA: no calibration page has them; the same pages' RTX 5090 rows are met, so what is "
                "missing is how H100 runs micro-batches of 4096 tokens")
    if plan_rows.stack_of(row) == "xla" and off < 0:
        return "XLA's FP8 is calibrated on 5B models alone, whose GEMMs are a smaller share"
    return f"largest doubt: what {row['precision']} costs in this stack on this GPU, which no calibration page shows"


def boasts(median, ninety, share):
    """Whether src/plan/accuracy.h, which every forecast quotes, says better than was found here."""
    text = (ROOT / "src/plan/accuracy.h").read_text()
    said = {name: float(value) for name, value in re.findall(r"(k\w+) = ([0-9.]+);", text)}
    worse = said["kMedianError"] < median - 0.005 or said["kNinetyError"] < ninety - 0.005 or said["kGainShare"] > share + 0.005
    if worse:
        print(f"src/plan/accuracy.h says better than these results: {said}")
    return worse


def boasts_of_group(table, name, sizes):
    """Whether the row of a stack or GPU in src/plan/accuracy.h is missing, or says better than these errors."""
    text = (ROOT / "src/plan/accuracy.h").read_text()
    text = text[text.index(table):]
    said = re.search(rf'{{"{name}", (\d+), ([0-9.]+), ([0-9.]+)}}', text[:text.index(";")])
    median, ninety = plan_rows.quantile(sizes, 0.5), plan_rows.quantile(sizes, 0.9)
    worse = not said or int(said.group(1)) != len(sizes) or float(said.group(2)) < median - 0.005 or float(said.group(3)) < ninety - 0.005
    if worse:
        print(f"src/plan/accuracy.h, {table}: wanted {{{name}, {len(sizes)}, {median:.3f}, {ninety:.3f}}}, found {said and said.group(0)}")
    return worse


def blind(binary):
    """Rows that were collected without being scored, and scored once, after model and constants were frozen in a commit
    (docs/concepts/forecasts.md has the result). Printed, and judged by nothing but what accuracy.h says of them."""
    with open(pathlib.Path(__file__).with_name("plan_blind.csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    assert not any(plan_rows.why_not(row) for row in rows)
    tool = plan_rows.Tool(rows, binary)
    errors = [speed / float(row["tokens_per_s_per_gpu"]) - 1 for row, speed in zip(rows, tool({}))]
    tool.close()
    groups = collections.defaultdict(list)
    for row, error in zip(rows, errors):
        project = re.sub(r"^https://github.com/", "", row["source"]).split("@")[0].split("/pull")[0].split("/issues")[0]
        groups[project].append(error)
        groups["precision: " + row["precision"][:4]].append(error)
    print("blind rows:")
    for name, found in sorted(groups.items()):
        print(f"  {summary(found)}  {name}")
    sizes = [abs(error) for error in errors]
    return len(sizes), plan_rows.quantile(sizes, 0.5), plan_rows.quantile(sizes, 0.9), sizes


def main():
    everything = plan_rows.read("published.csv")
    plan_rows.check_split(everything)
    held = [row for row in everything if plan_rows.held_out(row["source"])]
    left_out = collections.Counter(plan_rows.why_not(row) for row in held)
    rows = [row for row in held if not plan_rows.why_not(row)]
    binary = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/plan_tool"
    tool = plan_rows.Tool(rows, binary, parts=True)
    times = tool({})
    tool.close()
    errors = [time[0] / float(row["tokens_per_s_per_gpu"]) - 1 for row, time in zip(rows, times)]
    print(f"held-out rows: {len(held)}; with enough detail: {len(rows)}; left out:")
    for reason, count in left_out.most_common():
        if reason:
            print(f"  {count:4d} {reason}")
    honest = True
    for title, key in (("source", lambda row: row["source"]), ("GPU", plan_rows.gpu_of), ("stack", plan_rows.stack_of)):
        groups = collections.defaultdict(list)
        for row, error in zip(rows, errors):
            groups[key(row)].append(error)
        print(f"by {title}:")
        for name, found in sorted(groups.items()):
            print(f"  {summary(found)}  {name}")
            if title != "source":
                honest &= not boasts_of_group("kStackErrors" if title == "stack" else "kGpuErrors", name, [abs(error) for error in found])
    print("outliers (more than 30%):")
    for row, error, time in zip(rows, errors, times):
        if abs(error) > NINETY:
            print(explain(row, error, time))
    place = {row["id"]: index for index, row in enumerate(rows)}
    good = pairs = 0
    print("speed-up of FP8, pairs further off than 0.12:")
    for pair in plan_rows.read("published_pairs.csv"):
        if not pair["match"].startswith("exact") or pair["bf16_id"] not in place or pair["lowp_id"] not in place:
            continue
        forecast = times[place[pair["lowp_id"]]][0] / times[place[pair["bf16_id"]]][0]
        off = forecast - float(pair["speedup"])
        pairs += 1
        good += abs(off) <= GAIN
        if abs(off) > GAIN:
            row = rows[place[pair["lowp_id"]]]
            print(f"  {pair['lowp_id']}: {plan_rows.gpu_of(row)} {row['model']} {row['precision']} rank {row['lora_rank']}: "
                  f"published {pair['speedup']}, forecast {forecast:.3f}: {explain_gain(row, off)}")
    sizes = [abs(error) for error in errors]
    median, ninety = plan_rows.quantile(sizes, 0.5), plan_rows.quantile(sizes, 0.9)
    share = good / max(1, pairs)
    honest &= not boasts(median, ninety, share)
    count, blind_median, blind_ninety, sizes = blind(binary)
    honest &= not boasts_of_group("kBlindErrors", "all", sizes)
    print(f"rows={len(rows)} median_error={median:.3f} p90_error={ninety:.3f} pairs={pairs} pairs_within_0.12={share:.3f} "
          f"blind_rows={count} blind_median={blind_median:.3f} blind_p90={blind_ninety:.3f}")
    return 0 if honest and median <= MEDIAN and ninety <= NINETY and pairs and share >= PAIRS else 1


sys.exit(main())
