"""Runs of several ranks under `octavo launch`: starting them, finding their processes, and reading what they said."""
import os
import pathlib
import re
import signal
import subprocess
import time

import common
from common import OCTAVO

CONFIG = """
model_name: custom
n_layer: 2
n_head: 2
n_embd: 64
max_seq_length: 64
batch_size: 2
max_steps: {steps}
learning_rate: 3e-3
eval_freq: 10
eval_batches: 1
checkpoint_freq: {checkpoint_freq}
keep_checkpoints: 3
num_threads: 1
mixed_precision: fp32
run_name: run
"""


class Launched:
    """One `octavo launch` and the ranks it started. What they say goes to files, or where `flow` says."""

    def __init__(self, folder, launch_flags, train_flags=(), within=(), environment=None, flow=None, dataset=None):
        self.folder, self.logs = folder, folder.path / "logs"
        logs = ("--log_dir", self.logs) if flow is None else ()
        command = [*within, OCTAVO, "launch", *logs, *launch_flags, "--", "train", "train.yaml",
                   "--dataset", dataset or folder.path.parent / "data", *train_flags]
        self.log_name = folder.path / f"launch-{len(list(folder.path.glob('launch-*')))}.txt"
        with open(self.log_name, "w") as log:
            self.process = subprocess.Popen(
                [str(part) for part in command], cwd=folder.path, stdout=flow or log, start_new_session=True,
                stderr=subprocess.STDOUT,
                env=os.environ | {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1"} | (environment or {}))

    def ranks(self):
        """The processes of the ranks that run now, by rank."""
        found = {}
        for environ in pathlib.Path("/proc").glob("[0-9]*/environ"):
            try:
                variables = environ.read_bytes().split(b"\0")
                if is_below(int(environ.parent.name), self.process.pid):
                    rank = [v for v in variables if v.startswith(b"OCTAVO_RANK=")]
                    if rank:
                        found[int(rank[0].split(b"=")[1])] = int(environ.parent.name)
            except OSError:
                continue  # it ended meanwhile
        return found

    def wait_for_ranks(self, count, patience=20):
        """All processes, once they are there."""
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and self.process.poll() is None:
            found = self.ranks()
            if len(found) == count:
                return found
            time.sleep(0.02)
        return {}

    def log(self, rank):
        path = self.logs / f"rank-{rank}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def said(self):
        return self.log_name.read_text(errors="replace")

    def wait(self, patience):
        try:
            return self.process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            return None

    def kill(self, ranks_too=True):
        """As a lost node: SIGKILL to the launcher, and to its ranks at once or by the kernel. Returns when all are gone."""
        pids = list(self.ranks().values())
        for pid in [*(pids if ranks_too else ()), self.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()
        seconds_until_gone(pids, 20)

    def end(self):
        """Whatever is left of it."""
        for pid in [*self.ranks().values(), self.process.pid]:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        self.process.wait()


def is_below(pid, ancestor):
    """Whether a process is another one, or was started by it."""
    while pid > 1:
        if pid == ancestor:
            return True
        pid = int(pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return False


def is_running(pid):
    """Neither gone nor a zombie."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


def status_bytes(pid, name):
    """A size that the kernel tells of a process: VmRSS, RssAnon, VmData."""
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"^{name}:\s+(\d+) kB$", status, re.M)
    if not found:
        raise ProcessLookupError(f"process {pid} has no {name}: it is a zombie")
    return 1024 * int(found.group(1))


def seconds_until_gone(pids, patience):
    """How long until none of them runs; None when one still does after the patience."""
    start = time.monotonic()
    while any(map(is_running, pids)):
        if time.monotonic() - start > patience:
            return None
        time.sleep(0.02)
    return time.monotonic() - start


def named_as_lost(text):
    """The ranks that a log calls lost."""
    found = set()
    for match in re.finditer(r"ranks? ((?:\d+(?:, )?)+)(?: and \d+ more)? (?:is|are) lost", text):
        found |= {int(rank) for rank in match.group(1).split(", ")}
    return found


def make_folder(path, steps, checkpoint_freq, extra=""):
    return common.Folder(path, CONFIG.format(steps=steps, checkpoint_freq=checkpoint_freq) + extra)
