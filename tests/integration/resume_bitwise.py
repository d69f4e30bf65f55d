#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate="--short" night=""
"""A run stopped at 20 random steps, by a signal it obeys, by kill -9 between saves and by kill -9 inside one, and
resumed each time: every later loss and the final weights are those of a run that was left alone, bit for bit. With --short: 8 stops."""
import glob
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile

import common
from common import DAMAGED, LEFT_BY_A_SAVE, OCTAVO, STOPPED, interrupt, wait_for_step

STEPS, CLEAN, KILLED, INSIDE = 60, 10, 10, 7
ATTEMPTS = 8  # a kill meant for the inside of a save may come too late, a signal after the last step
CONFIG = f"""
model_name: custom
n_layer: 2
n_head: 2
n_embd: 64
max_seq_length: 64
batch_size: 4
gradient_accumulation_steps: 2
max_steps: {STEPS}
learning_rate: 3e-3
penalty_weight: 1e-4
eval_freq: 10
eval_batches: 2
keep_checkpoints: 3
num_threads: 2
run_name: run
"""
# Moments of a save: it begins, its second file is open, its manifest is open, an older checkpoint is being deleted.
MOMENTS = (".tmp-*", ".tmp-*/optimizer.safetensors", ".tmp-*/manifest.json", ".del-*")


class Folder(common.Folder):
    def __init__(self, path, checkpoint_freq):
        super().__init__(path, CONFIG + f"checkpoint_freq: {checkpoint_freq}\n")

    def unreadable(self):
        """Checkpoints that `checkpoints verify` does not call whole."""
        folders = self.named("step-")
        if not folders:
            return 0
        done = subprocess.run([OCTAVO, "checkpoints", "verify", self.checkpoints], stdout=subprocess.PIPE, text=True)
        whole = [line for line in done.stdout.splitlines() if line.endswith(": whole")]
        if done.returncode != 0 or len(whole) != len(folders):
            print(f"{folders}, verify ended with {done.returncode}:\n{done.stdout}")
        return max(len(folders) - len(whole), 0 if done.returncode == 0 else 1)

    def best(self):
        return os.readlink(self.checkpoints / "best_model")


def stop_cleanly(folder, step, chance):
    code = interrupt(folder.start(), step, chance.choice([signal.SIGTERM, signal.SIGINT, signal.SIGUSR1]))
    if code not in (0, STOPPED):
        sys.exit(f"a stop at step {step} ended with exit code {code}, wanted {STOPPED}")
    return code == STOPPED


def kill_between(folder, step, chance):
    return interrupt(folder.start(), step, signal.SIGKILL) == -signal.SIGKILL


def kill_inside(folder, step, chance, moment):
    process = folder.start()
    wait_for_step(process, step)
    pattern = str(folder.checkpoints / moment)
    while process.poll() is None and not glob.glob(pattern, include_hidden=True):
        pass
    process.kill()
    process.communicate()
    return process.returncode == -signal.SIGKILL and bool(folder.named(*LEFT_BY_A_SAVE))


def stop(work, number, how, step, chance):
    """A fresh run, stopped as asked."""
    for attempt in range(ATTEMPTS):
        folder = Folder(work / f"stop-{number}-{attempt}", checkpoint_freq=1 if how is kill_inside else 7)
        # The short moments get half of the attempts: they can be missed.
        moment = MOMENTS[number % len(MOMENTS) if attempt < ATTEMPTS // 2 else 0]
        if how(folder, step, chance, *((moment,) if how is kill_inside else ())):
            return folder
        step = max(4, step - 3)
    sys.exit(f"stop {number}: {ATTEMPTS} runs could not be stopped as wanted")


def resume(folder):
    """Continues to the end, as a user would. After a kill before the first save there is nothing to resume."""
    if not folder.named("step-"):
        if folder.finish("--resume", "latest") == 0:
            sys.exit("resume without a checkpoint ended with exit code 0, wanted a refusal")
        records = folder.path / "runs" / "run" / "metrics.jsonl"
        if records.exists() and records.stat().st_size > 0 and folder.finish() == 0:
            sys.exit("an unfinished run was written over, wanted a refusal")
        return folder.finish("--overwrite")
    return folder.finish("--resume", "latest")


def differences(folder, wanted_records, wanted_weights, wanted_best):
    found = list(filter(None, [common.record_difference(folder.records(), wanted_records)]))
    if folder.tensors(STEPS) != wanted_weights:
        found.append("final weights or moments differ")
    if folder.best() != wanted_best:
        found.append(f"best_model is {folder.best()}, wanted {wanted_best}")
    return found


def check_that_verify_sees_damage(folder):
    manifest = folder.checkpoints / "latest" / "manifest.json"
    manifest.write_text("{")
    done = subprocess.run([OCTAVO, "checkpoints", "verify", folder.checkpoints], stdout=subprocess.PIPE, text=True)
    if done.returncode != DAMAGED or "DAMAGED" not in done.stdout:
        sys.exit(f"verify of a damaged checkpoint ended with exit code {done.returncode}, wanted {DAMAGED}")


def main():
    common.require_files()
    chance = random.Random(20)
    clean, between, inside = (3, 1, 4) if "--short" in sys.argv else (CLEAN, KILLED - INSIDE, INSIDE)
    hows = [stop_cleanly] * clean + [kill_between] * between + [kill_inside] * inside
    steps = chance.sample(range(5, STEPS - 5), len(hows))
    steps[clean] = 2  # killed before the first save
    unreadable = mismatched = 0
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        common.prepare_data(work)
        reference = Folder(work / "reference", checkpoint_freq=7)
        reference.finish_or_exit()
        wanted = reference.records(), reference.tensors(STEPS), reference.best()
        assert sorted(wanted[1]) == ["model.safetensors", "optimizer.safetensors"]
        assert sum("train/loss" in r for r in wanted[0]) == STEPS
        for i, (how, step) in enumerate(zip(hows, steps)):
            folder = stop(work, i, how, step, chance)
            damaged, left = folder.unreadable(), folder.named(*LEFT_BY_A_SAVE)
            last = (folder.named("step-") or ["no checkpoint"])[-1]
            code = resume(folder)
            found = differences(folder, *wanted) if code == 0 else [f"resume ended with exit code {code}"]
            unreadable += damaged
            mismatched += bool(found)
            print(f"{how.__name__} at step {step}: {last}, left {left}; {'; '.join(found) or 'same'}", flush=True)
            if found:
                print(folder.log())
        check_that_verify_sees_damage(reference)
    print(f"stops={len(hows)} killed={between + inside} inside_save={inside} unreadable={unreadable} mismatched={mismatched}")
    sys.exit(1 if unreadable or mismatched else 0)


if __name__ == "__main__":
    main()
