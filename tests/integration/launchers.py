#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate=""
"""Every command of docs/how-to/cluster.md under `test: launchers`, as it stands there: octavo launch, torchrun --no-python, srun
(of a real SLURM), mpirun and the guides' GPU_NUM convention each train two ranks for ten steps to the same losses, number
for number. The files for SLURM and Kubernetes are read by shellcheck, a YAML parser and the types of JobSet's and Kubernetes' API."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import common
import slurm_cluster
import yaml
from common import OCTAVO
from kubeflow_trainer_api.models.jobset_v1alpha2_job_set import JobsetV1alpha2JobSet

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
dataset: ../data
"""
ENVIRONMENT = common.page_environment() | {
    "OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1",
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}
GUIDE = {"GPU_NUM": "2", "WORLD_SIZE": "1", "RANK": "0"}


def require_programs():
    slurm_cluster.require_programs()
    missing = [name for name in ("mpirun", "torchrun", "shellcheck")
               if shutil.which(name, path=ENVIRONMENT["PATH"]) is None]
    if missing:
        print(f"wanted {missing}, found none; run ./bootstrap")
        sys.exit(1 if os.environ.get("CI") == "true" else 0)


def run(folder, command, environment=None):
    """Runs a line of shell in a run's folder, and ends the script when it fails."""
    done = subprocess.run(["bash", "-c", command], cwd=folder.path, env=ENVIRONMENT | (environment or {}), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=180)
    if done.returncode != 0:
        sys.exit(f"exit code {done.returncode} of: {command}\n{done.stdout}")


def losses(folder):
    return [record["train/loss"] for record in folder.records() if "train/loss" in record]


def page_runs(work, cluster):
    """Command to losses, for those that train."""
    found = {}
    for i, command in enumerate(common.page_commands("how-to/cluster.md", "launchers")):
        folder = common.Folder(work / f"page-{i}", "")
        (folder.path / "config.yaml").write_text(CONFIG)
        run(folder, command, cluster.environment | {"PATH": ENVIRONMENT["PATH"] + ":/usr/sbin"})
        if "--kubernetes" in command:
            check_manifest(folder.path / "job.yaml", nodes=2, gpus=None)
            continue
        found[command] = losses(folder)
        print(f"{command}: {len(found[command])} steps, last loss {found[command][-1]}", flush=True)
        if "--log_dir" in command and not (folder.path / "logs" / "rank-1.log").exists():
            sys.exit(f"no logs/rank-1.log after {command}")
    return found


def differences(given, read, place=""):
    """What a reader left out of a document, or added to it."""
    if isinstance(given, dict) and isinstance(read, dict):
        return [text for key in sorted({*given, *read})
                for text in ([f"{place}.{key}"] if (key in given) != (key in read) else differences(given[key], read[key], f"{place}.{key}"))]
    if isinstance(given, list) and isinstance(read, list) and len(given) == len(read):
        return [text for i, pair in enumerate(zip(given, read)) for text in differences(*pair, f"{place}[{i}]")]
    return [] if given == read else [f"{place}: {given!r} became {read!r}"]


def check_schema(spec):
    """JobSet's and Kubernetes' own types, as Kubeflow's package has them: a field that they do not know is left out, one that must
    be there and is not is added or refused."""
    wrong = differences(spec, JobsetV1alpha2JobSet.from_dict(spec).to_dict())
    if wrong:
        sys.exit(f"not as the schema wants it: {', '.join(wrong)}")
    spec["spec"]["replicatedJobs"][0]["template"]["spec"]["backofLimit"] = 3
    if not differences(spec, JobsetV1alpha2JobSet.from_dict(spec).to_dict()):
        sys.exit("a field that Kubernetes does not know was not seen")


