#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# study:
"""SmolLM2-135M, pretrained by others, goes on training in BF16 and in FP8 on FineWeb-Edu, C4 and Wikipedia: the same weights,
batches and schedule, for three seeds. What does FP8 cost, and where: in the weights that training leaves, or in rounding while
the loss is measured?

- `bf16_loss`: every side's weights, evaluated in BF16. A gap here is damage done by training.
- `own_loss`: the same weights in the side's own precision. What it has more is rounding of the forward pass.
- `start_loss`: the pretrained weights in the side's own precision, after one step that moves nothing (`delayed` has its scales
  from it): what rounding alone costs before any training.
- Gaps are to the mean of `bf16` and `bf16_again` (AdamW's epsilon 1% larger, which cannot matter) of the same seed, in
  percent; over seeds mean and 95% interval (Student's t).

A run's row goes to results/smollm2_fp8.csv when it is done, and it is not run again under the same settings (the column config
is a hash of them, of the text and of the model), so the study may be stopped and started at will. The program is not in that
hash: after a change to its numbers, delete the rows of the runs it touches.
Last line: seeds=N, and for each side gap_…, own_…, start_…; 0 only when all is there and each mean gap is within 1%.
"""
import argparse
import hashlib
import json
import pathlib
import random
import sys
import tempfile
import time

import numpy as np

from runs import DATA, OCTAVO, ROOT, Table, clock, octavo, octavo_train, seed_list, t_quantile, validation_losses

sys.path.insert(0, str(ROOT / "tests" / "conformance"))
import smollm2_model  # noqa: E402

TEXTS = [DATA / "data" / "text" / name for name in ("fineweb_sample.txt", "c4_demo.jsonl", "wiki_demo.txt")]
NAME = "smollm2_fp8"
RECIPES = ["delayed", "rowwise", "mxfp8"]
BASELINE = ["bf16", "bf16_again"]
SIDES = [*BASELINE, *RECIPES]
LOSS_PERCENT = 1.0  # aim for the mean
DOCUMENT_BYTES = 4000
STEPS, BATCH, LENGTH, EVAL_BATCHES = 24, 4, 512, 16
SETTINGS = {"max_seq_length": LENGTH, "batch_size": BATCH, "max_steps": STEPS, "learning_rate": 5e-5, "warmup_steps": 2,
            "weight_decay": 0.1, "val_fraction": 0.15, "eval_freq": STEPS, "eval_batches": EVAL_BATCHES, "checkpoint_freq": 0, "log_freq": 1}
COLUMNS = ["seed", "side", "bf16_loss", "own_loss", "config"]
STARTS = ["side", "start_loss", "config"]


def documents():
    """The texts as documents of a few thousand bytes, cut at ends of lines, in an order that mixes the sources."""
    made = []
    for path in TEXTS:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".jsonl":
            made += [json.loads(line)["text"] for line in text.splitlines()]
            continue
        piece = ""
        for line in text.splitlines(keepends=True):
            piece += line
            if len(piece) >= DOCUMENT_BYTES:
                made.append(piece)
                piece = ""
        made.append(piece)
    made = [document for document in made if document.strip()]
    random.Random(0).shuffle(made)
    return made


def config_hash():
    digest = hashlib.sha256(json.dumps([SETTINGS, smollm2_model.WEIGHTS_SHA256], sort_keys=True).encode())
    for path in TEXTS:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


class Study:
    """Its settings, and the tables with what is done."""

    def __init__(self, options, work):
        self.options, self.config, self.model = options, config_hash(), smollm2_model.folder()
        self.data = {"tokenizer": self.model, "dataset": work / "text.jsonl", "data_cache": work / "data"}
        (work / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents()))
        self.runs = Table(options.results / f"{NAME}.csv", COLUMNS)
        self.starts = Table(options.results / f"{NAME}_start.csv", STARTS)

    def train(self, side, seed, more, then=None):
        """Loss in the side's own precision after the last step."""
        precision = {"mixed_precision": "fp8", "fp8_recipe": side} if side in RECIPES else {"mixed_precision": "bf16"}
        if side == "bf16_again":
            precision["adam_eps"] = 1.01e-8
        given = {"model_name": self.model, **self.data, **SETTINGS, **precision, "seed": seed, **more}
        made = octavo_train(given, f"{side}, seed {seed}", then)
        if made is None:
            sys.exit(1)
        ran = {record["precision"] for record in made[0] if "precision" in record}
        if len(ran) != 1 or next(iter(ran)).startswith("FP8") != (side in RECIPES):
            sys.exit(f"{side}: wanted every step in this precision, found {sorted(ran)}")
        return validation_losses(made[0])[given["max_steps"]]

    def evaluate(self, folder, *words):
        """The summary of `octavo eval` in BF16 of what the run in this folder has saved."""
        saved = next(folder.glob(f"checkpoints*/run/step-{STEPS:08d}"))  # checkpoints, or checkpoints_fp8
        code, said = octavo(folder, "eval", "--checkpoint", saved, "--mixed_precision", "bf16", "--json", *words)
        if code != 0:
            sys.exit(f"octavo eval ended with exit code {code}; nothing was recorded for this run:\n{said[-2000:]}")
        return json.loads(next(line for line in reversed(said.splitlines()) if line.startswith("{")))

    def start(self, side):
        self.starts.add([side, repr(self.train(side, 1, {"max_steps": 1, "warmup_steps": 0, "eval_freq": 1, "learning_rate": 1e-12})),
                         self.config])

    def run(self, side, seed):
        losses = []

        def then(folder):
            flags = [word for key, value in self.data.items() for word in (f"--{key}", value)]
            losses.append(self.evaluate(folder, *flags, "--val_fraction", SETTINGS["val_fraction"], "--batch_size", BATCH,
                                        "--max_seq_length", LENGTH, "--eval_limit", EVAL_BATCHES)["val_loss"])

        own = self.train(side, seed, {}, then)
        self.runs.add([seed, side, repr(losses[0]), repr(own), self.config])
        return f"loss {losses[0]:.4f} in BF16, {own:.4f} in its own precision"


