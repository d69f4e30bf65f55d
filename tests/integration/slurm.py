"""A real munged, slurmctld and slurmd on this machine. `octavo launch --slurm` writes the script; sbatch runs it with two
ranks and a time limit of a minute; SLURM sends SIGUSR1 before the limit; the ranks save and leave with 75; the script
requeues its job, which goes on and finishes. Losses and final weights are those of a run that was left alone."""
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import common
import slurm_cluster
from common import OCTAVO

STEPS = 1400
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
sharding_mode: zero1
"""
# SLURM looks at time limits every 30 s and knows minutes only: of a limit of one minute, 65 s before it is at the first look.
LIMIT = ("--time=1", "--signal=USR1@65")
QUIET = {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"}


def left_alone(work, environment):
    folder = common.Folder(work / "alone", CONFIG)
    start = time.monotonic()
    done = subprocess.run([OCTAVO, "launch", "--nproc", "2", "--", "train", "train.yaml", "--dataset", work / "data"],
                          cwd=folder.path, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(f"the run that is left alone ended with {done.returncode}:\n{done.stdout}")
    return folder, time.monotonic() - start


def submitted(cluster, folder, work):
    """Writes the script as a user would, and submits it with its configuration exported. Returns the job's number."""
    (folder.path / "other.yaml").write_text("model_name: none-such\ndevice: cpu\n")
    subprocess.run([OCTAVO, "launch", "--nproc", "2", "--slurm", "job.sh", "--", "train", "other.yaml", "--dataset",
                    work / "data"], cwd=folder.path, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["bash", "-n", "job.sh"], cwd=folder.path, check=True)
    text = cluster.call("sbatch", *LIMIT, "--export=ALL,CONFIG=train.yaml,SWEEP_ID=first", "job.sh", cwd=folder.path,
                        environment=QUIET)
    match = re.search(r"Submitted batch job (\d+)", text)
    if not match:
        sys.exit(f"sbatch said {text!r}\n{cluster.logs()}")
    return match[1]


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
            folder = common.Folder(work / "job", CONFIG)
            start = time.monotonic()
            number = submitted(cluster, folder, work)
            state, restarts = followed(cluster, number, start + 4 * seconds + 120)
            took = time.monotonic() - start
            daemon_logs = cluster.logs()
        name = f"sweep-first-{number}"
        log = "".join(path.read_text() for path in [*folder.path.glob("octavo-*.log"), *folder.path.glob("logs/*/*.log")])
        if state != "COMPLETED" or restarts == 0:
            sys.exit(f"job {number}: {state} after {restarts} restarts in {took:.0f} s\n{log}\n{daemon_logs}")
        stopped = log.count(f"job {number}, start 1: exit code 75")
        per_rank = len(list(folder.path.glob(f"logs/{number}/rank-*.log")))
        wanted = losses(alone.path / "runs" / "run" / "metrics.jsonl")
        found = losses(folder.path / "runs" / name / "metrics.jsonl")
        weights = [{f.name: f.read_bytes() for f in sorted((base / f"step-{STEPS:08d}").glob("*.safetensors"))}
                   for base in (alone.checkpoints, folder.checkpoints / name)]
        same = found == wanted and len(wanted) == STEPS
        bits = bool(weights[0]) and weights[0] == weights[1]
        if not same or not bits or not stopped or per_rank != 2:
            print(log)
    print(f"job={state} signal=time_limit restarts={restarts} exit_75={stopped} rank_logs={per_rank} "
          f"loss_equal={int(same)} weights_equal={int(bits)} loss={wanted[-1]:.6f} seconds={took:.0f}")
    sys.exit(0 if same and bits and stopped == 1 and per_rank == 2 else 1)


if __name__ == "__main__":
    main()