def check_manifest(path, nodes, gpus):
    """What Kubernetes would be told, by what the parsed file says."""
    spec = yaml.safe_load(path.read_text())
    name = spec["metadata"]["name"]
    job = spec["spec"]["replicatedJobs"][0]["template"]["spec"]
    pod = job["template"]["spec"]
    container = pod["containers"][0]
    rules = {rule["action"]: rule for rule in job["podFailurePolicy"]["rules"] if "onExitCodes" in rule}
    command, security, probe = container["args"], pod["securityContext"], container["livenessProbe"]["exec"]["command"]
    compile(probe[2], "livenessProbe", "exec")
    wrong = [what for what, right in {
        "apiVersion": spec["apiVersion"] == "jobset.x-k8s.io/v1alpha2" and spec["kind"] == "JobSet",
        "nodes": job["completionMode"] == "Indexed" and job["parallelism"] == job["completions"] == nodes,
        "75": rules["Ignore"]["onExitCodes"]["values"] == [75] and pod["restartPolicy"] == "Never",
        "node_rank": command[command.index("--node_rank") + 1] == "$(JOB_COMPLETION_INDEX)",
        "master": command[command.index("--master_address") + 1] == f"{name}-nodes-0-0.{name}",
        "command": command[command.index("--") + 1:][:2] == ["train", "config.yaml"],
        "gpus": container.get("resources", {}).get("limits", {}).get("nvidia.com/gpu") == gpus,
        "secret": [v["secret"]["defaultMode"] for v in pod["volumes"] if "secret" in v] == [0o440],
        "image": "command" not in container and command[0] == "launch",
        "user": security["fsGroup"] == security["runAsUser"] == 10001,
        "restarts": job["backoffLimit"] >= 2 * nodes * int(command[command.index("--max_restarts") + 1]) > 0,
        "probe": probe[:2] == ["python3", "-c"] and "/healthz" in probe[2],
    }.items() if not right]
    if wrong:
        sys.exit(f"{path}: wrong {wrong}\n{path.read_text()}")
    check_schema(spec)


def check_files(work):
    """The files for one and for many nodes, with and without GPUs and odd words."""
    folder = common.Folder(work / "files", "")
    count = 0
    for device in ("cpu", "auto"):
        (folder.path / "config.yaml").write_text(f"device: {device}\nmodel_name: gpt2\nrun_name: run\n")
        for nodes, more in ((1, ""), (16, "--sample_prompt \"it's \\$HOME and \\\"more\\\"\"")):
            run(folder, f"octavo launch --nproc 8 --nnodes {nodes} --slurm job.sh --kubernetes job.yaml -- "
                        f"train config.yaml {more}")
            run(folder, "bash -n job.sh && shellcheck --severity=warning job.sh")
            check_manifest(folder.path / "job.yaml", nodes, 8 if device == "auto" else None)
            text = (folder.path / "job.sh").read_text()
            if ("--gpus-per-node=8" in text) != (device == "auto") or f"--nodes={nodes}\n" not in text:
                sys.exit(f"wrong nodes or GPUs in\n{text}")
            count += 2
            for name in ("job.sh", "job.yaml"):
                (folder.path / name).unlink()
    return count


def refused(work):
    """`octavo train` without a launcher, where the guides' variables ask for several ranks."""
    folder = common.Folder(work / "refused", CONFIG)
    done = subprocess.run([OCTAVO, "train", "train.yaml"], cwd=folder.path, env=ENVIRONMENT | GUIDE, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return done.returncode == 2 and "octavo launch -- train" in done.stdout


def main():
    common.require_files()
    require_programs()
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        common.prepare_data(work)
        with slurm_cluster.Cluster(work / "cluster") as cluster:
            found = page_runs(work, cluster)
        alone = common.Folder(work / "alone", CONFIG)
        run(alone, "octavo train train.yaml")
        files, sent_away = check_files(work), refused(work)
        different_alone = losses(alone) != next(iter(found.values()))  # two ranks see twice the samples of one
    launchers = [name for name in ("octavo launch", "torchrun", "srun", "mpirun", "GPU_NUM")
                 if any(command.startswith(name) for command in found)]
    wanted = next(iter(found.values()))
    different = [command for command, values in found.items() if values != wanted]
    for command in different:
        print(f"{command}: {found[command]}\nwanted: {wanted}")
    print(f"launchers={len(launchers)} runs={len(found)} steps={len(wanted)} different={len(different)} "
          f"loss={wanted[-1]:.6f} files={files} guide_refused={int(sent_away)}")
    sys.exit(0 if len(launchers) == 5 and len(wanted) == STEPS and different_alone and not different and sent_away else 1)


if __name__ == "__main__":
    main()
