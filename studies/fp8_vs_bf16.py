#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# study:
"""Does FP8 train as well as BF16? A GPT-2 of 3.3 million parameters on books, byte by byte: the same weights, batches
and schedule in BF16 and in every FP8 recipe, for several seeds.

A run's validation losses go to results/fp8_vs_bf16.csv when it is done, and it is not run again under the same settings
(the column config is a hash of them and of the text), so the study may be stopped and started at will. The program is
not in that hash: after a change to its numbers, delete the rows of the runs it touches. Seeds come in order, all
recipes of one before the next, so that a study that was cut short is still balanced. With all runs there, it writes the
table results/fp8_vs_bf16.md and the picture docs/pictures/fp8_curves.svg: for each recipe the gap of the final validation loss
to BF16 of the same seed, in percent, with the 95% interval of a paired t test.
"""
import argparse
import csv
import fcntl
import hashlib
import json
import os
import pathlib
import sys
import tempfile
import time

import numpy as np

from curves import Series, picture
from runs import DATA, OCTAVO, ROOT, clock, octavo_train, seed_list, t_quantile, validation_losses

TEXT = DATA / "data" / "text" / "gutenberg"
NAME = "fp8_vs_bf16"

AIMS = {"delayed": 1.0, "current": 1.0, "rowwise": 0.25, "blockwise": 0.25, "mxfp8": 0.25}  # percent, either way
# BF16 with a change too small to matter (AdamW's epsilon by 1%): how far two runs of the same quality drift apart by
# chance alone. A recipe's gap is worth as much as it stands out from this one's.
CONTROL = "bf16_again"
SIDES = ["bf16", *AIMS, CONTROL]
COLUMNS = ["seed", "recipe", "step", "val_loss", "config"]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--seeds", type=seed_list, default="5", help="5: 1 to 5; 2-4: 2 to 4; 3,7: those")
    parser.add_argument("--recipes", default=",".join(SIDES), help="what to run; only the full list writes the report")
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--batch", type=int, default=8, help="samples in a step")
    parser.add_argument("--length", type=int, default=64, help="tokens in a sample")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--beta2", type=float, default=0.99)
    parser.add_argument("--eval_freq", type=int, default=250)
    parser.add_argument("--eval_batches", type=int, default=100)
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "studies/results", help="folder for table, CSV")
    parser.add_argument("--picture", type=pathlib.Path, default=ROOT / "docs/pictures/fp8_curves.svg")
    parser.add_argument("--report_only", action="store_true", help="run nothing; report on the seeds that are complete")
    options = parser.parse_args()
    options.recipes = options.recipes.split(",")
    unknown = [name for name in options.recipes if name not in SIDES]
    if unknown:
        parser.error(f"wanted recipes of {','.join(SIDES)}, found {','.join(unknown)}")
    check_shape(parser, options)
    return options


def check_shape(parser, options):
    """A matrix that a recipe may not take would stay in BF16, and the study would compare BF16 with itself."""
    if options.width % 128 or options.batch * options.length % 32:
        parser.error(f"wanted --width a multiple of 128 (blockwise) and --batch x --length a multiple of 32 (mxfp8), "
                     f"found {options.width} and {options.batch * options.length}")
    if not options.seeds or min(options.steps, options.eval_freq, options.eval_batches) < 1:
        parser.error("wanted seeds, steps, eval_freq and eval_batches of at least 1")


def settings_of(options):
    """What a run is told, but for its seed and precision."""
    return {"model_name": "custom", "n_layer": options.layers, "n_head": options.heads, "n_embd": options.width,
            "max_seq_length": options.length, "tokenizer": "bytes", "val_fraction": 0.1, "batch_size": options.batch,
            "max_steps": options.steps, "learning_rate": options.lr, "beta2": options.beta2, "eval_freq": options.eval_freq,
            "eval_batches": options.eval_batches, "checkpoint_freq": 0, "log_freq": options.eval_freq}


def config_hash(settings):
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for book in sorted(TEXT.iterdir()):
        digest.update(book.name.encode() + book.read_bytes())
    return digest.hexdigest()[:12]


