#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate=""
"""A sweep of 12 trials with 3 agents, one of which is killed with its trial: every trial finishes once, the one that was hit
resumes from its checkpoint, and the best is the best of all runs. Then the guides' own sweep, the commands of docs/how-to/sweep.md,
and every picture that octavo draws, rendered by a browser (--keep FOLDER keeps them to be looked at)."""
import argparse
import json
import os
import pathlib
import shlex
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time

import browser
import slurm_cluster
from common import OCTAVO, TEXT, octavo, page_commands, page_environment, require_files

MAX_SECONDS = 90
TRAIN = """
model_name: custom
n_layer: 1
n_head: 2
n_embd: 32
max_seq_length: 32
tokenizer: bytes
val_fraction: 0.05
dataset: text.txt
batch_size: 4
max_steps: 120
log_freq: 20
warmup_steps: 5
eval_freq: 20
eval_batches: 8
checkpoint_freq: 10
keep_checkpoints: 1
num_threads: 1
fp8_stats_freq: 0
"""
SWEEP = """
program: train.py
method: grid
metric: {name: val_loss, goal: minimize}
parameters:
  learning_rate: {values: [0.0003, 0.003, 0.03]}
  penalty_weight: {values: [0.0, 0.005, 0.01, 0.05]}
"""
# The guides' file, word for word.
GUIDE = """
# sweep_lambda_fineweb.yaml
parameters:
  penalty_weight:
    values: [0.0, 0.005, 0.01, 0.02, 0.05]
  dataset:
    value: fineweb-edu
  use_fp8:
    value: true
"""
ENVIRONMENT = page_environment() | {"OMP_WAIT_POLICY": "passive"}
# What is rendered: name, the command that writes it (in the folder of the sweeps), the file. Reports of other verbs join here.
PICTURES = [
    ("sweep", "octavo sweep report sweep.db --output sweep.html", "sweep.html"),
    ("schedule", "octavo schedule --max_steps 10000 --learning_rate 3e-4 --output schedule.svg", "schedule.svg"),
    ("plan", "octavo plan --model_name gpt2 --gpu h100 --output plan.svg", "plan.svg"),
]


def rows(database, what):
    if not database.exists():
        return []
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10) as connection:
        return connection.execute(what).fetchall()


def kill_an_agent(work, database, parent):
    """Waits for a trial that has saved, and kills its agent and its process without a warning. Returns the trial."""
    deadline = time.monotonic() + MAX_SECONDS
    while time.monotonic() < deadline and parent.poll() is None:
        try:
            running = rows(database, "SELECT number, agent, run_name FROM trials WHERE state = 'running'")
        except sqlite3.OperationalError:  # being made
            running = []
        for number, agent, run in running:
            if not list((work / "checkpoints" / run).glob("step-*/manifest.json")):
                continue
            process = int(agent.split("/")[3])
            children = pathlib.Path(f"/proc/{process}/task/{process}/children")
            victims = [int(child) for child in children.read_text().split()] if children.exists() else []
            if not victims:
                continue
            for victim in (process, *victims):
                try:
                    os.kill(victim, signal.SIGKILL)
                except ProcessLookupError:  # its parent's end has ended it
                    pass
            return number
        time.sleep(0.02)
    sys.exit("no trial saved a checkpoint that an agent could be killed at")


def last_value(run, metric="val/loss"):
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [record[metric] for record in records if metric in record][-1]


def twelve_trials(work):
    (work / "sweep.yaml").write_text(SWEEP)
    with open(work / "run.log", "w") as log:
        parent = subprocess.Popen([OCTAVO, "sweep", "run", "sweep.yaml", "train.yaml", "--agents", "3"], cwd=work,
                                  env=ENVIRONMENT, stdout=log, stderr=log)
        hit = kill_an_agent(work, work / "sweep.db", parent)
        code = parent.wait(timeout=MAX_SECONDS)
    text = (work / "run.log").read_text()
    report = json.loads(octavo(work, "sweep", "report", "sweep.db", "--json").stdout)
    trials = {trial["trial"]: trial for trial in report["trials"]}
    wrong = []
    if code != 0 or report["finished"] != 12 or sorted(trials) != list(range(1, 13)):
        wrong.append(f"exit code {code}, {report['finished']} of 12 trials finished")
    if [n for n in trials if trials[n]["attempts"] != (2 if n == hit else 1)]:
        wrong.append(f"attempts {[(n, t['attempts']) for n, t in trials.items()]}, wanted 2 of trial {hit} and 1 of the others")
    if text.count(f"trial {hit} finished") != 1 or text.count("finished: val/loss") != 12:
        wrong.append("not every trial was said to finish once")
    if "resumed from" not in (pathlib.Path(trials[hit]["run"]) / "trial.log").read_text():
        wrong.append(f"trial {hit} did not resume from its checkpoint")
    values = {number: last_value(pathlib.Path(trial["run"])) for number, trial in trials.items()}
    if any(abs(values[number] - trials[number]["value"]) > 1e-12 for number in trials):
        wrong.append("the database's values are not those of metrics.jsonl")
    if report["best"] != min(values, key=values.get):
        wrong.append(f"best is {report['best']}, wanted {min(values, key=values.get)}")
    if len({(t["parameters"]["learning_rate"], t["parameters"]["penalty_weight"]) for t in trials.values()}) != 12:
        wrong.append("the grid's points are not all different")
    if wrong:
        sys.exit("\n".join([text, *wrong]))
    return {"trials": len(trials), "killed": hit, "attempts": sum(t["attempts"] for t in trials.values()),
            "best": report["best"], "best_loss": f"{values[report['best']]:.4f}"}


