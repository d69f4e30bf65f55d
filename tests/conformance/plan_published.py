#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 measures="src/plan"
"""`octavo plan`'s forecast of tokens/s against published measurements, each project by a fit that did not see it.

tests/conformance/plan_left_out.json has the constants of src/plan/calibration.cpp fitted without one project (bench/calibrate_plan.py); the rows
with enough detail (plan_rows.py says what that is) are forecast by the constants that were fitted without their own project. Passes when the median
absolute error of tokens/s is at most 8%, the 90th percentile at most 25%, and FP8's speed-up within 0.12 of the published one for at least
80% of the exact pairs. Prints errors by project, GPU, stack and precision, and the outliers. The tables of docs/concepts/forecasts.md must be what was
found; --write puts them there.

plan_blind.csv are rows that were collected without being scored and scored once, after model and constants were frozen in a commit
(docs/concepts/forecasts.md has the result); they are printed here by the constants of all projects, and judged by nothing.
"""
import collections
import csv
import json
import os
import pathlib
import re
import sys

import plan_rows

ROOT = pathlib.Path(__file__).resolve().parents[2]
TOOL = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/plan_tool"
MEDIAN, NINETY, GAIN, PAIRS = 0.08, 0.25, 0.12, 0.80
PAGE = ROOT / "docs/concepts/forecasts.md"
TABLES = re.compile(r"(?<=<!-- errors: made by tests/conformance/plan_published.py --write -->\n).*?(?=<!-- errors: end -->)", re.S)


def summary(errors):
    sizes = [abs(error) for error in errors]
    return (f"n={len(errors)} median={plan_rows.quantile(sizes, 0.5):.3f} p90={plan_rows.quantile(sizes, 0.9):.3f} "
            f"bias={sum(errors) / len(errors):+.3f}")


def said_of(table, name):
    """The row of a stack or GPU in src/plan/accuracy.h: (rows, median, 90th percentile)."""
    text = (ROOT / "src/plan/accuracy.h").read_text()
    text = text[text.index(table):]
    said = re.search(rf'{{"{name}", (\d+), ([0-9.]+), ([0-9.]+)}}', text[:text.index(";")])
    return said and (int(said.group(1)), float(said.group(2)), float(said.group(3)))


def boasts_of_group(table, name, errors):
    sizes = [abs(error) for error in errors]
    median, ninety = plan_rows.quantile(sizes, 0.5), plan_rows.quantile(sizes, 0.9)
    said = said_of(table, name)
    if said and said[0] == len(sizes) and said[1] >= median - 0.005 and said[2] >= ninety - 0.005:
        return False
    print(f'src/plan/accuracy.h, {table}: wanted {{"{name}", {len(sizes)}, {median:.2f}, {ninety:.2f}}}, found {said}')
    return True


def boasts(median, ninety, share):
    """Whether src/plan/accuracy.h, which every forecast quotes, says better than was found here."""
    text = (ROOT / "src/plan/accuracy.h").read_text()
    said = {name: float(value) for name, value in re.findall(r"(k\w+) = ([0-9.]+);", text)}
    worse = said["kMedianError"] < median - 0.005 or said["kNinetyError"] < ninety - 0.005 or said["kGainShare"] > share + 0.005
    if worse:
        print(f"src/plan/accuracy.h says better than these results: {said}")
    return worse


def table_of(title, groups):
    """A table of the page, in Markdown."""
    lines = [f"| {title} | rows | median | 90th percentile | bias |", "|---|---:|---:|---:|---:|"]
    for name, errors in sorted(groups.items(), key=lambda group: -len(group[1])):
        sizes = [abs(error) for error in errors]
        lines.append(f"| {name} | {len(sizes)} | {plan_rows.quantile(sizes, 0.5):.1%} | {plan_rows.quantile(sizes, 0.9):.1%} | "
                     f"{sum(errors) / len(errors):+.1%} |")
    return "\n".join(lines) + "\n"


def is_current(tables):
    """Whether the page has these tables; with --write it does afterwards."""
    page = PAGE.read_text()
    wanted = TABLES.sub(lambda _: "\n" + "\n".join(tables) + "\n", page)
    if "--write" in sys.argv:
        PAGE.write_text(wanted)
    elif page != wanted:
        print(f"{PAGE.relative_to(ROOT)} has other errors than these: plan_published.py --write")
        return False
    return True


def forecasts(rows, constants):
    tool = plan_rows.Tool(rows, TOOL)
    found = tool(constants)
    tool.close()
    return found


