#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# study:
"""Does FP8 train as well as BF16? A GPT-2 of 3.3 million parameters on books, byte by byte: the same weights, batches and
schedule in BF16 and by every recipe, for twelve seeds. Settings, margin and analysis were committed before the first FP8 run.

How it is judged.
- A seed's baseline is the mean of its two BF16 runs: `bf16`, and `bf16_again`, whose AdamW epsilon is 1% larger, which
  cannot matter: what lies between the two is chance.
- Each model is evaluated in BF16 over more than a million bytes that were not trained on, so that a gap is damage done by
  training. The loss in the side's own precision (fewer bytes, by the run itself) is reported apart.
- A recipe's gap is its loss over the baseline of the same seed, in percent; positive is worse. Over the seeds: mean and 95%
  interval (Student's t).
- Equivalence: two one-sided t tests against -0.25% and +0.25%, difference: a two-sided t test against 0; each adjusted for
  six recipes by Holm's rule, at 5%. Outcomes: "equal within 0.25%", "different" (and not shown to be equal), "not resolved".
- Positive control: `damaged`, BF16 with a smaller learning rate, chosen in the pilot to be about 0.5% worse. A study that
  does not find it cannot find a recipe's loss of this size. It is judged alone, as is the control `bf16_again` against `bf16`.

The pilot (--pilot) ran only BF16: three settings, four seeds, the spread of bf16_again about bf16 for each, and how much
smaller learning rates cost. The setting with the least spread was taken.

A run's row goes to results/fp8_equivalence.csv when it is done, and it is not run again under the same settings (the column
config is a hash of them and of the text), so the study may be stopped and started at will. The program is not in that
hash: after a change to its numbers, delete the rows of the runs it touches. Seeds come in order, all sides of one before
the next, so that a study that was cut short is still balanced.
Last line: seeds=N half_…=… gap_…=… found_damaged=0|1 control_quiet=0|1; 0 only when all is there, every half <= 0.2%, the
positive control found and the control quiet.
"""
import argparse
import hashlib
import itertools
import json
import os
import pathlib
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from forest import picture
from runs import DATA, OCTAVO, ROOT, Table, clock, holm, octavo, octavo_train, seed_list, t_quantile, t_tail, validation_losses

TEXT = DATA / "data" / "text" / "gutenberg"
NAME = "fp8_equivalence"
RECIPES = ["delayed", "current", "rowwise", "blockwise", "mxfp8", "nvfp4"]
BASELINE = ["bf16", "bf16_again"]
DAMAGED = "damaged"
SIDES = [*BASELINE, *RECIPES, DAMAGED]
MARGIN, LEVEL, MOST_HALF = 0.25, 0.05, 0.2  # percent; chance; percent
DAMAGE = 0.95  # of the learning rate
EVAL_BATCHES, EVAL_BATCH = 264, 64  # x 64 bytes: 1.08 million
COLUMNS = ["seed", "side", "bf16_loss", "own_loss", "config"]
PILOT_COLUMNS = ["setting", "seed", "side", "val_loss", "config"]

MODEL = {"model_name": "custom", "n_layer": 4, "n_head": 4, "n_embd": 256, "max_seq_length": 64, "tokenizer": "bytes",
         "val_fraction": 0.1, "min_lr_ratio": 0, "beta2": 0.99, "eval_batches": 100, "checkpoint_freq": 0, "num_threads": 1}
SETTINGS = {"a": {"max_steps": 500, "batch_size": 16, "learning_rate": 1e-3},
            "b": {"max_steps": 500, "batch_size": 16, "learning_rate": 5e-4},
            "c": {"max_steps": 300, "batch_size": 32, "learning_rate": 1e-3}}
# By the pilot of 2026-11-18 (4 seeds): bf16_again's spread about bf16 is 0.194% in a, 0.002% in b, 0.061% in c. In b a learning
# rate of 0.95 costs +0.51% (spread 0.05%), of 0.9 +1.03%, of 0.8 +2.21%.
CHOSEN = "b"


