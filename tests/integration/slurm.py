#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 night=""
"""A real munged, slurmctld and slurmd on this machine, and the commands of docs/how-to/cluster.md under `test: slurm` as they
stand there. `octavo launch --slurm` writes the script; sbatch runs it with two ranks and a time limit of a minute; SLURM sends SIGUSR1 before the limit; the ranks save and leave with 75; the script
requeues its job, which continues and finishes. Losses and final weights are those of a run that was left alone."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import common
import slurm_cluster
from common import OCTAVO

STEPS = 800
CONFIG = f"""
model_name: custom
n_layer: 4
n_head: 4
n_embd: 128
max_seq_length: 128
batch_size: 4
max_steps: {STEPS}
learning_rate: 1e-3
eval_freq: 0
checkpoint_freq: 0
log_freq: 50
device: cpu
run_name: run
dataset: ../data
sharding_mode: zero1
"""
# SLURM knows minutes only and looks at time limits every 30 s from its start on. 65 s before a limit of one minute is at
# the first look; the job is submitted so that this comes after EARLY seconds. A job that was faster is run once more.
LIMIT = {"SBATCH_TIMELIMIT": "1", "SBATCH_SIGNAL": "USR1@65"}
LOOKS, EARLY, ATTEMPTS = 30, 10, 3
QUIET = {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"}


def left_alone(work, environment):
    folder = common.Folder(work / "alone", CONFIG)
    start = time.monotonic()
    done = subprocess.run([OCTAVO, "launch", "--nproc", "2", "--", "train", "train.yaml"], cwd=folder.path,
                          env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(f"the run that is left alone ended with {done.returncode}:\n{done.stdout}")
    return folder, time.monotonic() - start


def submitted(cluster, folder):
    """Runs the page's commands, which write the script and submit it with another configuration than the script's own.
    Returns the job's number."""
    (folder.path / "config.yaml").write_text("model_name: none-such\ndevice: cpu\n")
    (folder.path / "train.yaml").rename(folder.path / "other.yaml")
    environment = common.page_environment() | {"SLURM_CONF": cluster.environment["SLURM_CONF"]} | LIMIT | QUIET
    output = ""
    time.sleep((LOOKS - EARLY - cluster.age()) % LOOKS)
    for command in common.page_commands("how-to/cluster.md", "slurm"):
        output = subprocess.run(["bash", "-c", command], cwd=folder.path, env=environment, check=True,
                                stdout=subprocess.PIPE, text=True).stdout
    return re.search(r"Submitted batch job (\d+)", output)[1]


def followed(cluster, number, deadline):
    """Waits for the end of the job; after its first requeue it gets time enough. Returns (state, restarts)."""
    extended = False
    while time.monotonic() < deadline:
        job = cluster.job(number)
        if not extended and int(job.get("Restarts", 0)) > 0:
            cluster.call("scontrol", "update", f"JobId={number}", "TimeLimit=30")
            extended = True
        if job.get("JobState") in ("COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "OUT_OF_MEMORY"):
            return job["JobState"], int(job["Restarts"])
        time.sleep(0.3)
    return f"still {cluster.job(number).get('JobState')}", 0


def sweep_jobs(cluster, work):
    """Runs the page's commands for a sweep of two trials. Returns how many trials, of different values, have finished."""
    folder = common.Folder(work / "sweep", CONFIG.replace(f"max_steps: {STEPS}", "max_steps: 5"))
    (folder.path / "train.yaml").rename(folder.path / "other.yaml")
    (folder.path / "sweep.yaml").write_text("method: grid\nmetric: {name: train/loss, goal: minimize}\n"
                                            "parameters:\n  seed: {values: [1, 2]}\n")
    environment = common.page_environment() | {"SLURM_CONF": cluster.environment["SLURM_CONF"]} | QUIET
    commands = [f"{OCTAVO} launch --nproc 1 --slurm job.sh -- train other.yaml",
                *common.page_commands("how-to/cluster.md", "slurm-sweep")]
    output = "".join(subprocess.run(["bash", "-c", command], cwd=folder.path, env=environment, check=True,
                                    stdout=subprocess.PIPE, text=True).stdout for command in commands)
    ends = [followed(cluster, number, time.monotonic() + 120) for number in re.findall(r"Submitted batch job (\d+)", output)]
    status = json.loads(subprocess.run([OCTAVO, "sweep", "status", "sweep.db", "--json"], cwd=folder.path, check=True,
                                       stdout=subprocess.PIPE, text=True).stdout)
    finished = {str(trial["parameters"]) for trial in status["trials"] if trial["state"] == "finished"}
    if len(finished) != 2 or [state for state, _ in ends] != ["COMPLETED"] * 2:
        print(ends, json.dumps(status)[:3000], *(path.read_text() for path in folder.path.glob("octavo-*.log")))
        return 0
    return len(finished)


def losses(path):
    records = common.read_records(path)
    return [record["train/loss"] for record in records if "train/loss" in record]


def main():
    common.require_files()
    slurm_cluster.require_programs()
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        common.prepare_data(work)
        with slurm_cluster.Cluster(work / "cluster") as cluster:
            alone, seconds = left_alone(work, cluster.environment | QUIET)
            print(f"left alone: {STEPS} steps in {seconds:.0f} s", flush=True)
            for attempt in range(ATTEMPTS):
                folder = common.Folder(work / f"job-{attempt}", CONFIG)
                number = submitted(cluster, folder)
                start = time.monotonic()
                state, restarts = followed(cluster, number, start + 4 * seconds + 120)
                took = time.monotonic() - start
                if state != "COMPLETED" or restarts > 0:
                    break
                print(f"job {number} was done after {took:.0f} s, before SLURM looked at its limit", flush=True)
            trials = sweep_jobs(cluster, work)
            daemon_logs = cluster.logs()
        name = f"octavo-{number}"
        log = "".join(path.read_text() for path in [*folder.path.glob("octavo-*.log"), *folder.path.glob("logs/*/*.log")])
        if state != "COMPLETED" or restarts == 0:
            sys.exit(f"job {number}: {state} after {restarts} restarts in {took:.0f} s\n{log}\n{daemon_logs}")
        stopped = log.count(f"job {number}, start 1: exit code 75")
        per_rank = len(list(folder.path.glob(f"logs/{number}/rank-*.log")))
        wanted = losses(alone.path / "runs" / "run" / "metrics.jsonl")
        found = losses(folder.path / "runs" / name / "metrics.jsonl")
        weights = [{f.name: f.read_bytes() for f in sorted((base / f"step-{STEPS:08d}").glob("*.safetensors"))}
                   for base in (alone.checkpoints, folder.checkpoints.parent / name)]
        same = found == wanted and len(wanted) == STEPS
        bits = bool(weights[0]) and weights[0] == weights[1]
        if not same or not bits or not stopped or per_rank != 2:
            print(log)
    print(f"job={state} signal=time_limit restarts={restarts} exit_75={stopped} rank_logs={per_rank} "
          f"attempts={attempt + 1} sweep_trials={trials} loss_equal={int(same)} weights_equal={int(bits)} loss={wanted[-1]:.6f} seconds={took:.0f}")
    sys.exit(0 if same and bits and stopped == 1 and per_rank == 2 and trials == 2 else 1)


if __name__ == "__main__":
    main()
