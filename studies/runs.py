"""What studies share: runs of octavo, a table of results that a study may be stopped and started over, Student's t."""
import csv
import fcntl
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release"))
OCTAVO = BUILD / "bin" / "octavo"
DATA = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT.parent / "shared"))
USAGE_ERROR = 2  # octavo's exit code: no other run would fare better


def seed_list(text):
    """'5': 1 to 5; '2-4': 2 to 4; '3,7': those."""
    if text.isdigit():
        return list(range(1, int(text) + 1))
    ends = text.split("-")
    return list(range(int(ends[0]), int(ends[1]) + 1)) if len(ends) == 2 else [int(word) for word in text.split(",")]


def clock(seconds):
    return f"{seconds / 3600:.1f} h" if seconds > 5400 else f"{seconds / 60:.1f} min"


def octavo(folder, *words):
    """(exit code, all that it said)"""
    done = subprocess.run([OCTAVO, *map(str, words)], cwd=folder, env=os.environ | {"OMP_WAIT_POLICY": "passive"},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode == USAGE_ERROR:
        sys.exit(f"{OCTAVO} refused its settings; nothing was recorded for this run:\n{done.stdout[-2000:]}")
    return done.returncode, done.stdout


def octavo_train(given, who, then=None):
    """`octavo train` in a folder of its own. (metrics, receipt, output), or None when it failed, which is said.

    `then(folder)` is called while the folder with runs/run and checkpoints/run is there.
    """
    flags = [word for key, value in given.items() for word in (f"--{key}", str(value))]
    with tempfile.TemporaryDirectory(prefix="octavo-study-") as folder:
        code, said = octavo(folder, "train", *flags, "--run_name", "run")
        if code != 0:
            print(f"{who}: exit code {code}; its last lines:\n{said[-2000:]}")
            return None
        run = pathlib.Path(folder, "runs/run")
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        receipt = json.loads((run / "receipt.json").read_text())
        if then is not None:
            then(pathlib.Path(folder))
        return records, receipt, said


def validation_losses(records):
    return {record["step"]: record["val/loss"] for record in records if "val/loss" in record}


class Table:
    """A CSV file to which a row is added when its run is done. One study at a time may hold it."""

    def __init__(self, path, columns):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self.columns, self.file = path, columns, open(path, "a+", newline="")
        self.one_at_a_time = threading.Lock()
        try:
            fcntl.flock(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"wanted {path} for ourselves, found another study at work on it; wait for it or end it")

    def rows(self):
        """Those that are whole: a power failure may have cut one off."""
        with self.one_at_a_time:
            self.file.seek(0)
            found = list(csv.DictReader(self.file))
        return [row for row in found if all(row.get(name) for name in self.columns)]

    def add(self, *rows):
        with self.one_at_a_time:
            self.file.seek(0)
            text = self.file.read()
            if text and not text.endswith("\n"):
                self.file.write("\n")
            csv.writer(self.file, lineterminator="\n").writerows(([self.columns] if not text else []) + list(rows))
            self.file.flush()
            os.fsync(self.file.fileno())


def _t_distribution(freedom):
    """(angles, share of Student's t within them). With t = sqrt(freedom) tan(angle), the density is a power of the cosine."""
    angles = np.linspace(0, np.pi / 2, 1_000_001)
    density = np.cos(angles) ** (freedom - 1)
    share = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
    return angles, share / share[-1]


def t_quantile(freedom, within=0.95):
    """The t within which, to both sides, this share lies."""
    angles, share = _t_distribution(freedom)
    return float(np.sqrt(freedom) * np.tan(np.interp(within, share, angles)))


def t_tail(t, freedom):
    """The chance of a larger t, to one side."""
    angles, share = _t_distribution(freedom)
    half = float(1 - np.interp(np.arctan(abs(t) / np.sqrt(freedom)), angles, share)) / 2
    return half if t >= 0 else 1 - half


def holm(chances):
    """{name: chance} adjusted for asking as many questions (Holm, 1979)."""
    adjusted, largest = {}, 0.0
    for rank, (name, chance) in enumerate(sorted(chances.items(), key=lambda item: item[1])):
        largest = max(largest, min(1.0, (len(chances) - rank) * chance))
        adjusted[name] = largest
    return adjusted
