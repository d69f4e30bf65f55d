"""What the scripts of this folder share: the built program, a folder for each run, and ways to stop one."""
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release"))
OCTAVO = BUILD / "bin" / "octavo"
DATA = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT.parent / "shared"))
TEXT = DATA / "data" / "text" / "tinyshakespeare.txt"

DAMAGED, STOPPED = 5, 75  # exit codes
LEFT_BY_A_SAVE = (".tmp-", ".old-", ".del-", ".link-")  # in a checkpoint folder, until the next save
# What of a record is about time and memory, and so never the same twice.
INCIDENTAL = ("perf/", "data/wait", "memory/", "goodput", "gpu/", "flags/")


def require_files():
    """Ends the script when the program or its text is missing: a failure, or without CI a remark about the text."""
    for path, remedy in ((OCTAVO, f"ninja -C {BUILD} octavo"), (TEXT, "set OCTAVO_TEST_DATA")):
        if not path.exists():
            print(f"wanted {path}, found none; {remedy}")
            sys.exit(1 if path == OCTAVO or os.environ.get("CI") == "true" else 0)


def prepare_data(work):
    """Shards in work/data, where the runs of the folders beside it look for them."""
    subprocess.run([OCTAVO, "data", "prepare", "--dataset", TEXT, "--output", work / "data"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


class Folder:
    """The folder of one run, which its config names `run`, and the commands on it."""

    def __init__(self, path, config, checkpoints="checkpoints"):
        self.path, self.checkpoints = path, path / checkpoints / "run"
        path.mkdir()
        (path / "train.yaml").write_text(config)

    def start(self, *flags):
        environment = os.environ | {"OMP_WAIT_POLICY": "passive"}  # spinning crawls on a shared machine
        with open(self.path / "stderr.txt", "a") as log:
            return subprocess.Popen(
                [OCTAVO, "train", "train.yaml", "--dataset", self.path.parent / "data", *flags], cwd=self.path,
                env=environment, stdout=subprocess.PIPE, stderr=log, text=True)

    def again(self):
        """The flags to continue with, or to begin anew when it was killed before its first checkpoint."""
        return ("--resume", "latest") if self.newest() else ("--overwrite",)

    def finish(self, *flags):
        process = self.start(*flags)
        process.communicate()
        return process.returncode

    def finish_or_exit(self, *flags):
        code = self.finish(*flags)
        if code != 0:
            sys.exit(f"{self.path.name} ended with exit code {code}:\n{self.log()}")

    def log(self):
        return (self.path / "stderr.txt").read_text()

    def named(self, *prefixes):
        """What is in the checkpoint folder under such names, oldest step first."""
        names = os.listdir(self.checkpoints) if self.checkpoints.exists() else []
        return sorted(n for n in names if n.startswith(prefixes))

    def step(self, step):
        return self.checkpoints / f"step-{step:08d}"

    def tensors(self, step):
        """The files of a checkpoint's groups, by name."""
        return {file.name: file.read_bytes() for file in sorted(self.step(step).glob("*.safetensors"))}

    def manifest(self, step):
        return json.loads((self.step(step) / "manifest.json").read_text())

    def receipt(self):
        return json.loads((self.path / "runs" / "run" / "receipt.json").read_text())

    def unsound(self):
        """What `checkpoints verify` says when one of the checkpoints is not whole; "" when all are, or there are none."""
        if not self.named("step-"):
            return ""
        done = subprocess.run([OCTAVO, "checkpoints", "verify", self.checkpoints], stdout=subprocess.PIPE, text=True)
        return "" if done.returncode == 0 else f"checkpoints verify ended with {done.returncode}:\n{done.stdout}"

    def newest(self):
        """The step of the checkpoint that `latest` names; 0 before the first."""
        try:
            return int(os.readlink(self.checkpoints / "latest").rsplit("-", 1)[1])
        except FileNotFoundError:
            return 0

    def records(self):
        """The metrics, without what may differ between two runs that are the same."""
        return read_records(self.path / "runs" / "run" / "metrics.jsonl")


def page_commands(page, test):
    """The commands of a page's blocks under <!-- test: NAME -->, one string each."""
    blocks = re.findall(rf"<!-- test: {test} -->\n```bash\n(.*?)```", (ROOT / "docs" / page).read_text(), re.S)
    return [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def page_environment():
    """With the built program, the tools beside it and the wheel's Python package found by their names."""
    return os.environ | {"PATH": f"{OCTAVO.parent}:{ROOT}/.deps/venv/bin:{os.environ['PATH']}", "PYTHONPATH": f"{ROOT}/packaging/python"}


def octavo(folder, *words, code=0):
    """What the program printed in that folder. Ends the script when it does not end with the wanted exit code."""
    done = subprocess.run([OCTAVO, *map(str, words)], cwd=folder, text=True, errors="replace", capture_output=True, timeout=300,
                          env=os.environ | {"OMP_WAIT_POLICY": "passive"})
    if done.returncode != code:
        sys.exit(f"octavo {shlex.join(map(str, words))} ended with {done.returncode}, wanted {code}:\n"
                 f"{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done


def read_records(path):
    """A metrics.jsonl, without what may differ between two runs that are the same."""
    lines = path.read_text().splitlines()
    return [{k: v for k, v in record.items() if not k.startswith(INCIDENTAL)} for record in map(json.loads, lines)
            if "flag" not in record]


def read_flags(path):
    """The red flags of a metrics.jsonl."""
    return [record for record in map(json.loads, path.read_text().splitlines()) if "flag" in record]


def wait_for_step(process, step):
    """Reads step lines up to the wanted one; False when the run ended before."""
    for line in process.stdout:
        match = re.match(r"step\s+(\d+) ", line)
        if match and int(match.group(1)) >= step:
            return True
    return False


def interrupt(process, step, number):
    """Sends the signal when the step's line is seen. Returns the exit code, negative when the signal ended it."""
    wait_for_step(process, step)
    process.send_signal(number)
    process.communicate()
    return process.returncode


def record_difference(found, wanted):
    """The first difference between two lists of records, or ''."""
    if found == wanted:
        return ""
    for a, b in zip(found, wanted):
        keys = [k for k in sorted(a.keys() | b.keys()) if a.get(k) != b.get(k)]
        if keys:
            return f"records differ, first at step {b['step']}: {keys}, " \
                   f"{[str(a.get(k))[:80] for k in keys]} wanted {[str(b.get(k))[:80] for k in keys]}"
    return f"{len(found)} records, wanted {len(wanted)}"