def run_all(study):
    there = {(row["side"], int(row["seed"])) for row in study.runs.rows() if row["config"] == study.config}
    started = {row["side"] for row in study.starts.rows() if row["config"] == study.config}
    for side in SIDES:
        if side not in started and side != "bf16_again":
            study.start(side)
            print(f"{side}: at the start", flush=True)
    left = [(side, seed) for seed in study.options.seeds for side in SIDES if (side, seed) not in there]
    begin = time.monotonic()
    for number, (side, seed) in enumerate(left, 1):
        said = study.run(side, seed)
        print(f"{number}/{len(left)} {side} {seed}: {said}; about {clock((time.monotonic() - begin) / number * (len(left) - number))} left",
              flush=True)


def interval(gaps):
    """(mean, half of the 95% interval or None for one seed)"""
    gaps = np.array(gaps)
    half = None if len(gaps) < 2 else t_quantile(len(gaps) - 1) * float(gaps.std(ddof=1)) / len(gaps) ** 0.5
    return float(gaps.mean()), half


def shown(mean, half):
    return f"{mean:+.3f}%" if half is None else f"{mean:+.3f}% ± {half:.3f}%"


def report(study):
    own = [row for row in study.runs.rows() if row["config"] == study.config]
    losses = {(row["side"], int(row["seed"])): (float(row["bf16_loss"]), float(row["own_loss"])) for row in own}
    starts = {row["side"]: float(row["start_loss"]) for row in study.starts.rows() if row["config"] == study.config}
    seeds = [seed for seed in study.options.seeds if all((side, seed) in losses for side in SIDES)]
    if not seeds or any(side not in starts for side in ("bf16", *RECIPES)):
        print(f"seeds={len(seeds)} missing={len(study.options.seeds) - len(seeds)}")
        return 1
    lines = ["# SmolLM2-135M in FP8 and in BF16", "", f"Written by `studies/{NAME}.py`; every run is in `{NAME}.csv`.", "",
             f"The pretrained model (weights out of a Q4_1 file, see tests/conformance/smollm2_model.py) goes on for {STEPS} steps of "
             f"{BATCH} x {LENGTH} tokens of FineWeb-Edu, C4 and Wikipedia at a learning rate of {SETTINGS['learning_rate']:g}; "
             f"{len(seeds)} seeds. Loss over {EVAL_BATCHES * BATCH * LENGTH:,} tokens that were not trained on. Gaps are to the mean of both BF16 "
             "runs of the seed; positive is worse.", "",
             "| side | gap, weights evaluated in BF16 | gap in its own precision | gap in its own precision before training |",
             "|---|---|---|---|"]
    figures, good = [], len(seeds) == len(study.options.seeds)
    for side in (*RECIPES, "bf16_again"):
        base = BASELINE if side in RECIPES else ["bf16"]
        gaps = [interval([100 * (losses[side, seed][which] / np.mean([losses[b, seed][which] for b in base]) - 1) for seed in seeds])
                for which in (0, 1)]
        start = f"{100 * (starts[side] / starts['bf16'] - 1):+.3f}%" if side in starts else ""
        lines.append(f"| {side} | {shown(*gaps[0])} | {shown(*gaps[1])} | {start} |")
        figures.append(f"gap_{side}={gaps[0][0]:+.3f}% own_{side}={gaps[1][0]:+.3f}%" + (f" start_{side}={start}" if start else ""))
        good &= abs(gaps[0][0]) <= LOSS_PERCENT
    bf16 = [losses["bf16", seed][0] for seed in seeds]
    lines += ["", f"BF16 begins at {starts['bf16']:.4f} and ends at {np.mean(bf16):.4f}.", ""]
    (study.options.results / f"{NAME}.md").write_text("\n".join(lines))
    print("\n".join(lines))
    print(f"seeds={len(seeds)}", *figures)
    return 0 if good else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=seed_list, default="3", help="3: 1 to 3; 2-4: 2 to 4; 3,7: those")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "studies/results")
    parser.add_argument("--report_only", action="store_true", help="run nothing")
    options = parser.parse_args()
    for path in (OCTAVO, *TEXTS):
        if not path.exists():
            sys.exit(f"wanted {path}, found none; build octavo, or set OCTAVO_TEST_DATA")
    with tempfile.TemporaryDirectory(prefix="octavo-study-") as name:
        study = Study(options, pathlib.Path(name))
        if not options.report_only:
            run_all(study)
        return report(study)


if __name__ == "__main__":
    sys.exit(main())