def errors_of(rows, speed):
    return [a / float(row["tokens_per_s_per_gpu"]) - 1 for row, a in zip(rows, speed)]


def blind():
    """The rows that nothing was fitted to and that were not looked at while the model was made."""
    with open(pathlib.Path(__file__).with_name("plan_blind.csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    assert not any(plan_rows.why_not(row) for row in rows)
    errors = errors_of(rows, forecasts(rows, {}))
    groups = collections.defaultdict(list)
    for row, error in zip(rows, errors):
        groups[re.sub(r"^https://github.com/", "", row["source"]).split("@")[0].split("/pull")[0].split("/issues")[0]].append(error)
    print("blind rows by project:")
    for name, found in sorted(groups.items()):
        print(f"  {summary(found)}  {name}")
    for precision in ("bf16", "fp8"):
        chosen = [error for row, error in zip(rows, errors) if row["precision"].startswith(precision)]
        print(f"  {summary(chosen)}  {precision}")
    sizes = [abs(error) for error in errors]
    return sizes, len(groups)


def main():
    everything = plan_rows.read("published.csv")
    left_out = collections.Counter(plan_rows.why_not(row) for row in everything)
    rows = plan_rows.usable_rows(everything)
    fits = json.loads(pathlib.Path(__file__).with_name("plan_left_out.json").read_text())["projects"]
    speed = [0.0] * len(rows)
    for project, constants in fits.items():
        assert len(constants) <= 30
        places = [index for index, row in enumerate(rows) if plan_rows.project_of(row["source"]) == project]
        for index, found in zip(places, forecasts([rows[index] for index in places], constants)):
            speed[index] = found
    assert all(speed), "a project without a fit: run bench/calibrate_plan.py"
    errors = errors_of(rows, speed)
    judged = [(row, error) for row, error in zip(rows, errors) if "pair_only" not in row]
    print(f"rows: {len(everything)}; with enough detail: {len(judged)}; left out:")
    for reason, count in left_out.most_common():
        if reason:
            print(f"  {count:4d} {reason}")
    honest, tables = True, []
    for title, key in (("project", lambda row: plan_rows.project_of(row["source"])), ("GPU", plan_rows.gpu_name), ("stack", plan_rows.stack_of),
                       ("precision", lambda row: row["precision"])):
        groups = collections.defaultdict(list)
        for row, error in judged:
            groups[key(row)].append(error)
        print(f"by {title}:")
        tables.append(table_of(title, groups))
        for name, found in sorted(groups.items()):
            print(f"  {summary(found)}  {name}")
            if title in ("stack", "GPU"):
                honest &= not boasts_of_group("kStackErrors" if title == "stack" else "kGpuErrors", name, found)
    honest &= is_current(tables)
    print("the worst:")
    for row, error in sorted(judged, key=lambda one: -abs(one[1]))[:25]:
        print(f"  {error:+.0%} {row['id']}: {plan_rows.gpu_name(row)} x {row['n_gpus']} {row['model']} {row['micro_batch_per_gpu']}x{row['seq_len']} "
              f"{row['parallelism']} {row['precision']} rank {row['lora_rank']}: {row['notes'][:70]}")
    pairs = [(speed[low] / speed[high] - ratio, rows[low]) for high, low, ratio, _ in plan_rows.exact_pairs(rows)]
    good = sum(abs(off) <= GAIN for off, _ in pairs)
    by_project = collections.Counter(plan_rows.project_of(row["source"]) for off, row in pairs if abs(off) > GAIN)
    print(f"pairs further off than {GAIN}: {dict(by_project)}")
    sizes = [abs(error) for _, error in judged]
    median, ninety, share = plan_rows.quantile(sizes, 0.5), plan_rows.quantile(sizes, 0.9), good / max(1, len(pairs))
    honest &= not boasts(median, ninety, share)
    blind_sizes, projects = blind()
    honest &= not boasts_of_group("kBlindRowsErrors", "all", blind_sizes)
    blind_median, blind_ninety = (plan_rows.quantile(blind_sizes, share) for share in (0.5, 0.9))
    print(f"rows={len(sizes)} median_error={median:.3f} p90_error={ninety:.3f} pairs={len(pairs)} pairs_within_0.12={share:.3f} "
          f"blind_rows={len(blind_sizes)} blind_projects={projects} blind_median={blind_median:.3f} blind_p90={blind_ninety:.3f}")
    return 0 if honest and median <= MEDIAN and ninety <= NINETY and share >= PAIRS else 1


sys.exit(main())