class Results:
    """The CSV: one row per evaluation, appended when its run is done. One study at a time may hold it."""

    def __init__(self, path, config, last_step):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.file, self.config, self.last_step = open(path, "a+", newline=""), config, last_step
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"wanted {path} for ourselves, found another study at work on it; wait for it or end it")
        self.curves = self.read()

    def read(self):
        """{(recipe, seed): {step: loss}} of the runs that are whole."""
        self.file.seek(0)
        curves = {}
        for row in csv.DictReader(self.file):
            if row["config"] == self.config:  # a row cut off by a power failure has none
                curves.setdefault((row["recipe"], int(row["seed"])), {})[int(row["step"])] = float(row["val_loss"])
        return {run: curve for run, curve in curves.items() if self.last_step in curve}

    def add(self, recipe, seed, curve):
        self.file.seek(0)
        text = self.file.read()
        rows = [[seed, recipe, step, repr(loss), self.config] for step, loss in sorted(curve.items())]
        lines = [",".join(map(str, row)) for row in ([COLUMNS] if not text else []) + rows]
        self.file.write(("\n" if text and not text.endswith("\n") else "") + "\n".join(lines) + "\n")
        self.file.flush()
        os.fsync(self.file.fileno())
        self.curves[recipe, seed] = curve


def train(settings, recipe, seed, cache):
    """{step: validation loss} of one run, or None when it failed."""
    precision = {"mixed_precision": "fp8", "fp8_recipe": recipe} if recipe in AIMS else {"mixed_precision": "bf16"}
    if recipe == CONTROL:
        precision["adam_eps"] = 1.01e-8
    made = octavo_train({"dataset": TEXT, "data_cache": cache, "seed": seed, **settings, **precision},
                        f"{recipe}, seed {seed}")
    if made is None:
        return None
    records, _, output = made
    ran = {record["precision"] for record in records if "precision" in record}
    if len(ran) != 1 or next(iter(ran)).startswith("FP8") != (recipe in AIMS):
        sys.exit(f"{recipe}, seed {seed}: wanted every step in this precision, found {sorted(ran)}; see its warnings:\n"
                 f"{output[:2000]}")
    return validation_losses(records)


def run_all(options, results, settings):
    runs = [(recipe, seed) for seed in options.seeds for recipe in options.recipes]
    left = [run for run in runs if run not in results.curves]
    print(f"{len(runs)} runs, {len(runs) - len(left)} already in {results.file.name}", flush=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="octavo-study-data-") as cache:
        for number, (recipe, seed) in enumerate(left, 1):
            begin = time.monotonic()
            curve = train(settings, recipe, seed, cache)
            if curve is None:
                continue
            results.add(recipe, seed, curve)
            now = time.monotonic()
            rest = (now - start) / number * (len(left) - number)
            print(f"{number}/{len(left)} seed {seed} {recipe}: val loss {curve[options.steps]:.4f} in "
                  f"{clock(now - begin)}; about {clock(rest)} left", flush=True)


def losses_of(curves, side, seeds, steps):
    """[seed, step]"""
    return np.array([[curves[side, seed][step] for step in steps] for seed in seeds])


def percent_gaps(curves, recipe, seeds, steps):
    """[seed, step]: how much higher than BF16's the loss is."""
    return 100 * (losses_of(curves, recipe, seeds, steps) / losses_of(curves, "bf16", seeds, steps) - 1)


def gap_summary(curves, recipe, seeds, steps):
    """Mean gap of the last step, half of its 95% interval (nan for one seed), the gap of each seed."""
    final = percent_gaps(curves, recipe, seeds, steps)[:, -1]
    n = len(final)
    half = t_quantile(n - 1) * float(final.std(ddof=1)) / np.sqrt(n) if n > 1 else float("nan")
    return float(final.mean()), half, final


