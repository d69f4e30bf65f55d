#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate="--short" night="" alone=night
"""Runs of whole epochs, stopped and resumed at random with another batch_size, gradient_accumulation_steps, number of
ranks (1 or 2, through octavo launch), sharding_mode, target_effective_batch_size, auto_batch_size and num_epochs: every
sample is seen exactly once in each epoch that was asked for, in the order of a run that was never stopped.

The samples are those that record_samples writes into metrics.jsonl, from the batches that were trained on.

usage: epochs.py [--resumes N] [--seed N] [--short]
"""
import argparse
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile

import common
from common import OCTAVO, STOPPED

LENGTH, MOST_EPOCHS = 16, 8
CONFIG = f"""
model_name: custom
n_layer: 1
n_head: 2
n_embd: 16
max_seq_length: {LENGTH}
max_steps: 0
warmup_steps: 0
learning_rate: 1e-3
val_fraction: 0
eval_freq: 0
checkpoint_freq: 7
keep_checkpoints: 2
mixed_precision: fp32
num_threads: 1
record_samples: true
run_name: run
"""
MODES = ("ddp", "zero1", "zero2", "fsdp_full")


def prepare(work, chance):
    """A data set of a few hundred samples, no round number of them."""
    text = "".join(chance.choice("abcdefghij klmnop\n") for _ in range(311 * LENGTH + 5))
    (work / "text.txt").write_text(text)
    subprocess.run([OCTAVO, "data", "prepare", "--dataset", work / "text.txt", "--tokenizer", "bytes", "--val_fraction", "0",
                    "--output", work / "data"], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Folder(common.Folder):
    def start_ranks(self, ranks, *flags):
        if ranks == 1:
            return self.start(*flags)
        with open(self.path / "stderr.txt", "a") as log:
            return subprocess.Popen(
                [OCTAVO, "launch", "--nproc", str(ranks), "--", "train", "train.yaml", "--dataset", self.path.parent / "data",
                 *flags], cwd=self.path, env=common.page_environment() | {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE, stderr=log, text=True)

    def steps(self):
        """The records of steps; a line that a kill has cut short is none."""
        text = (self.path / "runs" / "run" / "metrics.jsonl").read_text()
        lines = text.splitlines() if text.endswith("\n") else text.splitlines()[:-1]
        return [record for record in map(json.loads, lines) if "train/loss" in record]


def choose_step(chance):
    """Flags that say how large a step is."""
    how = chance.random()
    if how < 0.15:
        return ["--target_effective_batch_size", str(2 * chance.randint(1, 16)), "--batch_size", str(chance.randint(1, 8))]
    if how < 0.25:
        return ["--auto_batch_size", "true", "--max_batch_size", str(chance.randint(1, 6))]
    return ["--batch_size", str(chance.randint(1, 9)), "--gradient_accumulation_steps", str(chance.choice((1, 1, 2, 3, 4)))]


def problems(steps, order, epochs, size, finished):
    """What is not as asked in the records of a run up to now."""
    found = []
    seen = [sample for step in steps for sample in step["data/samples"]]
    if [step["step"] for step in steps] != list(range(1, len(steps) + 1)):
        found.append("steps are missing or twice in metrics.jsonl")
    if seen != order[:len(seen)]:
        first = next((i for i, (a, b) in enumerate(zip(seen, order)) if a != b), len(order))
        found.append(f"sample {first} is another one than in the run that was never stopped")
    for epoch in range(0, len(seen), size):
        part = seen[epoch:epoch + size]
        if len(set(part)) != len(part):
            found.append(f"epoch {epoch // size} has a sample twice")
    count = 0
    for step in steps:
        count += len(step["data/samples"])
        if step["data/position"] != count or step["tokens"] != count * LENGTH:
            found.append(f"step {step['step']}: data/position {step['data/position']}, tokens {step['tokens']} after {count} samples")
            break
    if finished and len(seen) != epochs * size:
        found.append(f"{len(seen)} samples seen, {epochs} epochs of {size} asked for")
    if not finished and len(seen) >= epochs * size:
        found.append("stopped behind its end")
    return found


class History:
    """One run and its resumes."""

    def __init__(self, work, number, size, order):
        self.folder = Folder(work / f"run-{number}", CONFIG)
        self.epochs, self.finished, self.starts, self.size, self.order = 0, True, 0, size, order

    def continue_run(self, chance):
        """Starts or resumes it with other flags and stops it somewhere, or lets it end. Returns what was wrong, and what was
        done."""
        self.epochs += chance.randint(1, 2) if self.finished else chance.choice((0, 0, 1))
        ranks = chance.choice((1, 1, 2))
        flags = choose_step(chance) + ["--num_epochs", str(self.epochs)]
        if ranks > 1:
            flags += ["--sharding_mode", chance.choice(MODES)]
        if self.starts > 0:
            flags += ["--resume", "latest"]
        before = self.folder.steps()[-1]["step"] if self.starts > 0 else 0
        process = self.folder.start_ranks(ranks, *flags)
        how = chance.choice(("end", "stop", "stop", "kill"))
        if how != "end" and common.wait_for_step(process, before + chance.randint(1, 30)):
            # A launcher passes a request to stop on; nobody can pass on a kill.
            process.send_signal(signal.SIGKILL if how == "kill" and ranks == 1 else signal.SIGTERM)
        process.communicate()
        self.starts += 1
        code = process.returncode
        what = f"{ranks} ranks, {' '.join(flags)}: exit code {code}"
        if code not in (0, STOPPED, -signal.SIGKILL):
            return [f"ended with {code}:\n{self.folder.log()[-2000:]}"], what
        self.finished = code == 0
        if code == -signal.SIGKILL and not self.folder.newest():
            return [], what + " before the first save"
        steps = self.folder.steps()
        if code == -signal.SIGKILL:  # what was not saved is done again
            steps = [step for step in steps if step["step"] <= self.folder.newest()]
        return problems(steps, self.order, self.epochs, self.size, self.finished), what


def reference(work):
    """The order in which a run that is never stopped sees the samples, and how many an epoch has."""
    folder = Folder(work / "reference", CONFIG)
    folder.finish_or_exit("--num_epochs", str(MOST_EPOCHS + 2), "--batch_size", "31", "--checkpoint_freq", "0")
    order = [sample for step in folder.steps() for sample in step["data/samples"]]
    size = len(order) // (MOST_EPOCHS + 2)
    for epoch in range(MOST_EPOCHS + 2):
        if sorted(order[epoch * size:(epoch + 1) * size]) != list(range(size)):
            sys.exit(f"epoch {epoch} of the run that was never stopped does not have every sample once")
    return order, size


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--resumes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--short", action="store_true", help="8 resumes")
    arguments = parser.parse_args()
    common.require_files()
    wanted, chance = 8 if arguments.short else arguments.resumes, random.Random(arguments.seed)
    resumes = exact = wrong = runs = ends = 0
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        prepare(work, chance)
        order, size = reference(work)
        print(f"{size} samples in an epoch", flush=True)
        history = None
        while resumes < wanted:
            if history is None or (history.finished and history.epochs >= MOST_EPOCHS - 1):
                history, runs = History(work, runs, size, order), runs + 1
            resumed = history.starts > 0
            found, what = history.continue_run(chance)
            resumes += resumed
            exact += resumed and not found
            wrong += bool(found)
            ends += history.finished
            print(f"run {runs}, resume {resumes}: {what}: {'; '.join(found) or 'as asked'}", flush=True)
            if found or not history.folder.newest():
                history = None  # a run that went wrong says nothing more
    print(f"runs={runs} ends={ends} resumes={resumes} epochs_exact={exact} wrong={wrong}")
    sys.exit(1 if wrong or exact < wanted else 0)


if __name__ == "__main__":
    main()