def settings_of(name):
    """What a run is told, but for its seed and side."""
    steps = SETTINGS[name]["max_steps"]
    return {**MODEL, **SETTINGS[name], "eval_freq": steps, "log_freq": steps}


def side_settings(settings, side, damage=DAMAGE):
    if side in RECIPES:
        return {**settings, "mixed_precision": "fp8", "fp8_recipe": side}
    changed = {"bf16": {}, "bf16_again": {"adam_eps": 1.01e-8}, DAMAGED: {"learning_rate": damage * settings["learning_rate"]},
               "fp32": {"mixed_precision": "fp32"}}
    return {**settings, "mixed_precision": "bf16", **changed[side]}


def config_hash(*parts):
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode())
    for book in sorted(TEXT.iterdir()):
        digest.update(book.name.encode() + book.read_bytes())
    return digest.hexdigest()[:12]


def evaluate(folder, steps, cache):
    """Loss in BF16, whatever the model was trained in."""
    saved = next(folder.glob(f"checkpoints*/run/step-{steps:08d}"))  # checkpoints, or checkpoints_fp8
    code, said = octavo(folder, "eval", "--checkpoint", saved, "--dataset", TEXT,
                        "--data_cache", cache, "--tokenizer", "bytes", "--val_fraction", MODEL["val_fraction"], "--num_threads", 1,
                        "--batch_size", EVAL_BATCH, "--max_seq_length", MODEL["max_seq_length"], "--eval_limit", EVAL_BATCHES,
                        "--mixed_precision", "bf16", "--json")
    if code != 0:
        sys.exit(f"octavo eval ended with exit code {code}; nothing was recorded for this run:\n{said[-2000:]}")
    found = json.loads(next(line for line in reversed(said.splitlines()) if line.startswith("{")))
    if found["tokens"] < 1_000_000:
        sys.exit(f"wanted a million bytes of validation, found {found['tokens']}")
    return found["val_loss"]


def train(given, side, seed, cache, evaluated):
    """(loss in BF16 or None, loss in the side's own precision) of one run, or None when it failed."""
    losses = []
    then = (lambda folder: losses.append(evaluate(folder, given["max_steps"], cache))) if evaluated else None
    made = octavo_train({"dataset": TEXT, "data_cache": cache, "seed": seed, **given}, f"{side}, seed {seed}", then)
    if made is None:
        return None
    records, _, said = made
    ran = {record["precision"] for record in records if "precision" in record}
    if len(ran) != 1 or next(iter(ran)).startswith("BF16") == (side in RECIPES):
        sys.exit(f"{side}, seed {seed}: wanted every step in this precision, found {sorted(ran)}; see its warnings:\n{said[:2000]}")
    return (losses or [None])[0], validation_losses(records)[given["max_steps"]]


def run_all(left, one):
    """Calls one(run, cache) for each, as many at a time as there are cores, since each run has one thread; says the time left."""
    start, done = time.monotonic(), itertools.count(1)

    def timed(run):
        begin, said = time.monotonic(), one(run, cache)
        now, number = time.monotonic(), next(done)
        print(f"{number}/{len(left)} {' '.join(map(str, run))}: {said} in {clock(now - begin)}; about "
              f"{clock((now - start) / number * (len(left) - number))} left", flush=True)

    with tempfile.TemporaryDirectory(prefix="octavo-study-data-") as cache, ThreadPoolExecutor(os.cpu_count()) as pool:
        try:
            list(pool.map(timed, left))
        finally:
            pool.shutdown(cancel_futures=True)  # a refused setting ends the study


# --- the pilot ---------------------------------------------------------------------------------------------------------

PILOT_SIDES = {"bf16": 1, "bf16_again": 1, "damaged_0.95": 0.95, "damaged_0.9": 0.9, "damaged_0.8": 0.8}  # of the learning rate