def table_of(options, curves, seeds, summary):
    steps, tokens = options.steps, options.batch * options.length
    bf16 = losses_of(curves, "bf16", seeds, [steps])
    spread = f" ± {bf16.std(ddof=1):.4f} (mean and standard deviation over seeds)" if len(seeds) > 1 else ""
    lines = [
        "# FP8 against BF16", "",
        "Written by `studies/fp8_vs_bf16.py`; every evaluation is in `fp8_vs_bf16.csv`.", "",
        f"GPT-2 with {options.layers} blocks of width {options.width} on the bytes of {len(list(TEXT.iterdir()))} "
        f"books, {steps} steps of {options.batch} x {options.length} tokens ({steps * tokens / 1e6:.1f}M), learning "
        f"rate {options.lr:g}, seeds {', '.join(map(str, seeds))}. Loss in nats per byte, over "
        f"{options.eval_batches * tokens:,} bytes of text that was not trained on.", "",
        f"BF16 ends at {bf16.mean():.4f}{spread}. A recipe's gap is against BF16 of the same seed; a positive gap means "
        "that FP8 is worse.", "",
        "| recipe | final loss | mean gap | 95% interval | smallest and largest gap | aim | within |",
        "|---|---|---|---|---|---|---|",
    ]
    for recipe, (mean, half, gaps) in summary.items():
        loss = losses_of(curves, recipe, seeds, [steps]).mean()
        interval = f"{mean - half:+.3f}% to {mean + half:+.3f}%" if len(seeds) > 1 else "none: one seed"
        aim = AIMS.get(recipe)
        verdict = "control | |" if aim is None else f"{aim:g}% | {'yes' if abs(mean) <= aim else 'no'} |"
        lines.append(f"| {recipe} | {loss:.4f} | {mean:+.3f}% | {interval} | "
                     f"{gaps.min():+.3f}% and {gaps.max():+.3f}% | {verdict}")
    return "\n".join(lines) + "\n"


def report(options, results):
    """Prints the gaps; with every recipe asked for, writes table and picture. The exit code."""
    curves, sides = results.curves, ["bf16", *(r for r in options.recipes if r != "bf16")]
    seeds = [seed for seed in options.seeds if all((side, seed) in curves for side in sides)]
    missing = [f"{side}/{seed}" for seed in options.seeds for side in sides if (side, seed) not in curves]
    if missing:
        print(f"not there: {' '.join(missing)}")
    if not seeds or (missing and not options.report_only):
        print(f"seeds={len(seeds)} steps={options.steps} missing={len(missing)}")
        return 1
    steps = sorted(set.intersection(*(set(curves[side, seed]) for side in sides for seed in seeds)))
    summary = {recipe: gap_summary(curves, recipe, seeds, steps) for recipe in sides[1:]}
    if set(sides) == set(SIDES):
        table = table_of(options, curves, seeds, summary)
        (options.results / f"{NAME}.md").write_text(table)
        series = {"bf16": Series(losses_of(curves, "bf16", seeds, steps))}
        for recipe in AIMS:
            series[recipe] = Series(losses_of(curves, recipe, seeds, steps), percent_gaps(curves, recipe, seeds, steps),
                                    *summary[recipe][:2])
        options.picture.write_text(picture(steps, series, options.batch * options.length, AIMS))
        print(table)
    bf16 = losses_of(curves, "bf16", seeds, [options.steps]).mean()
    figures = [f"seeds={len(seeds)} steps={options.steps} bf16={bf16:.4f}"]
    figures += [f"gap_{recipe}={mean:+.3f}% half_{recipe}={half:.3f}%" for recipe, (mean, half, _) in summary.items()]
    print(*figures, *([f"missing={len(missing)}"] if missing else []))
    return 1 if missing or any(
        abs(mean) > AIMS[recipe] for recipe, (mean, _, _) in summary.items() if recipe in AIMS) else 0


def main():
    options = arguments()
    for path, remedy in ((OCTAVO, "cmake --build --preset release --target octavo"), (TEXT, "set OCTAVO_TEST_DATA")):
        if not path.exists():
            sys.exit(f"wanted {path}, found none; {remedy}")
    settings = settings_of(options)
    results = Results(options.results / f"{NAME}.csv", config_hash(settings), options.steps)
    if not options.report_only:
        run_all(options, results, settings)
    return report(options, results)


if __name__ == "__main__":
    sys.exit(main())
