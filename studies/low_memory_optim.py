#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# study:
"""What does it cost to keep weights, moments and gradients in fewer bits? Two models, three seeds: a GPT-2 of 3.3 million
parameters from nothing on books, byte by byte, and the pretrained SmolLM2-135M going on with web text. Within a seed
all runs have the same weights, batches and schedule, and differ in master_dtype, moment_dtype and gradient_dtype.

A run's validation loss and bytes per parameter (of its receipt) go to results/low_memory_optim.csv when it is done,
and it is not run again under the same settings (the column config is a hash of them and of the text), so the study may
be stopped and started at will. The program is not in that hash: after a change to its numbers, delete the rows of the
runs it touches. The table results/low_memory_optim.md has the models whose runs are all there: the gap of the final
validation loss to FP32 state of the same seed, in percent, with the 95% interval of a paired t test.
"""
import argparse
import hashlib
import json
import pathlib
import sys
import tempfile
import time

import numpy as np

from runs import DATA, OCTAVO, ROOT, Table, clock, octavo_train, seed_list, t_quantile, validation_losses

sys.path.insert(0, str(ROOT / "tests/conformance"))
import smollm2_model

NAME = "low_memory_optim"
COLUMNS = ["model", "seed", "state", "step", "val_loss", "bytes_per_parameter", "config"]
# master, moments, gradients. The first is what the others are compared with.
STATES = {"fp32/fp32, FP32 gradients": ("fp32", "fp32", "fp32"), "fp32/fp32": ("fp32", "fp32", "bf16"),
          "bf16/bf16": ("bf16", "bf16", "bf16"), "bf16/fp8": ("bf16", "fp8", "bf16")}
FULL = next(iter(STATES))
MOST_BYTES = {"fp32/fp32": 16.05, "bf16/bf16": 8.05, "bf16/fp8": 6.2}  # norms and biases are FP32: a bit above 16 and 8
AIM = 1.0  # percent of the validation loss, either way


class Model:
    """What a run of a model is told, but for its seed and the state's types."""

    def __init__(self, text, what, **settings):
        self.text, self.what = [DATA / "data" / "text" / name for name in text], what
        self.settings = {"mixed_precision": "bf16", "val_fraction": 0.1, "checkpoint_freq": 0,
                         "eval_freq": settings["max_steps"], "log_freq": settings["max_steps"], **settings}

    def steps(self):
        return self.settings["max_steps"]

    def files(self):
        return [file for path in self.text for file in (sorted(path.iterdir()) if path.is_dir() else [path])]

    def hash(self):
        digest = hashlib.sha256(json.dumps(self.settings, sort_keys=True).encode())
        for file in self.files():
            digest.update(file.name.encode() + file.read_bytes())
        return digest.hexdigest()[:12]

    def flags(self):
        return {**self.settings, "dataset": self.text}


class SmolLM2(Model):
    def flags(self):
        folder = smollm2_model.folder()
        return {**super().flags(), "model_name": folder, "init_from": folder, "tokenizer": folder}


def models(options):
    gpt2 = Model(["gutenberg"], "GPT-2 with 4 blocks of width 256, from nothing, on the bytes of 16 books",
                 model_name="custom", n_layer=4, n_head=4, n_embd=256, tokenizer="bytes", max_seq_length=64,
                 batch_size=16, max_steps=options.gpt2_steps, learning_rate=1e-3, min_lr_ratio=0, beta2=0.99,
                 eval_batches=100)
    smollm2 = SmolLM2(["fineweb_sample.txt", "wiki_demo.txt"],
                      "SmolLM2-135M going on with web text and Wikipedia", max_seq_length=512, batch_size=2,
                      max_steps=options.smollm2_steps, learning_rate=1e-4, min_lr_ratio=0, warmup_steps=3,
                      eval_batches=12)
    return {"gpt2": gpt2, "smollm2": smollm2}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--models", default="gpt2,smollm2", help="which of them to run")
    parser.add_argument("--seeds", type=seed_list, default="3", help="3: 1 to 3; 2-4: 2 to 4; 3,7: those")
    parser.add_argument("--gpt2_steps", type=int, default=500)
    parser.add_argument("--smollm2_steps", type=int, default=24)
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "studies/results", help="folder for table, CSV")
    parser.add_argument("--report_only", action="store_true", help="run nothing; report on the models that are complete")
    options = parser.parse_args()
    options.models = options.models.split(",")
    if unknown := set(options.models) - set(models(options)):
        parser.error(f"wanted models of {','.join(models(options))}, found {','.join(sorted(unknown))}")
    if not options.seeds or min(options.gpt2_steps, options.smollm2_steps) < 2:
        parser.error("wanted seeds, and two steps or more")
    return options


class Results:
    """The rows of results/low_memory_optim.csv: one per evaluation."""

    def __init__(self, path):
        self.table = Table(path, COLUMNS)

    def of(self, name, model):
        """{(state, seed): (final loss, bytes per parameter)} of the runs that are whole."""
        config, last = model.hash(), str(model.steps())
        return {(row["state"], int(row["seed"])): (float(row["val_loss"]), float(row["bytes_per_parameter"]))
                for row in self.table.rows() if row["config"] == config and row["model"] == name and row["step"] == last}

    def add(self, name, model, state, seed, curve, size):
        self.table.add(*([name, seed, state, step, repr(loss), f"{size:.4f}", model.hash()] for step, loss in sorted(curve.items())))


