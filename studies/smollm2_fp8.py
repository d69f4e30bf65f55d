#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# study:
"""SmolLM2-135M goes on training in BF16 and in FP8: the same weights, batches and schedule, on FineWeb-Edu, C4 and
Wikipedia. What is the gap in validation loss, and in HellaSwag?

Every side's result goes to results/smollm2_fp8.json when it is done, and is not made again under the same settings (a
hash of them, of the text and of the model), so the study may be stopped and started at will. The program is not in that
hash: after a change to its numbers, delete the sides it touches. With all sides there it writes results/smollm2_fp8.md.
"""
import argparse
import fcntl
import hashlib
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "conformance"))
import smollm2_model

BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release"))
OCTAVO = BUILD / "bin" / "octavo"
DATA = smollm2_model.DATA / "data"
TEXTS = [DATA / "text" / name for name in ("fineweb_sample.txt", "c4_demo.jsonl", "wiki_demo.txt")]
ROWS = DATA / "eval" / "hellaswag_val.jsonl"
NAME = "smollm2_fp8"
RECIPES = ["delayed", "rowwise", "mxfp8"]
# BF16 with a change too small to matter (AdamW's epsilon by 1%): how far two runs of the same quality are apart.
CONTROL = "bf16_again"
SIDES = ["bf16", *RECIPES, CONTROL]
LOSS_PERCENT, POINTS = 1.0, 1.0  # aims, either way
DOCUMENT_BYTES = 4000


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--sides", default=",".join(SIDES), help="what to run")
    parser.add_argument("--steps", type=int, default=48)
    parser.add_argument("--batch", type=int, default=4, help="samples in a step")
    parser.add_argument("--length", type=int, default=512, help="tokens in a sample")
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--eval_batches", type=int, default=16)
    parser.add_argument("--rows", type=int, default=1000, help="of HellaSwag")
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "studies/results")
    options = parser.parse_args()
    options.sides = options.sides.split(",")
    unknown = [side for side in options.sides if side not in SIDES]
    if unknown:
        parser.error(f"wanted sides of {','.join(SIDES)}, found {','.join(unknown)}")
    return options


def settings_of(options):
    """What a run is told, but for its precision."""
    return {"max_seq_length": options.length, "batch_size": options.batch, "max_steps": options.steps,
            "learning_rate": options.lr, "warmup_steps": options.steps // 10, "weight_decay": 0.1, "seed": 1,
            "val_fraction": 0.15, "eval_freq": max(1, options.steps // 4), "eval_batches": options.eval_batches,
            "checkpoint_freq": 0, "log_freq": 1}


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


def config_hash(settings, options):
    digest = hashlib.sha256(json.dumps([settings, options.rows, smollm2_model.WEIGHTS_SHA256], sort_keys=True).encode())
    for path in [*TEXTS, ROWS]:
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:12]


class Results:
    """The JSON file: one entry per side, written when it is done. One study at a time may hold it."""

    def __init__(self, path, config):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.config, self.lock = path, config, open(path.with_suffix(".lock"), "w")
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"wanted {path} for ourselves, found another study at work on it; wait for it or end it")
        stored = json.loads(path.read_text()) if path.exists() else {}
        self.sides = stored["sides"] if stored.get("config") == config else {}
        if stored and not self.sides:
            print(f"{path.name} is of other settings: its {len(stored['sides'])} sides will be replaced")

    def add(self, side, result):
        self.sides[side] = result
        temporary = self.path.with_suffix(".tmp")
        lines = ",\n".join(f'  {json.dumps(name)}: {json.dumps(found)}' for name, found in self.sides.items())
        temporary.write_text(f'{{"config": "{self.config}", "sides": {{\n{lines}\n}}}}\n')
        temporary.replace(self.path)

    def release(self):
        self.lock.close()
        self.path.with_suffix(".lock").unlink(missing_ok=True)