def pilot(options):
    table = Table(options.results / f"{NAME}_pilot.csv", PILOT_COLUMNS)
    hashes = {name: config_hash(settings_of(name)) for name in SETTINGS}

    def there():
        return {(row["setting"], int(row["seed"]), row["side"]): float(row["val_loss"]) for row in table.rows()
                if row["config"] == hashes.get(row["setting"])}

    def one(run, cache):
        name, seed, side = run
        given = side_settings(settings_of(name), side.partition("_0")[0], PILOT_SIDES[side])
        made = train(given, side.partition("_0")[0], seed, cache, evaluated=False)
        if made is None:
            return "failed"
        table.add([name, seed, side, repr(made[1]), hashes[name]])
        return f"val loss {made[1]:.4f}"

    runs = [(name, seed, side) for seed in range(101, 105) for name in SETTINGS for side in PILOT_SIDES
            if name == CHOSEN or PILOT_SIDES[side] == 1]
    if not options.report_only:
        run_all([run for run in runs if run not in there()], one)
    found = there()
    figures = []
    for name in SETTINGS:
        for side in list(PILOT_SIDES)[1:]:
            gaps = [100 * (found[name, seed, side] / found[name, seed, "bf16"] - 1) for seed in range(101, 105)
                    if (name, seed, side) in found and (name, seed, "bf16") in found]
            if len(gaps) > 1:
                figures.append(f"{name}_{side}={np.mean(gaps):+.3f}% {name}_{side}_sd={np.std(gaps, ddof=1):.3f}%")
    missing = [run for run in runs if run not in found]
    print(f"runs={len(runs)} missing={len(missing)}", *figures)
    return 1 if missing else 0


# --- the study ---------------------------------------------------------------------------------------------------------

class Gap:
    """Percent above a baseline, over the seeds."""

    def __init__(self, losses, baseline):
        self.each = 100 * (np.array(losses) / np.array(baseline) - 1)
        self.mean, n = float(self.each.mean()), len(self.each)
        self.error = float(self.each.std(ddof=1)) / n ** 0.5
        self.freedom = n - 1
        self.half = t_quantile(self.freedom) * self.error
        # Two one-sided tests: the larger chance is that of the nearer margin.
        self.p_equal = t_tail((MARGIN - abs(self.mean)) / self.error, self.freedom)
        self.p_different = 2 * t_tail(abs(self.mean) / self.error, self.freedom)


def outcome(p_equal, p_different):
    if p_equal < LEVEL:
        return f"equal within {MARGIN:g}%" + (", and different from zero" if p_different < LEVEL else "")
    return "different" if p_different < LEVEL else "not resolved"


def analysis(runs, seeds):
    """{side: (Gap in BF16, Gap in its own precision, p of equivalence, p of a difference)}"""
    def losses(side, which):
        return np.array([runs[side, seed][which] for seed in seeds])
    baseline = [(losses("bf16", which) + losses("bf16_again", which)) / 2 for which in (0, 1)]
    gaps = {side: [Gap(losses(side, which), baseline[which]) for which in (0, 1)] for side in (*RECIPES, DAMAGED)}
    gaps["bf16_again"] = [Gap(losses("bf16_again", which), losses("bf16", which)) for which in (0, 1)]
    equal = holm({side: gaps[side][0].p_equal for side in RECIPES})
    different = holm({side: gaps[side][0].p_different for side in RECIPES})
    return {side: (*gap, equal.get(side, gap[0].p_equal), different.get(side, gap[0].p_different)) for side, gap in gaps.items()}


