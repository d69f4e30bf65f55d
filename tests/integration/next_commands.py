#!/usr/bin/env python3
# test: label=integration timeout=900 gate="" night="--verify"
"""The commands that octavo prints for the user to type next work as they are printed.

train: the two under `next` at the end of a run that is done, of one that was stopped (the first of them continues it to its end),
of one with two ranks, of adapters, and of a run whose name must be quoted. The summary above them is there line by line.
With --verify also every command that `octavo verify --before-long-run` gives for a small run.
"""
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile

import common
from common import OCTAVO, octavo

SIZES = """model_name: custom
n_layer: 1
n_head: 2
n_embd: 64
max_seq_length: 32
batch_size: 4
tokenizer: bytes
dataset: text.txt
learning_rate: 1e-3
eval_freq: 4
eval_batches: 1
"""
# A run that is short may be too short for a verdict about its loss.
GOOD_CODES = {"compare": (0, 6)}
FAILED, RAN = [], []


def check(good, what):
    if not good:
        FAILED.append(what)
        print(f"  WRONG: {what}")


def type_in(folder, command, seconds=300):
    """A printed command, given to a shell in that folder. Returns what it printed."""
    done = subprocess.run(["bash", "-c", command], cwd=folder, text=True, errors="replace", timeout=seconds, stdin=subprocess.DEVNULL,
                          env=common.page_environment() | {"OMP_WAIT_POLICY": "passive"},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    RAN.append(command)
    codes = GOOD_CODES.get(shlex.split(command)[1], (0,))
    check(done.returncode in codes, f"'{command}' ended with {done.returncode}, wanted one of {codes}:\n{done.stdout[-1500:]}")
    return done.stdout


def next_of(text):
    """The commands under `next`, which end a run's output."""
    part = re.search(r"^  next +(octavo .*)\n?((?: {5,}octavo .*\n?)*)", text, re.M)
    if not part:
        check(False, f"no line `next` in:\n{text[-1500:]}")
        return []
    return [part[1]] + re.findall(r"(octavo .*)", part[2])


def summary(text, *parts):
    """The lines of the summary, in their order."""
    at = max(text.rfind("done: "), text.rfind("made "))
    for part in parts:
        place = text.find(part, at)
        check(place >= 0, f"wanted '{part}' in the summary:\n{text[-1500:]}")
        at = max(at, place)


def train(folder, *flags, code=0):
    done = octavo(folder, "train", "t.yaml", *flags, code=code)
    return done.stderr


def done_runs(folder):
    text = train(folder, "--run_name", "fp8", "--max_steps", 8, "--use_fp8")
    summary(text, "done: 8 steps in ", " of steps): ", " tokens/s, ", " steps/s, peak memory of tensors ", "\n  precision  FP8 rehearsal, ",
            "% of the FLOPs of GEMMs in FP8, backend rehearsal", "\n  loss       training ", "best validation ",
            "\n  incidents  none; no red flags", "\n  files      run in runs/fp8; page: runs/fp8/run.html\n",
            "checkpoint in checkpoints_fp8/fp8\n", "\n  next       octavo ")
    share = json.loads((folder / "runs/fp8/receipt.json").read_text())["fp8"]["flops_share"]
    check(f"{100 * share:.1f}% of the FLOPs" in text, f"wanted the receipt's share {share} in:\n{text}")
    commands = next_of(text)
    check([shlex.split(c)[1] for c in commands] == ["generate", "checkpoints"], f"wanted generate and export, found {commands}")
    for command in commands:
        type_in(folder, command)
    check((folder / "fp8-export" / "config.json").exists(), "the export is where the command says")
    more = train(folder, "--run_name", "fp8", "--max_steps", 12, "--use_fp8", "--resume", "latest")
    summary(more, "done: 12 steps, 4 of them since the resume, in ", "\n  next ")
    for command in next_of(more):  # the folder of the first export is taken
        type_in(folder, command)
    for name, flags in (("with space", []), ("adapters", ["--lora_rank", 2, "--init_from", "checkpoints_fp8/fp8/latest"])):
        for command in next_of(train(folder, "--run_name", name, "--max_steps", 4, *flags)):
            type_in(folder, command)


def stopped_run(folder):
    (folder / "long.yaml").write_text(SIZES + "max_steps: 60\nrun_name: stopped\n")
    process = subprocess.Popen([OCTAVO, "train", "long.yaml"], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=os.environ | {"OMP_WAIT_POLICY": "passive"})
    common.wait_for_step(process, 5)
    process.send_signal(signal.SIGINT)
    _, text = process.communicate(timeout=120)
    check(process.returncode == common.STOPPED, f"wanted exit code {common.STOPPED}, found {process.returncode}: {text[-800:]}")
    summary(text, "made ", "\n  next       octavo train ")
    commands = next_of(text)
    continued = type_in(folder, commands[0]) if commands else ""
    check("done: 60 steps" in continued, f"the first command continues the run to its end:\n{continued[-800:]}")
    check("the learning-rate schedule is another one" not in continued, "with the same schedule")
    for command in commands[1:]:
        type_in(folder, command)


def two_ranks(folder):
    done = octavo(folder, "launch", "--nproc", 2, "--", "train", "t.yaml", "--run_name", "pair", "--max_steps", 4)
    text = done.stdout + done.stderr
    commands = next_of(text)
    check(len(commands) == 2, f"wanted two commands, found {commands}")
    for command in commands:
        type_in(folder, command)


def start_lines(folder):
    """Two lines say what runs; the table of GEMMs is folded, and whole with --verbose."""
    folded = train(folder, "--run_name", "folded", "--max_steps", 1, "--use_fp8")
    whole = train(folder, "--run_name", "whole", "--max_steps", 1, "--use_fp8", "--verbose")
    for text in (folded, whole):
        check(re.search(r"^info: model: custom, [\d.]+k parameters, vocabulary \d+; data: text.txt, [\d.]+k tokens; 1 steps of 128 tokens "
                        r"\(128 in all, [\d.e-]+ epochs\), warm-up \d$", text, re.M), f"the first line:\n{text}")
        check(re.search(r"^info: precision: FP8 rehearsal, recipe delayed, FP8 backend: rehearsal; kernels: fp8_linear cpu/rehearsal\w*, "
                        r"matmul .*; cpu \(\w+\), \d+ threads$", text, re.M), f"the second line:\n{text}")
    rows = [len(re.findall(r"^  h\.0\.", text, re.M)) for text in (folded, whole)]
    check(rows == [4, 12], f"wanted a line for each of four layers, or of twelve GEMMs; found {rows}")
    plain = train(folder, "--run_name", "plain", "--max_steps", 1)
    check("info: precision: BF16, FP8: off; kernels: matmul " in plain and "GEMMs by" not in plain, f"a BF16 run:\n{plain}")


def before_long_run(folder):
    """In the order of the report: each does what it is for, and none is in the way of another."""
    (folder / "long.yaml").write_text(SIZES + "max_steps: 40\nwarmup_steps: 20\nuse_fp8: true\nrun_name: long\n")
    octavo(folder, "train", "long.yaml", "--max_steps", 2)
    done = subprocess.run([OCTAVO, "verify", "long.yaml", "--before_long_run", "--json"], cwd=folder, text=True, capture_output=True,
                          timeout=600, env=os.environ | {"OMP_WAIT_POLICY": "passive"})
    check(done.returncode == 3, f"a run_name that is taken fails, found exit code {done.returncode}: {done.stderr[-800:]}")
    findings = json.loads(done.stdout)["findings"]
    commands = [command for finding in findings for command in finding["commands"] if finding["status"] != "ok"]
    check(len(commands) >= 7, f"wanted seven commands or more, found {commands}")
    for finding in findings:
        words = f"{finding['found']} {finding['fix']}"
        if finding["section"].startswith("the run's "):
            check(not re.search(r"\b(CONFIG|FOLDER|octavo \w+ )", words), f"a command to be filled in: {words}")
    for command in commands:
        # What resumes the run finds it as it was; job scripts are written and not run.
        type_in(folder, command, 600)
    check((folder / "job.sh").exists(), "launch --slurm writes the script")


def main():
    common.require_files()
    with tempfile.TemporaryDirectory() as name:
        for part in (start_lines, done_runs, stopped_run, two_ranks) + ((before_long_run,) if "--verify" in sys.argv[1:] else ()):
            print(part.__name__, flush=True)
            folder = pathlib.Path(name) / part.__name__
            folder.mkdir()
            (folder / "text.txt").write_text(common.TEXT.read_text()[:20000])
            (folder / "t.yaml").write_text(SIZES)
            part(folder)
    print(f"commands={len(RAN)} failed={len(FAILED)}")
    sys.exit(1 if FAILED else 0)


if __name__ == "__main__":
    main()