def train(model, state, seed, cache):
    """({step: validation loss}, bytes per parameter) of one run, or None when it failed."""
    master, moments, gradients = STATES[state]
    given = {**model.flags(), "data_cache": cache, "seed": seed, "master_dtype": master, "moment_dtype": moments,
             "gradient_dtype": gradients}
    given["dataset"] = ",".join(map(str, given["dataset"]))
    made = octavo_train(given, f"{state}, seed {seed}")
    if made is None:
        return None
    records, receipt, _ = made
    kept = receipt["optimizer"]
    found = (kept["master_dtype"], kept["moment_dtype"], kept["gradient_dtype"])
    if found != STATES[state]:
        sys.exit(f"{state}, seed {seed}: wanted state in {STATES[state]}, found {found}")
    return validation_losses(records), kept["bytes_per_parameter"]


def run_all(name, model, seeds, results):
    runs = [(state, seed) for seed in seeds for state in STATES]
    there = results.of(name, model)
    left = [run for run in runs if run not in there]
    print(f"{name}: {len(runs)} runs, {len(runs) - len(left)} already there", flush=True)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="octavo-study-data-") as cache:
        for number, (state, seed) in enumerate(left, 1):
            begin = time.monotonic()
            made = train(model, state, seed, cache)
            if made is None:
                continue
            results.add(name, model, state, seed, *made)
            now = time.monotonic()
            print(f"{number}/{len(left)} {name} seed {seed} {state}: val loss {made[0][model.steps()]:.4f}, "
                  f"{made[1]:.2f} bytes per parameter, in {clock(now - begin)}; about "
                  f"{clock((now - start) / number * (len(left) - number))} left", flush=True)


def gap_of(runs, state, seeds):
    """Mean gap to FP32 state, half of its 95% interval (nan for one seed), and each seed's; percent."""
    gaps = np.array([100 * (runs[state, seed][0] / runs[FULL, seed][0] - 1) for seed in seeds])
    n = len(gaps)
    half = t_quantile(n - 1) * float(gaps.std(ddof=1)) / np.sqrt(n) if n > 1 else float("nan")
    return float(gaps.mean()), half, gaps


def section(model, runs, seeds):
    s = model.settings
    lines = [f"## {model.what}", "",
             f"{s['max_steps']} steps of {s['batch_size']} x {s['max_seq_length']} tokens, learning rate "
             f"{s['learning_rate']:g}, beta2 {s.get('beta2', 0.95):g}, seeds {', '.join(map(str, seeds))}; loss over "
             f"{s['eval_batches'] * s['batch_size'] * s['max_seq_length']:,} tokens that were not trained on. Gaps are "
             "to FP32 state of the same seed; positive is worse.", "",
             "| master/moments | gradients | bytes per parameter | final loss | mean gap | 95% interval | gaps of the "
             "seeds |", "|---|---|---|---|---|---|---|"]
    for state, (master, moments, gradients) in STATES.items():
        loss = np.mean([runs[state, seed][0] for seed in seeds])
        mean, half, gaps = gap_of(runs, state, seeds)
        rest = "| | |" if state == FULL else (
            f"{mean:+.3f}% | {mean - half:+.3f}% to {mean + half:+.3f}% | {', '.join(f'{gap:+.3f}%' for gap in gaps)} |")
        lines.append(f"| {master}/{moments} | {gradients} | {runs[state, seeds[0]][1]:.2f} | {loss:.4f} | {rest}")
    return lines + [""]


def report(options, results):
    """Writes the table of the models that are complete and prints the figures. The exit code."""
    lines = ["# Weights, moments and gradients in fewer bits", "",
             f"Written by `studies/{NAME}`; every evaluation is in `{NAME}.csv`. BF16 and FP8 state is rounded "
             "stochastically; norms and biases keep FP32 state.", ""]
    figures, failed = [], False
    for name, model in models(options).items():
        runs = results.of(name, model)
        missing = [f"{state}/{seed}" for seed in options.seeds for state in STATES if (state, seed) not in runs]
        if missing:
            figures.append(f"{name}_missing={len(missing)}")
            failed |= name in options.models
            continue
        lines += section(model, runs, options.seeds)
        for state in list(STATES)[1:]:
            mean, half, _ = gap_of(runs, state, options.seeds)
            size = runs[state, options.seeds[0]][1]
            key = f"{name}_{state.replace('/', '_')}"
            figures.append(f"{key}_gap={mean:+.3f}% {key}_half={half:.3f}% {key}_bytes={size:.2f}")
            failed |= abs(mean) > AIM or size > MOST_BYTES[state]
    (options.results / f"{NAME}.md").write_text("\n".join(lines))
    print("\n".join(lines))
    print(*figures)
    return 1 if failed else 0


def main():
    options = arguments()
    for path, remedy in ((OCTAVO, "cmake --build --preset release --target octavo"),
                         (DATA / "data" / "text", "set OCTAVO_TEST_DATA")):
        if not path.exists():
            sys.exit(f"wanted {path}, found none; {remedy}")
    results = Results(options.results / f"{NAME}.csv")
    if not options.report_only:
        for name in options.models:
            run_all(name, models(options)[name], options.seeds, results)
    return report(options, results)


if __name__ == "__main__":
    sys.exit(main())