def guides_sweep(work):
    """As it stands, on a folder of the data set's name."""
    (work / "sweep_lambda_fineweb.yaml").write_text(GUIDE)
    (work / "fineweb-edu").mkdir()
    shutil.copy(work / "text.txt", work / "fineweb-edu" / "part.txt")
    command = ("sweep", "run", "sweep_lambda_fineweb.yaml", "train.yaml", "--agents", 2, "--", "--max_steps", 20,
               "--checkpoint_freq", 0)
    text = octavo(work, *command).stderr
    done = rows(work / "sweep_lambda_fineweb.db", "SELECT count(*) FROM trials WHERE state = 'finished'")[0][0]
    precision = {json.loads((run / "metrics.jsonl").read_text().splitlines()[0])["precision"]
                 for run in (work / "runs").glob("sweep_lambda_fineweb-*")}
    if done != 5 or precision != {"FP8 rehearsal"}:
        sys.exit(f"{text}\nthe guides' sweep: {done} of 5 trials finished, in {precision}")
    # Once more: everything has ended, so nothing is run again.
    again = octavo(work, *command).stderr
    if " begins" in again:
        sys.exit(f"{again}\na sweep that had ended began again")
    return done


def under_slurm(work):
    """Two tasks of a step and an array of two jobs, over one database. A trial must not take itself for a rank of the step."""
    slurm_cluster.require_programs()
    flags = ("--max_steps", "20", "--checkpoint_freq", "0")
    octavo(work, "sweep", "create", "sweep.yaml", "train.yaml", "--database", "slurm.db", "--run_cap", 6, "--", *flags)
    with slurm_cluster.Cluster(work / "cluster") as cluster:
        log = cluster.call("srun", "--ntasks=2", "--overcommit", OCTAVO, "sweep", "agent", work / "slurm.db", "--trials", "1",
                           cwd=work, environment=ENVIRONMENT)
        agents = len(set(rows(work / "slurm.db", "SELECT agent FROM trials")))
        wrap = f"exec {OCTAVO} sweep agent {work}/slurm.db"
        cluster.call("sbatch", "--array=1-2", "--output=agent-%a.log", "--wrap", wrap, cwd=work, environment=ENVIRONMENT)
        try:
            cluster.wait("six trials", lambda: rows(work / "slurm.db", "SELECT count(*) FROM trials WHERE state = 'finished'")
                         == [(6,)])
        except SystemExit:
            sys.exit("\n".join([log, *(path.read_text() for path in work.glob("agent-*.log")), cluster.logs()]))
    if agents != 2:
        sys.exit(f"{log}\nwanted a trial from each of the step's two agents, found {agents} agents")
    return 6


def page(work):
    """The commands of docs/how-to/sweep.md, in order."""
    commands = page_commands("how-to/sweep.md", "sweep")
    for command in commands:
        done = subprocess.run(command, shell=True, cwd=work, env=ENVIRONMENT, text=True, capture_output=True,
                              executable="/bin/bash", timeout=MAX_SECONDS)
        if done.returncode != 0:
            sys.exit(f"docs/how-to/sweep.md: {command}\nended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return len(commands)


def render(work, name, command, file):
    """A browser's picture of the file. Fails when it is blank."""
    octavo(work, *shlex.split(command)[1:])
    if file.endswith(".html"):
        browser.self_contained(work / file)
    return browser.draw(work / file, work / f"{name}.png")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", type=pathlib.Path, help="copy reports and pictures here")
    arguments = parser.parse_args()
    require_files()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        (work / "text.txt").write_text(TEXT.read_text()[:120_000])
        (work / "train.yaml").write_text(TRAIN)
        results = twelve_trials(work)
        results["guide"] = guides_sweep(work)
        results["commands"] = page(work)
        results["slurm"] = under_slurm(work)
        results |= {f"{name}_colours": render(work, name, *rest) for name, *rest in PICTURES}
        if arguments.keep:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            for file in [*work.glob("*.png"), *work.glob("*.html"), *work.glob("*.svg"), work / "run.log"]:
                shutil.copy(file, arguments.keep)
    print(*(f"{key}={value}" for key, value in results.items()), f"seconds={time.monotonic() - start:.0f}")


if __name__ == "__main__":
    main()