def table_of(found, runs, seeds):
    s = settings_of(CHOSEN)
    bf16 = np.array([runs["bf16", seed][0] for seed in seeds])
    lines = ["# FP8 against BF16", "", f"Written by `studies/{NAME}.py`; every run is in `{NAME}.csv`.", "",
             f"GPT-2 with {s['n_layer']} blocks of width {s['n_embd']} on the bytes of {len(list(TEXT.iterdir()))} books, "
             f"{s['max_steps']} steps of {s['batch_size']} x {s['max_seq_length']} bytes, learning rate {s['learning_rate']:g}, seeds "
             f"{seeds[0]} to {seeds[-1]}. Loss in nats per byte, in BF16 for all, over {EVAL_BATCHES * EVAL_BATCH * 64:,} bytes that "
             "were not trained on.", "",
             f"BF16 ends at {bf16.mean():.4f} ± {bf16.std(ddof=1):.4f} (standard deviation over seeds). Gaps are to the mean of both BF16 "
             "runs of the seed, in percent; positive is worse.", "",
             "| side | gap | 95% interval | p: equal within 0.25% | p: different | outcome | gap in its own precision |",
             "|---|---|---|---|---|---|---|"]
    for side in (*RECIPES, "bf16_again", DAMAGED):
        gap, own, equal, different = found[side]
        lines.append(f"| {side} | {gap.mean:+.3f}% | {gap.mean - gap.half:+.3f}% to {gap.mean + gap.half:+.3f}% | {equal:.2g} | "
                     f"{different:.2g} | {outcome(equal, different)} | {own.mean:+.3f}% ± {own.half:.3f}% |")
    return "\n".join(lines) + "\n"


def report(options, runs):
    seeds = [seed for seed in options.seeds if all((side, seed) in runs for side in SIDES)]
    missing = [f"{side}/{seed}" for seed in options.seeds for side in SIDES if (side, seed) not in runs]
    if len(seeds) < 3:
        print(f"seeds={len(seeds)} missing={len(missing)}")
        return 1
    found = analysis(runs, seeds)
    table = table_of(found, runs, seeds)
    (options.results / f"{NAME}.md").write_text(table)
    shown = {side: (gap.mean, gap.half, list(gap.each)) for side, (gap, *_) in found.items()}
    options.picture.write_text(picture(shown, MARGIN, f"{len(seeds)} seeds"))
    damaged, control = found[DAMAGED], found["bf16_again"]
    seen = damaged[0].mean > 0 and damaged[3] < LEVEL
    quiet = control[3] >= LEVEL or control[2] < LEVEL
    wide = [side for side in RECIPES if found[side][0].half > MOST_HALF]
    print(table)
    print(f"seeds={len(seeds)}", *(f"gap_{side}={gap.mean:+.3f}% half_{side}={gap.half:.3f}%" for side, (gap, *_) in found.items()),
          f"found_damaged={int(seen)} control_quiet={int(quiet)} missing={len(missing)}")
    return 0 if seen and quiet and not wide and not missing else 1


def study(options):
    settings = settings_of(CHOSEN)
    table, config = Table(options.results / f"{NAME}.csv", COLUMNS), config_hash(settings, DAMAGE, EVAL_BATCHES, EVAL_BATCH)

    def there():
        return {(row["side"], int(row["seed"])): (float(row["bf16_loss"]), float(row["own_loss"])) for row in table.rows()
                if row["config"] == config}

    def one(run, cache):
        side, seed = run
        made = train(side_settings(settings, side), side, seed, cache, evaluated=True)
        if made is None:
            return "failed"
        table.add([seed, side, repr(made[0]), repr(made[1]), config])
        return f"loss {made[0]:.4f} in BF16, {made[1]:.4f} in its own precision"

    if not options.report_only:
        run_all([(side, seed) for seed in options.seeds for side in SIDES if (side, seed) not in there()], one)
    return report(options, there())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=seed_list, default="12", help="12: 1 to 12; 2-4: 2 to 4; 3,7: those")
    parser.add_argument("--pilot", action="store_true", help="the pilot in place of the study")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "studies/results", help="folder for table, CSV")
    parser.add_argument("--picture", type=pathlib.Path, default=ROOT / "docs/pictures/fp8_gaps.svg")
    parser.add_argument("--report_only", action="store_true", help="run nothing; report on the seeds that are complete")
    options = parser.parse_args()
    for path, remedy in ((OCTAVO, "cmake --build --preset release --target octavo"), (TEXT, "set OCTAVO_TEST_DATA")):
        if not path.exists():
            sys.exit(f"wanted {path}, found none; {remedy}")
    return pilot(options) if options.pilot else study(options)


if __name__ == "__main__":
    sys.exit(main())
