"""torchrun --no-python, srun and mpirun each train two ranks to the same losses as octavo launch: ten steps of a small
GPT-2, every loss the same number. The guides' GPU_NUM convention starts through octavo launch, and is refused without."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import common
import slurm_cluster
from common import OCTAVO, ROOT

STEPS = 10
CONFIG = f"""
model_name: custom
n_layer: 2
n_head: 2
n_embd: 64
max_seq_length: 64
batch_size: 4
max_steps: {STEPS}
learning_rate: 3e-3
eval_freq: 0
device: cpu
run_name: run
sharding_mode: ddp
"""
QUIET = {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"}
TORCHRUN = ROOT / ".deps" / "venv" / "bin" / "torchrun"


def require_programs():
    slurm_cluster.require_programs()
    missing = [str(path) for path in (shutil.which("mpirun") or "mpirun", TORCHRUN) if not pathlib.Path(path).exists()]
    if missing:
        print(f"wanted {missing}, found none; install openmpi-bin and run ./bootstrap")
        sys.exit(1 if os.environ.get("CI") == "true" else 0)


def train(work, name, launcher, environment=None):
    """The losses of a run started by these words before `octavo train`; exits when it fails."""
    folder = common.Folder(work / name, CONFIG)
    command = [*map(str, launcher), "train", "train.yaml", "--dataset", str(work / "data")]
    done = subprocess.run(command, cwd=folder.path, env=os.environ | QUIET | (environment or {}), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120)
    if done.returncode != 0:
        sys.exit(f"{name} ended with exit code {done.returncode}: {command}\n{done.stdout}")
    losses = [record["train/loss"] for record in folder.records() if "train/loss" in record]
    print(f"{name}: {len(losses)} steps, last loss {losses[-1] if losses else 'none'}", flush=True)
    return losses


def refused(work, environment):
    """`octavo train` without a launcher, where the guides' variables ask for several ranks."""
    folder = common.Folder(work / "refused", CONFIG)
    done = subprocess.run([OCTAVO, "train", "train.yaml", "--dataset", work / "data"], cwd=folder.path,
                          env=os.environ | environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode == 2 and "octavo launch -- train" in done.stdout


def main():
    common.require_files()
    require_programs()
    guide = {"GPU_NUM": "2", "WORLD_SIZE": "1", "RANK": "0"}
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        common.prepare_data(work)
        wanted = train(work, "octavo", [OCTAVO, "launch", "--nproc", "2", "--"])
        found = {
            "torchrun": train(work, "torchrun", [TORCHRUN, "--no-python", "--standalone", "--nproc-per-node=2", OCTAVO]),
            "mpirun": train(work, "mpirun", ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2", OCTAVO]),
            "guide": train(work, "guide", [OCTAVO, "launch", "--"], guide),
        }
        with slurm_cluster.Cluster(work / "cluster") as cluster:
            found["srun"] = train(work, "srun", ["srun", "--ntasks=2", "--kill-on-bad-exit=1", OCTAVO],
                                  cluster.environment)
        alone = train(work, "alone", [OCTAVO])
        sent_away = refused(work, guide)
    different = [name for name, losses in found.items() if losses != wanted]
    for name in different:
        print(f"{name}: {found[name]}\nwanted: {wanted}")
    whole = len(wanted) == STEPS and wanted != alone  # two ranks see twice the samples of one
    print(f"launchers={len(found) + 1} steps={len(wanted)} different={len(different)} loss={wanted[-1]:.6f} "
          f"guide_refused={int(sent_away)}")
    sys.exit(0 if whole and not different and sent_away else 1)


if __name__ == "__main__":
    main()