def octavo(folder, *arguments):
    done = subprocess.run([OCTAVO, *map(str, arguments)], cwd=folder, env=os.environ | {"OMP_WAIT_POLICY": "passive"},
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"octavo {arguments[0]} ended with exit code {done.returncode}; nothing was recorded; its last lines:\n"
                 f"{done.stdout[-1000:]}{done.stderr[-2000:]}")
    return done.stdout


def train(settings, side, model, text, cache, folder):
    """{step: validation loss}, tokens evaluated and tokens a second."""
    precision = {"mixed_precision": "fp8", "fp8_recipe": side} if side in RECIPES else {"mixed_precision": "bf16"}
    if side == CONTROL:
        precision["adam_eps"] = 1.01e-8
    given = {"model_name": model, "tokenizer": model, "dataset": text, "data_cache": cache, "run_name": "run",
             "checkpoint_dir": folder / "checkpoints", **settings, **precision}
    octavo(folder, "train", *(f"--{key}={value}" for key, value in given.items()))
    records = [json.loads(line) for line in (folder / "runs/run/metrics.jsonl").read_text().splitlines()]
    ran = {record["precision"] for record in records if "precision" in record}
    if len(ran) != 1 or next(iter(ran)).startswith("FP8") != (side in RECIPES):
        sys.exit(f"{side}: wanted every step in this precision, found {sorted(ran)}")
    evaluations = [record for record in records if "val/loss" in record]
    speed = sorted(record["perf/tokens_per_second"] for record in records if "train/loss" in record)
    return {"val": {str(r["step"]): r["val/loss"] for r in evaluations}, "val_tokens": evaluations[-1]["val/tokens"],
            "precision": next(iter(ran)), "tokens_per_second": round(speed[len(speed) // 2], 1)}


def hellaswag(checkpoint, rows, folder):
    """Weights of every side are evaluated in BF16. The answers as digits, row by row: right, and right per character."""
    predictions = folder / "predictions.jsonl"
    out = octavo(folder, "eval", "--checkpoint", checkpoint, "--eval_task", "hellaswag", "--eval_data", ROWS,
                 "--eval_limit", rows, "--mixed_precision", "bf16", "--json", "--output", predictions)
    summary = json.loads(out.splitlines()[-1])
    found = [json.loads(line) for line in predictions.read_text().splitlines()]
    if len(found) != rows:
        sys.exit(f"wanted {rows} rows of HellaSwag, found {len(found)}")
    return {"acc": summary["acc"], "acc_norm": summary["acc_norm"],
            "right": "".join(str(int(r["pred"] == r["label"])) for r in found),
            "right_norm": "".join(str(int(r["pred_norm"] == r["label"])) for r in found)}


def run_all(options, settings, results):
    model, left = smollm2_model.folder(), [side for side in options.sides if side not in results.sides]
    print(f"{len(options.sides)} sides, {len(options.sides) - len(left)} already in {results.path.name}", flush=True)
    with tempfile.TemporaryDirectory(prefix="octavo-study-") as temporary:
        work = pathlib.Path(temporary)
        (work / "text.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in documents()))
        for side in left:
            begin = time.monotonic()
            with tempfile.TemporaryDirectory(dir=work, prefix=side) as name:
                folder = pathlib.Path(name)
                result = train(settings, side, model, work / "text.jsonl", work / "data", folder)
                trained = time.monotonic()
                checkpoint = folder / "checkpoints" / "run" / f"step-{options.steps:08d}"
                result |= hellaswag(checkpoint, options.rows, folder)
            result |= {"train_seconds": round(trained - begin), "eval_seconds": round(time.monotonic() - trained)}
            results.add(side, result)
            print(f"{side}: val loss {result['val'][str(options.steps)]:.4f}, acc {result['acc']:.4f}, acc_norm "
                  f"{result['acc_norm']:.4f}, {result['train_seconds']} + {result['eval_seconds']} s", flush=True)


def gaps(sides, side, steps):
    """Loss gap to BF16 in percent; gaps of acc and acc_norm in points; rows that went wrong and right by the change."""
    mine, other, last = sides[side], sides["bf16"], str(steps)
    changed = [[a + b for a, b in zip(other[key], mine[key])] for key in ("right", "right_norm")]
    return (100 * (mine["val"][last] / other["val"][last] - 1), 100 * (mine["acc"] - other["acc"]),
            100 * (mine["acc_norm"] - other["acc_norm"]), [(c.count("10"), c.count("01")) for c in changed])


def table_of(options, sides):
    first, last = (f(map(int, sides["bf16"]["val"])) for f in (min, max))
    tokens = options.batch * options.length
    lines = [
        "# SmolLM2-135M in FP8 and in BF16", "", "Written by `studies/smollm2_fp8.py`; all figures are in `smollm2_fp8.json`.",
        "", f"The pretrained model (weights out of a Q4_1 file, see tests/conformance/smollm2_model.py) goes on for "
        f"{options.steps} steps of {options.batch} x {options.length} tokens ({options.steps * tokens / 1e3:.0f}k) of "
        f"FineWeb-Edu, C4 and Wikipedia at a learning rate of {options.lr:g}; one seed, the same batches for all. "
        f"Validation: {sides['bf16']['val_tokens']:,} tokens that were not trained on, in the precision of the side. "
        f"HellaSwag: the first {options.rows:,} rows, computed in BF16 with the weights of each side. Gaps are to BF16; "
        "positive loss gaps and negative points mean that FP8 is worse.", "",
        f"| side | ran as | loss at step {first} | final loss | gap | acc | gap, points | acc_norm | gap, points | rows "
        "lost and won (acc; acc_norm) |", "|---|---|---|---|---|---|---|---|---|---|"]
    for side in (name for name in SIDES if name in sides):
        r, (loss, acc, norm, rows) = sides[side], gaps(sides, side, options.steps)
        lines.append(f"| {side} | {r['precision']} | {r['val'][str(first)]:.4f} | {r['val'][str(last)]:.4f} | {loss:+.3f}% | "
                     f"{r['acc']:.4f} | {acc:+.1f} | {r['acc_norm']:.4f} | {norm:+.1f} | "
                     + "; ".join(f"{lost}, {won}" for lost, won in rows) + " |")
    lines += ["", f"Aims: the loss within {LOSS_PERCENT:g}%, HellaSwag within {POINTS:g} point. `{CONTROL}` is BF16 with "
              "AdamW's epsilon 1% larger: what chance alone does.", ""]
    return "\n".join(lines)


def report(options, sides):
    missing = [side for side in ["bf16", *options.sides] if side not in sides]
    if missing:
        print(f"not there: {' '.join(missing)}")
        return 1
    if all(side in sides for side in SIDES):
        table = table_of(options, sides)
        (options.results / f"{NAME}.md").write_text(table)
        print(table)
    figures, good = [], True
    for side in (name for name in options.sides if name != "bf16"):
        loss, acc, norm, _ = gaps(sides, side, options.steps)
        figures.append(f"loss_{side}={loss:+.3f}% acc_{side}={acc:+.1f} acc_norm_{side}={norm:+.1f}")
        good &= side not in RECIPES or (abs(loss) <= LOSS_PERCENT and max(abs(acc), abs(norm)) <= POINTS)
    bf16 = sides["bf16"]
    print(f"steps={options.steps} rows={options.rows} bf16_loss={bf16['val'][str(options.steps)]:.4f} "
          f"bf16_acc={bf16['acc']:.4f} bf16_acc_norm={bf16['acc_norm']:.4f}", *figures)
    return 0 if good else 1


def main():
    options = arguments()
    for path in (OCTAVO, ROWS, *TEXTS):
        if not path.exists():
            sys.exit(f"wanted {path}, found none; build octavo, or set OCTAVO_TEST_DATA")
    settings = settings_of(options)
    results = Results(options.results / f"{NAME}.json", config_hash(settings, options))
    try:
        run_all(options, settings, results)
        return report(options, results.sides)
    finally:
        results.release()


if __name__ == "__main__":
    sys.exit(main())
