#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate="--short" night=""
"""FP8 and checkpoints. A run of each recipe, stopped twice by SIGTERM and once by kill -9 at random steps and resumed each
time, has the records and the final tensors (weights, moments, FP8 scaling) of a run that was left alone, bit for bit. A
run that resumes half way in another precision or recipe ends within 1% of the validation loss of the one that did not.

usage: fp8_resume.py [--short]    --short: a recipe with a history, one with blocks and one that draws numbers, and five switches"""
import json
import pathlib
import random
import signal
import subprocess
import sys
import tempfile

import common
from common import OCTAVO, STOPPED, interrupt

STEPS, HALF = 32, 16
MAX_SWITCH_PERCENT = 1
ATTEMPTS = 5  # a signal may come after the last step
SHORT = "--short" in sys.argv
RECIPES = ("delayed", "mxfp8", "nvfp4") if SHORT else ("delayed", "current", "rowwise", "blockwise", "mxfp8", "nvfp4")
SWITCHES = [("delayed", "bf16"), ("bf16", "mxfp8"), ("delayed", "mxfp8"), ("mxfp8", "delayed"), ("nvfp4", "bf16")] if SHORT else [(recipe, "bf16") for recipe in RECIPES] + [("bf16", recipe) for recipe in RECIPES] + [
    ("delayed", "mxfp8"), ("mxfp8", "delayed"), ("current", "blockwise"), ("blockwise", "rowwise"), ("rowwise", "current")]
# Statistics come right after an evaluation (step 9), with one (24), and away from any. All checkpoints stay.
CONFIG = f"""
model_name: custom
n_layer: 1
n_head: 2
n_embd: 128
max_seq_length: 32
batch_size: 4
gradient_accumulation_steps: 2
max_steps: {STEPS}
learning_rate: 2e-3
eval_freq: 8
eval_batches: 32
sample_freq: 16
sample_tokens: 5
checkpoint_freq: 4
keep_checkpoints: 0
num_threads: 2
run_name: run
"""
FP8_CONFIG = "mixed_precision: fp8\nfp8_stats_freq: 3\nfp8_amax_history: 16\nfp8_recipe: "


class Folder(common.Folder):
    """A run in BF16 or by a recipe, whose checkpoints are where they are by default or where a switch puts them."""

    def __init__(self, path, mode, checkpoints=None):
        self.mode, in_fp8 = mode, mode in RECIPES
        super().__init__(path, CONFIG + (FP8_CONFIG + mode + "\n" if in_fp8 else ""),
                         checkpoints or ("checkpoints_fp8" if in_fp8 else "checkpoints"))

    def continue_run(self):
        """Starts, or resumes: saves land in the background, so a kill soon after the first leaves nothing to resume."""
        return self.start(*(() if not (self.path / "runs").exists() else self.again()))

    def val_loss(self):
        return next(r["val/loss"] for r in self.records() if r["step"] == STEPS and "val/loss" in r)

    def label(self):
        return ("FP8 rehearsal", self.mode) if self.mode in RECIPES else ("BF16", "")

    def mislabelled(self):
        """[what the last manifest says instead of the precision and the recipe]"""
        manifest = self.manifest(STEPS)
        found = manifest["precision"], manifest["recipe"]
        return [] if found == self.label() else [f"manifest: {found}"]

    def mislisted(self):
        """What of `checkpoints list` and its JSON does not say them."""
        found, (precision, recipe) = [], self.label()
        command = [OCTAVO, "checkpoints", "list", self.checkpoints]
        rows = json.loads(subprocess.run([*command, "--json"], stdout=subprocess.PIPE, check=True).stdout)
        if not rows or any((row["precision"], row["recipe"]) != (precision, recipe) for row in rows):
            found.append(f"checkpoints list --json: {rows[-1:]}")
        table = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout.splitlines()[1:]
        if len(table) != len(rows) or any(f" {precision} {recipe}".rstrip() not in row for row in table):
            found.append(f"checkpoints list: {table[-1:]}")
        return found


