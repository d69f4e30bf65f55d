#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 night=""
"""A node of a real SLURM cluster of three (a munged, a slurmctld, three slurmd on this machine) is lost under a run.

requeue   the script of `octavo launch --nodes 1:3 --slurm`: SLURM runs the job again on the two nodes that are left, a list with a
          hole, and the run resumes there
launch    `sbatch --no-kill` and one `octavo launch --nodes 1:3` on each node, as docs/concepts/elastic.md has it: the run goes on with two

Each must make every step once, with the samples and, within 1e-5, the losses of a run that was left alone.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

INSIDE, NODES = "OCTAVO_TEST_OWN_HOSTS", ("node1", "node2", "node3")


def enter_namespaces():
    """Starts this script again where the nodes' names mean addresses of this machine, and nobody outside can reach them."""
    with tempfile.NamedTemporaryFile("w", suffix=".hosts") as hosts:
        addresses = {node: f"10.77.0.{number}" for number, node in enumerate(NODES, 1)}
        hosts.write(pathlib.Path("/etc/hosts").read_text() + "".join(f"{addresses[node]} {node}\n" for node in NODES))
        hosts.flush()
        network = "ip link set lo up && ip link add octavo0 type veth peer name octavo1 && ip link set octavo0 up && ip link set octavo1 up"
        network += "".join(f" && ip address add {address}/24 dev octavo0" for address in addresses.values())
        inside = f"{network} && mount --bind {hosts.name} /etc/hosts && exec \"$@\""
        done = subprocess.run(["unshare", "--mount", "--net", "sh", "-c", inside, "sh", sys.executable, __file__, *sys.argv[1:]],
                              env=os.environ | {INSIDE: "1"}, check=False)
    sys.exit(done.returncode)


import slurm_cluster  # noqa: E402

if os.environ.get(INSIDE) != "1":
    slurm_cluster.require_programs()
    enter_namespaces()

import common  # noqa: E402
from common import OCTAVO  # noqa: E402

STEPS, LOST_AT, PATIENCE, MOST_DIFFERENCE = 400, 60, 240, 1e-5
CONFIG = f"""
model_name: custom
n_layer: 2
n_head: 2
n_embd: 64
max_seq_length: 64
batch_size: 1
gradient_accumulation_steps: 2
max_steps: {STEPS}
learning_rate: 1e-3
eval_freq: 0
checkpoint_freq: 20
keep_checkpoints: 3
device: cpu
mixed_precision: fp32
record_samples: true
dist_timeout: 30
run_name: run
dataset: ../data
"""
QUIET = {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"}
LAUNCHERS = f"""#!/bin/sh
#SBATCH --nodes=3
#SBATCH --ntasks-per-node=1
#SBATCH --output=octavo-%j.log
srun --no-kill --ntasks-per-node=1 {OCTAVO} launch --nodes 1:3 --nproc 1 --node_wait 5 --max_restarts 5 --auto_resume -- train train.yaml
"""


def steps_of(folder):
    path = folder.path / "runs" / "run" / "metrics.jsonl"
    return [r for r in common.read_records(path) if "train/loss" in r] if path.exists() else []


def run(folder, environment, *command):
    done = subprocess.run([str(word) for word in command], cwd=folder.path, env=environment, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode} of {command}:\n{done.stdout}")
    return done.stdout


def lost_in_the_midst(cluster, folder, script, *flags):
    """Submits the script, loses node2 once the run has made some steps, and waits for its end. Returns the job's record."""
    number = re.search(r"batch job (\d+)", run(folder, cluster.environment | QUIET | {"HOME": str(folder.path)}, "sbatch", *flags, script))[1]
    deadline = time.monotonic() + PATIENCE
    def is_over():
        return cluster.job(number).get("JobState") in ("COMPLETED", "FAILED", "NODE_FAIL", "CANCELLED", "TIMEOUT")

    cluster.wait(f"step {LOST_AT}", lambda: len(steps_of(folder)) >= LOST_AT or is_over(), PATIENCE)
    cluster.lose("node2")
    while not is_over() and time.monotonic() < deadline:
        time.sleep(0.3)
    return cluster.job(number)


def problems_of(folder, wanted, ranks_line):
    steps = steps_of(folder)
    if [r["step"] for r in steps] != list(range(1, STEPS + 1)):
        return [f"{len(steps)} steps, wanted 1 to {STEPS}, each once"]
    log = "".join(path.read_text(errors="replace") for path in [*folder.path.glob("octavo-*.log"), *folder.path.glob("logs/*/*.log")])
    other = [r["step"] for r, due in zip(steps, wanted) if r["data/samples"] != due["data/samples"]]
    difference = max(abs(r["train/loss"] - due["train/loss"]) for r, due in zip(steps, wanted))
    found = [f"other samples in {len(other)} steps"] if other else []
    found += [f"losses differ by {difference}"] if difference > MOST_DIFFERENCE else []
    return found + ([] if re.search(ranks_line, log) else [f"no {ranks_line!r} in\n{log}"])


def requeued(work, wanted):
    folder = common.Folder(work / "requeue", CONFIG)
    with slurm_cluster.Cluster(work / "cluster-requeue", NODES) as cluster:
        run(folder, os.environ, OCTAVO, "launch", "--nodes", "1:3", "--nproc", 1, "--slurm", "job.sh", "--", "train", "train.yaml")
        job = lost_in_the_midst(cluster, folder, "job.sh")
        logs = cluster.logs()
    found = problems_of(folder, wanted, "2 of 2 nodes take part")
    hole = job.get("NodeList") == "node[1,3]" and int(job.get("Restarts", 0)) >= 1 and job.get("JobState") == "COMPLETED"
    return found if hole and not found else [*found, f"job {job}", logs]


def launched(work, wanted):
    folder = common.Folder(work / "launch", CONFIG)
    (folder.path / "job.sh").write_text(LAUNCHERS)
    with slurm_cluster.Cluster(work / "cluster-launch", NODES) as cluster:
        job = lost_in_the_midst(cluster, folder, "job.sh", "--no-kill")
        logs = cluster.logs()
    found = problems_of(folder, wanted, "the run shrinks from 3 to 2 ranks")
    return [*found, f"job {job}", logs] if found or int(job.get("Restarts", 0)) else []


def main():
    common.require_files()
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        common.prepare_data(work)
        alone = common.Folder(work / "alone", CONFIG)
        run(alone, os.environ | QUIET, OCTAVO, "launch", "--nproc", 3, "--", "train", "train.yaml")
        wanted, failed = steps_of(alone), 0
        for case in (requeued, launched):
            began = time.monotonic()
            problems = case(work, wanted)
            failed += bool(problems)
            print(f"{case.__name__}: {'; '.join(problems) or 'as if left alone'}, {time.monotonic() - began:.0f} s", flush=True)
    print(f"cases=2 failed={failed}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
