#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=faults timeout=300 gate="" alone
"""Checkpoints that cannot be saved, and those that are due by time; the last line has the results.

failing   the file system of checkpoints becomes full: each failed save is counted in the metrics and
          raises the flag failed_save; after max_failed_saves in a row a guard ends the run with exit code 4
by_time   with checkpoint_minutes checkpoints appear though checkpoint_freq is never reached; with 0 none does
notice    SIGTERM in the midst of a validation: it is left out, and the run saves and leaves with 75 at once
to_one    the same of two ranks, of which one alone gets the signal: with whole weights and sharded ones, and in HellaSwag
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import common  # noqa: E402
from common import STOPPED  # noqa: E402
from rank_runs import Launched  # noqa: E402

CONFIG = """
model_name: custom
n_layer: 2
n_head: 2
n_embd: {width}
max_seq_length: 32
batch_size: 2
max_steps: 100000000
learning_rate: 1e-3
eval_freq: {eval_freq}
eval_batches: {eval_batches}
checkpoint_freq: {checkpoint_freq}
checkpoint_minutes: {minutes}
max_failed_saves: 3
num_threads: 1
mixed_precision: fp32
run_name: run
"""
GUARD = 4
PATIENCE = 120
HELLASWAG = common.DATA / "data" / "eval" / "hellaswag_val.jsonl"


def new_folder(work, name, **keys):
    usual = {"width": 64, "eval_freq": 0, "eval_batches": 1, "checkpoint_freq": 1_000_000, "minutes": 0}
    return common.Folder(work / name, CONFIG.format(**(usual | keys)))


def records(folder):
    path = folder.path / "runs" / "run" / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def failing(work):
    """A file system in memory, filled up by somebody else after the first checkpoint."""
    folder = new_folder(work, "failing", checkpoint_freq=20)
    disk = folder.checkpoints.parent
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g", "tmpfs", disk], check=True)
    process = folder.start()
    try:
        deadline = time.monotonic() + PATIENCE
        while folder.newest() == 0 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        subprocess.run(["dd", "if=/dev/zero", f"of={disk}/other", "bs=1M"], stderr=subprocess.DEVNULL, check=False)
        process.communicate(timeout=PATIENCE)
        code = process.returncode
    finally:
        process.kill()
        subprocess.run(["umount", "-l", disk], check=True)
    found = records(folder)
    most = max((r.get("flags/failed_saves", 0) for r in found), default=0)
    flags = [r for r in found if r.get("flag") == "failed_save"]
    problems = [] if code == GUARD else [f"exit code {code}, wanted {GUARD}:\n{folder.log()[-2000:]}"]
    problems += [] if most >= 2 else [f"flags/failed_saves rose to {most}"]
    problems += [] if flags else ["no flag failed_save"]
    problems += [] if "max_failed_saves" in folder.log() else ["the guard does not name max_failed_saves"]
    return problems


def stopped(folder, seconds):
    process = folder.start()
    time.sleep(seconds)
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    process.communicate(timeout=PATIENCE)
    return process.returncode, time.monotonic() - began


def by_time(work):
    problems = []
    for name, minutes, wanted in (("often", 0.05, True), ("never", 0, False)):
        folder = new_folder(work, name, minutes=minutes)
        code, _ = stopped(folder, 15)
        steps = folder.named("step-")  # the last is that of the stop
        if code != STOPPED or (len(steps) > 1) != wanted:
            problems.append(f"checkpoint_minutes {minutes}: exit code {code}, checkpoints {steps}")
    return problems


def notice(work):
    """A validation that takes minutes."""
    folder = new_folder(work, "notice", eval_freq=5, eval_batches=1_000_000, width=256)
    code, seconds = stopped(folder, 12)
    problems = [] if code == STOPPED and seconds < 30 else [f"exit code {code} after {seconds:.1f} s, wanted {STOPPED}"]
    problems += [] if "the evaluation waits for the resume" in folder.log() else ["no evaluation was left out"]
    return [*problems, folder.unsound()] if folder.unsound() else problems


def to_one(work):
    problems = []
    for mode, said, *flags in (("ddp", "the evaluation waits for the resume"),
                               ("fsdp_full", "the evaluation waits for the resume"),
                               ("ddp", "HellaSwag waits for the resume", "--eval_batches", 1, "--eval_hellaswag", HELLASWAG, "--max_seq_length", 1024)):
        folder = new_folder(work, f"to_one-{mode}-{len(flags)}", eval_freq=5, eval_batches=1_000_000, width=256)
        run = Launched(folder, ["--nproc", 2, "--max_restarts", 0], ["--sharding_mode", mode, *flags])
        try:
            deadline = time.monotonic() + PATIENCE
            while not any(r.get("step") == 5 for r in records(folder)) and time.monotonic() < deadline:
                time.sleep(0.2)
            time.sleep(2)  # it evaluates
            os.kill(run.wait_for_ranks(2)[1], signal.SIGTERM)
            began = time.monotonic()
            code, seconds = run.wait(PATIENCE), time.monotonic() - began
        finally:
            run.end()
        if code != STOPPED or seconds > 30 or said not in run.said() + run.log(0) + run.log(1) or folder.unsound():
            problems.append(f"{mode} {flags}: exit code {code} after {seconds:.1f} s: {folder.unsound()}{(run.said() + run.log(0))[-1500:]}")
    return problems


def main():
    common.require_files()
    lost = 0
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        common.prepare_data(work)
        for case in (failing, by_time, notice, to_one):
            problems = case(work)
            print(f"{case.__name__}: {'; '.join(problems) or 'as it should be'}", flush=True)
            lost += bool(problems)
    print(f"tried=4 survived={4 - lost} lost={lost}")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