def stopped_and_resumed(work, recipe, chance):
    """A run that was stopped three times, and the steps it was stopped at."""
    for attempt in range(ATTEMPTS):
        folder = Folder(work / f"{recipe}-stopped-{attempt}", recipe)
        # Not before the first save, and early enough for the signal to come before the end.
        steps = sorted(chance.sample(range(5, STEPS - 6 - 3 * attempt), 3))
        signals = chance.sample([signal.SIGTERM, signal.SIGTERM, signal.SIGKILL], 3)
        codes = [interrupt(folder.continue_run(), steps[i], signals[i]) for i in range(3)]
        wanted = [-number if number == signal.SIGKILL else STOPPED for number in signals]
        if codes == wanted:
            folder.finish_or_exit("--resume", "latest")
            return folder, [f"{number.name} {step}" for number, step in zip(signals, steps)]
        if any(code not in (0, want) for code, want in zip(codes, wanted)):
            sys.exit(f"{recipe}: stops {signals} at {steps} ended with {codes}, wanted {wanted}:\n{folder.log()}")
    sys.exit(f"{recipe}: {ATTEMPTS} runs ended before they could be stopped")


def differences(folder, reference):
    """What a resumed run has otherwise than the run that was left alone."""
    found = [common.record_difference(folder.records(), reference.records())]
    mine, wanted = folder.tensors(STEPS), reference.tensors(STEPS)
    groups = ["model.safetensors", "optimizer.safetensors"]
    if sorted(wanted) != (["fp8.safetensors"] if folder.mode == "delayed" else []) + groups:
        found.append(f"the checkpoint has {sorted(wanted)}")
    found += [f"{name} differs" for name in sorted(mine.keys() | wanted.keys()) if mine.get(name) != wanted.get(name)]
    for name in ("data_position", "optimizer_steps", "best_val_loss", "fp8"):
        a, b = (f.manifest(STEPS)["extra"][name] for f in (folder, reference))
        if a != b:
            found.append(f"{name} is {a}, wanted {b}")
    return list(filter(None, found))


def described(mode):
    """A precision as the log names it."""
    if mode not in RECIPES:
        return "BF16"
    formats = {"delayed": "hybrid", "current": "hybrid", "nvfp4": "e2m1"}
    return f"FP8 {mode} {formats.get(mode, 'e4m3')}"


def switch(work, references, before, after):
    """Continues half way in another way. Returns the change of the final validation loss in percent, and what is wrong."""
    folder = Folder(work / f"{before}-to-{after}", after, "switched")
    folder.finish_or_exit("--resume", references[before].step(HALF), "--checkpoint_dir", "switched")
    found = folder.mislabelled()
    trained = [r for r in folder.records() if "train/loss" in r]
    precision = folder.label()[0]
    if [r["step"] for r in trained] != list(range(HALF + 1, STEPS + 1)) or {r["precision"] for r in trained} != {precision}:
        found.append(f"{len(trained)} steps in {set(r['precision'] for r in trained)}, wanted {STEPS - HALF} in {precision}")
    said = "the checkpoint was trained in {}, training continues in {}".format(
        *(described(mode) for mode in (before, after)))
    if said not in folder.log():
        found.append(f"the log does not say '{said}'")
    return 100 * abs(folder.val_loss() / references[before].val_loss() - 1), found


def main():
    common.require_files()
    chance = random.Random(4)
    resumes = different = wrong = 0
    worst = 0.0
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        common.prepare_data(work)
        references = {}
        for mode in ("bf16", *RECIPES):
            reference = references[mode] = Folder(work / mode, mode)
            reference.finish_or_exit()
            found = reference.mislabelled() + reference.mislisted()
            places = sorted(p.name for p in reference.path.glob("checkpoints*"))
            wanted = reference.checkpoints.parent.name
            if places != [wanted]:
                found.append(f"checkpoints in {places}, wanted {wanted}")
            wrong += bool(found)
            print(f"{mode}: validation loss {reference.val_loss():.4f}; {'; '.join(found) or 'named as it is'}", flush=True)
        for recipe in RECIPES:
            folder, stops = stopped_and_resumed(work, recipe, chance)
            found = differences(folder, references[recipe])
            resumes += len(stops)
            different += bool(found)
            print(f"{recipe}: {', '.join(stops)}: {'; '.join(found) or 'same'}", flush=True)
        for before, after in SWITCHES:
            percent, found = switch(work, references, before, after)
            worst = max(worst, percent)
            wrong += bool(found)
            print(f"{before} to {after}: {percent:.3f}% off; {'; '.join(found) or 'as wanted'}", flush=True)
    print(f"recipes={len(RECIPES)} resumes={resumes} bitwise_different={different} switches={len(SWITCHES)} "
          f"worst_switch_percent={worst:.3f} wrong={wrong}")
    sys.exit(1 if different or wrong or worst > MAX_SWITCH_PERCENT else 0)


if __name__ == "__main__":
    main()
