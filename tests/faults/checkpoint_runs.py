"""Real trainings for tests/faults/checkpoints.py: on a disk that gets full, and resumed among damaged checkpoints. Each
function gives a text per case: what went wrong, or ""."""
import json
import os
import signal
import subprocess

import common
from common import DAMAGED, OCTAVO
from small_disk import Ballast, small_disk

ENVIRONMENT = 3  # exit code
STEPS = 120
CONFIG = f"""
model_name: custom
n_layer: 1
n_head: 2
n_embd: 64
max_seq_length: 64
batch_size: 4
max_steps: {STEPS}
learning_rate: 3e-3
eval_freq: 0
num_threads: 1
checkpoint_freq: 10
max_failed_saves: 0
keep_checkpoints: 3
run_name: run
"""


class Folder(common.Folder):
    def __init__(self, path, extra=""):
        super().__init__(path, CONFIG + extra)


class Checks:
    """Collects what is not as wanted."""

    def __init__(self, name, folder):
        self.name, self.folder, self.found = name, folder, []

    def want(self, condition, what):
        if not condition:
            self.found.append(what)

    def want_whole(self):
        self.want(self.folder.named("step-"), "no checkpoint is left")
        unsound = self.folder.unsound()
        self.want(not unsound, unsound)

    def problem(self):
        return f"{self.name}: {'; '.join(self.found)}\n{self.folder.log()}" if self.found else ""


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 16
    path.write_bytes(content)


def cut(path):
    path.write_bytes(path.read_bytes()[:-100])


def train_while_full(folder, disk, free_at):
    """A run whose disk gets full after step 25 and has room again after step `free_at`. Returns the exit code, and the
    newest checkpoint when the disk was full: saves are made in the background."""
    process, ballast, newest = folder.start(), None, 0
    if common.wait_for_step(process, 25):
        process.send_signal(signal.SIGSTOP)  # the disk is full before the next save
        ballast, newest = Ballast(disk, 0), folder.newest()
        process.send_signal(signal.SIGCONT)
        if free_at and common.wait_for_step(process, free_at):
            ballast.free()
    process.communicate()
    return process.returncode, newest


def full_for_a_while(work, reference, extra, name):
    with small_disk(work / f"disk-{name}", 24) as disk:
        folder = Folder(work / name, f"checkpoint_dir: {disk}/checkpoints\n" + extra.format(disk=disk))
        folder.checkpoints = disk / "checkpoints" / "run"
        checks = Checks(f"the disk was full for a while ({name})", folder)
        code, _ = train_while_full(folder, disk, free_at=70)
        checks.want(code == 0, f"the training ended with exit code {code}, wanted 0")
        checks.want("CHECKPOINT NOT SAVED" in folder.log(), "the log does not say that a save failed")
        checks.want_whole()
        checks.want(folder.named("step-") and folder.tensors(STEPS) == reference, "the last weights are other ones")
        receipt = disk / "runs" / "run" / "receipt.json" if extra else folder.path / "runs" / "run" / "receipt.json"
        saves = json.loads(receipt.read_text())["checkpoints"] if receipt.exists() else None
        failed = saves["failed"] if saves else 0
        checks.want(failed >= 1, f"the receipt counts {failed} failed saves")
        return checks.problem()


def full_to_the_end(work, reference):
    with small_disk(work / "disk-end", 24) as disk:
        folder = Folder(work / "end", f"checkpoint_dir: {disk}/checkpoints\n")
        folder.checkpoints = disk / "checkpoints" / "run"
        checks = Checks("the disk stayed full", folder)
        code, newest = train_while_full(folder, disk, free_at=0)
        checks.want(code == ENVIRONMENT, f"the training ended with exit code {code}, wanted {ENVIRONMENT}")
        checks.want("free in" in folder.log(), "the last save's failure is not explained")
        checks.want_whole()
        checks.want(folder.newest() >= newest >= 10, f"the last good checkpoint is {folder.newest()}, was {newest}")
        (disk / "ballast").unlink()
        code = folder.finish("--resume", "latest")
        checks.want(code == 0, f"the resume with room again ended with exit code {code}")
        checks.want(code == 0 and folder.tensors(STEPS) == reference, "the weights after the resume are other ones")
        return checks.problem()


def full_from_the_start(work):
    """Room for the files of a run, and not for its first checkpoint: said before step 1."""
    with small_disk(work / "disk-start", 24) as disk:
        folder = Folder(work / "start", f"checkpoint_dir: {disk}/checkpoints\n")
        Ballast(disk, 200_000)
        checks = Checks("no room for the first checkpoint", folder)
        code = folder.finish()
        checks.want(code == ENVIRONMENT, f"the training ended with exit code {code}, wanted {ENVIRONMENT}")
        checks.want("free in" in folder.log(), "what is missing is not said")
        checks.want(not (folder.path / "runs" / "run" / "metrics.jsonl").exists(), "it trained all the same")
        checks.want(not list(disk.glob("checkpoints/run/*")), "something is left where checkpoints go")
        return checks.problem()


def full_disks(work, short):
    if not (work / "data").exists():
        common.prepare_data(work)
    reference = Folder(work / "full-reference")
    reference.finish_or_exit()
    wanted = reference.tensors(STEPS)
    yield full_for_a_while(work, wanted, "", "checkpoints")
    yield full_to_the_end(work, wanted)
    yield full_from_the_start(work)
    if not short:
        yield full_for_a_while(work, wanted, "runs_dir: {disk}/runs\n", "metrics-too")


def damaged_run(work, name, ranks, how_many):
    """A run with checkpoints of steps 10, 20 and 30, the newest `how_many` of them damaged."""
    folder = Folder(work / name)
    code = run(folder, ranks, "--max_steps", "30")
    harms = (lambda step: flip(first(folder, step, "model")), lambda step: cut(first(folder, step, "optimizer")),
             lambda step: flip(folder.step(step) / "manifest.json"))
    if code == 0:
        for harm, step in list(zip(harms, (30, 20, 10)))[:how_many]:
            harm(step)
    return folder, code


def first(folder, step, group):
    return sorted(folder.step(step).glob(f"{group}*.safetensors"))[0]


def run(folder, ranks, *flags):
    if ranks == 1:
        return folder.finish(*flags)
    with open(folder.path / "stderr.txt", "a") as log:
        return subprocess.run(
            [OCTAVO, "launch", "--nproc", str(ranks), "--", "train", "train.yaml", "--dataset", folder.path.parent / "data", *flags],
            cwd=folder.path, env=os.environ | {"OMP_WAIT_POLICY": "passive"}, stdout=subprocess.DEVNULL,
            stderr=log).returncode


def newest_two_damaged(work, ranks):
    name = f"two-damaged-{ranks}"
    folder, code = damaged_run(work, name, ranks, 2)
    checks = Checks(f"the newest two of three checkpoints damaged, {ranks} ranks", folder)
    checks.want(code == 0, f"the first run ended with exit code {code}")
    code = run(folder, ranks, "--max_steps", "30", "--resume", "latest")
    log = folder.log()
    checks.want(code == 0, f"the resume ended with exit code {code}")
    checks.want("step-00000010 at step 10" in log, "it did not resume from step 10")
    for damaged in ("step-00000030", "step-00000020"):
        checks.want(any("CHECKPOINT NOT USABLE" in line and damaged in line for line in log.splitlines()),
                    f"the log does not say that {damaged} is damaged")
    resumed = folder.receipt().get("resumed") or {}
    checks.want(resumed.get("step") == 10 and resumed.get("fallbacks") == 2, f"the receipt says {resumed}")
    checks.want_whole()  # 20 and 30 were saved again
    return checks.problem()


def all_damaged(work, ranks):
    name = f"all-damaged-{ranks}"
    folder, code = damaged_run(work, name, ranks, 3)
    checks = Checks(f"all three checkpoints damaged, {ranks} ranks", folder)
    checks.want(code == 0, f"the first run ended with exit code {code}")
    before = (folder.path / "runs" / "run" / "metrics.jsonl").read_text()
    code = run(folder, ranks, "--max_steps", "60", "--resume", "latest")
    checks.want(code == DAMAGED, f"the resume ended with exit code {code}, wanted {DAMAGED}")
    checks.want("found only damaged ones" in folder.log(), "the log does not say why")
    checks.want((folder.path / "runs" / "run" / "metrics.jsonl").read_text() == before, "it trained from step 0")
    return checks.problem()


def none_there(work):
    folder = Folder(work / "none-there")
    checks = Checks("no checkpoint there", folder)
    code = folder.finish("--resume", "latest")
    checks.want(code == 2 and "found none there" in folder.log(), f"the resume ended with exit code {code}, wanted 2")
    return checks.problem()


def fallbacks(work, short):
    if not (work / "data").exists():
        common.prepare_data(work)
    yield newest_two_damaged(work, 1)
    yield all_damaged(work, 1)
    if not short:
        yield none_there(work)
        yield newest_two_damaged(work, 2)
        yield all_damaged(work, 2)
