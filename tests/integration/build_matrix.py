#!/usr/bin/env python3
# test: label=integration timeout=21600 night="gcc-wheel-3.11-2.15" alone measures="CMakeLists.txt cmake src packaging bootstrap"
"""The program built by each compiler, against each release of torch, for each Python; each trains 20 steps in FP8.

A cell is COMPILER-LIBRARIES-PYTHON-TORCH: clang or gcc; wheel or system (oneDNN of the distribution, where it has one that is
new enough); a version of Python; a minor release of torch. Each pair of Python and torch has an environment of its own with what
`./bootstrap build` installs: with the lock's files where the lock has them, elsewhere with the lock's versions and the NVIDIA
packages that this torch asks for. A cell whose system libraries are none is not built: it would be the wheel's again.

Cells that differ in their Python alone are configured and linked each in turn, in one folder; what the first compiled serves the second
when every file of the environment that a compiler read is the same there, byte for byte (the program contains no Python).
`compiled` counts the cells that were compiled from nothing.

usage: build_matrix.py [--list] [--diagonal] [--keep] [--jobs N] [CELL]…    CELL: names, or beginnings such as gcc-; all when none is given
       --list      says the cells and ends
       --diagonal  two cells that have every compiler, Python and torch between them: half an hour; all, in two sessions before cells were shared: two hours
       --keep      leaves the folders of builds (build/matrix/), so that the next run builds what has changed
The last line is cells=… built=… compiled=… trained=… same_as_wheel=… bootstrap_gb=… bootstrap_s=….
"""
import argparse
import hashlib
import json
import math
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

from common import BUILD, ROOT, TEXT, require_files

FOLDER = BUILD.parent / "matrix"
ACTIVE = FOLDER / "active"  # what builds see of the environment that they are for: the same paths for each
LOCK = ROOT / "packaging" / "requirements.lock"
COMPILERS = {"clang": "clang++", "gcc": "g++"}
TORCHES = {"2.15": "2.15.0", "2.14": "2.14.1"}  # as src/engine/torch_version.h
OTHER_PYTHONS = ("3.12", "3.13")  # the first that is here
STEPS = 20
MADE = 1_600_000_000
MOST_GB = 3.5
RUN = ["--model_name", "custom", "--n_layer", "2", "--n_head", "2", "--n_embd", "64", "--max_seq_length", "64", "--batch_size", "4",
       "--eval_freq", "0", "--sample_freq", "0", "--checkpoint_freq", "0", "--use_fp8", "--seed", "7", "--max_steps", str(STEPS)]


class CellError(Exception):
    """A cell that could not be built or did not train, in a sentence."""


def run(what, command, **more):
    """Its output. A failure is the cell's."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", **more)
    if done.returncode != 0:
        raise CellError(f"{what} ended with {done.returncode}:\n{done.stdout[-6000:]}")
    return done.stdout


def interpreter(version):
    """The command for a version of Python that works here and can make environments, or None."""
    name = shutil.which(f"python{version}")
    works = name and subprocess.run([name, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0
    return name if works else None


def lock_rows():
    """{name: (NAME==VERSION, the whole row)} of the set build."""
    rows = [line for line in LOCK.read_text().splitlines() if line.endswith(" # build")]
    return {re.match(r"[\w.-]+", row)[0]: (row.split(" ")[0], row) for row in rows}


def installed(python):
    """{name: version} in an environment, and what its torch and cuda-toolkit require."""
    code = ("import importlib.metadata as m, json, re; "
            "d = {re.sub('[-_.]+', '-', x.name).lower(): [x.version, x.requires or []] for x in m.distributions()}; print(json.dumps(d))")
    return json.loads(run("the list of packages", [python, "-c", code]))


def required_by_torch(python, names):
    """NAME==VERSION of NVIDIA's packages among `names`, as torch and its cuda-toolkit ask for them."""
    pins = {}
    for package in ("torch", "cuda-toolkit"):
        for line in installed(python)[package][1]:
            found = re.match(r"([\w.-]+)(?:\[.*?\])?\s*==\s*([\w.*]+)", line)
            if found and found[1] in names:
                pins[found[1]] = f"{found[1]}=={found[2]}"
    return pins


class Environment:
    """A Python with what the set build has, and the seconds that it took to install."""

    def __init__(self, version, torch):
        self.version, self.torch = version, torch
        self.folder, self.seconds = FOLDER / f"venv-{version}-{torch}", 0.0
        self.python = self.folder / "bin" / "python"

    def pip(self, *words):
        run("pip install", [self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
                            "--no-compile", "--only-binary=:all:", *words])

    def make(self):
        stamp, rows = self.folder / "made.txt", lock_rows()
        content = f"{self.version} {self.torch} {sorted(pin for pin, _ in rows.values())}"
        if stamp.exists() and stamp.read_text().partition("\n")[0] == content:
            self.seconds = float(stamp.read_text().partition("\n")[2])
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        begin = time.monotonic()
        run("python -m venv", [interpreter(self.version), "-m", "venv", self.folder])
        if self.is_locked():
            wanted = FOLDER / "wanted.lock"
            wanted.write_text("".join(row + "\n" for _, row in rows.values()))
            self.pip("--require-hashes", "-r", wanted)
        else:
            self.make_unlocked({name: pin for name, (pin, _) in rows.items()})
        self.link_copies()
        self.seconds = time.monotonic() - begin
        for file in self.folder.rglob("*"):  # older than whatever is built from it, so that contents decide
            os.utime(file, (MADE, MADE), follow_symlinks=False)
        stamp.write_text(f"{content}\n{self.seconds:.1f}")

    def link_copies(self):
        """As ./bootstrap does: oneDNN's library, which its wheel has under three names, once."""
        *others, longest = sorted((self.folder / "lib").glob("libdnnl.so*"))
        for file in others:
            file.unlink()
            file.hardlink_to(longest)

    def make_unlocked(self, pins):
        """torch first: its own list says which NVIDIA packages belong to it."""
        pins["torch"] = f"torch=={TORCHES[self.torch]}"
        self.pip(pins["torch"])
        toolkit = next(line for line in installed(self.python)["torch"][1] if line.startswith("cuda-toolkit"))
        self.pip(re.match(r"cuda-toolkit(?:\[.*?\])?(==[\d.]+)", toolkit).expand(r"cuda-toolkit\1"))
        pins |= required_by_torch(self.python, pins.keys())
        self.pip(*pins.values())

    def activate(self):
        shutil.rmtree(ACTIVE, ignore_errors=True)
        (ACTIVE / "lib" / "python3").mkdir(parents=True)
        (ACTIVE / "lib" / "python3" / "site-packages").symlink_to(self.folder / "lib" / f"python{self.version}" / "site-packages")
        for name in ("bin", "include", *(f"lib/{file.name}" for file in (self.folder / "lib").glob("lib*.so*"))):
            (ACTIVE / name).symlink_to(self.folder / name)

    def is_locked(self):
        """Whether the lock's hashes are of files for this Python and torch."""
        return self.version in ("3.11", "3.12", "3.13") and lock_rows()["torch"][0] == f"torch=={TORCHES[self.torch]}"

    def gigabytes(self):
        return int(run("du", ["du", "-s", "--block-size=1000000", self.folder]).split()[0]) / 1000


class Cell:
    """One way to build."""

    def __init__(self, compiler, libraries, environment):
        self.compiler, self.libraries, self.environment = compiler, libraries, environment
        self.name = f"{compiler}-{libraries}-{environment.version}-{environment.torch}"
        self.folder = FOLDER / f"{compiler}-{libraries}-{environment.torch}"
        self.contents = self.folder / "environment.json"

    def files_read(self):
        """{a file of the environment that a compiler read: hash of what it is now}."""
        lines = run("ninja -t deps", ["ninja", "-C", self.folder, "-t", "deps"]).splitlines()
        paths = {line.strip() for line in lines if line.startswith(f"    {ACTIVE}")}
        return {path: hashlib.file_digest(open(path, "rb"), "sha256").hexdigest() if os.path.exists(path) else None for path in sorted(paths)}

    def prepare_folder(self):
        """Nothing at first; behind a cell of another Python what that compiled, when it can serve. Whether it does."""
        self.environment.activate()
        if self.contents.exists():
            was, now = json.loads(self.contents.read_text()), self.files_read()
            if was and was == now:
                for file in (*self.folder.glob("bin/*"), *self.folder.rglob("*.so"), *self.folder.rglob("*.a")):
                    file.unlink()
                return True
            print(f"{self.name}: {sum(was.get(path) != digest for path, digest in now.items())} of {len(now)} files of the environment differ: "
                  "compiled anew", flush=True)
        shutil.rmtree(self.folder, ignore_errors=True)
        return False

    def configure(self):
        return run("cmake", ["cmake", "-S", ROOT, "-B", self.folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                             "-DCMAKE_UNITY_BUILD=ON", "-DOCTAVO_WERROR=ON", f"-DCMAKE_CXX_COMPILER={COMPILERS[self.compiler]}",
                             f"-DOCTAVO_LIBRARIES={self.libraries}", f"-DOCTAVO_VENV={ACTIVE}"])

    def build(self, jobs):
        run("the build", ["cmake", "--build", self.folder, "-j", str(jobs), "--target", "octavo_installed", "--", "-k", "0"])
        self.contents.write_text(json.dumps(self.files_read()))

    def train(self):
        """The last loss, after as many finite ones as there are steps."""
        work = self.folder / "run"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        (work / "text.txt").write_bytes(TEXT.read_bytes()[:200_000])
        run("train", [self.folder / "bin" / "octavo", "train", *RUN, "--dataset", "text.txt", "--run_name", "first"], cwd=work,
            env=os.environ | {"OMP_WAIT_POLICY": "passive"})
        records = map(json.loads, (work / "runs" / "first" / "metrics.jsonl").read_text().splitlines())
        losses = [record["train/loss"] for record in records if "train/loss" in record]
        if len(losses) != STEPS or not all(map(math.isfinite, losses)) or losses[-1] >= losses[0]:
            raise CellError(f"wanted {STEPS} finite losses that fall, found {losses}")
        return losses[-1]


def all_cells():
    other = next((version for version in OTHER_PYTHONS if interpreter(version)), None)
    if other is None:
        print(f"build_matrix: wanted one of Python {', '.join(OTHER_PYTHONS)}, found none: cells of 3.11 alone")
    versions = [version for version in ("3.11", other) if version]
    environments = {torch: [Environment(version, torch) for version in versions] for torch in TORCHES}
    return [Cell(compiler, libraries, environment) for torch in TORCHES for compiler in COMPILERS
            for libraries in ("wheel", "system") for environment in environments[torch]]


def chosen_cells(words):
    cells = all_cells()
    for word in words:
        if not any(cell.name.startswith(word) for cell in cells):
            sys.exit(f"build_matrix: wanted a cell, found '{word}'; cells are {' '.join(cell.name for cell in cells)}")
    return [cell for cell in cells if not words or cell.name.startswith(tuple(words))]


def diagonal(cells):
    """GCC with the first environment, which is the lock's; clang with the last, which has the other Python and the older torch."""
    wheels = [cell for cell in cells if cell.libraries == "wheel"]
    return [next(cell for cell in wheels if cell.compiler == "gcc"), [cell for cell in wheels if cell.compiler == "clang"][-1]]


def remove_unless_next(cell, following):
    if following is None or following.folder != cell.folder:
        shutil.rmtree(cell.folder, ignore_errors=True)


def attempt(cell, given, counts):
    """Builds and trains a cell, and counts how far it came."""
    begin = time.monotonic()
    try:
        cell.environment.make()
        serves = cell.prepare_folder()
        if cell.libraries == "system" and "oneDNN: of the wheel" in cell.configure():
            counts["same_as_wheel"] += 1
            print(f"{cell.name}: the distribution has no oneDNN 3.2 or later, so that it is the wheel's cell again", flush=True)
            return
        cell.configure()
        cell.build(given.jobs)
        counts["built"] += 1
        counts["compiled"] += not serves
        loss = cell.train()
        counts["trained"] += 1
        print(f"{cell.name}: {'linked' if serves else 'compiled'} and trained, last loss {loss:.4f}, {time.monotonic() - begin:.0f} s", flush=True)
    except CellError as error:
        counts["failed"] += 1
        print(f"{cell.name}: {error}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--diagonal", action="store_true")
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("cells", nargs="*")
    given = parser.parse_args()
    cells = diagonal(all_cells()) if given.diagonal else chosen_cells(given.cells)
    if given.list:
        print("\n".join(cell.name for cell in cells))
        return
    require_files()
    FOLDER.mkdir(parents=True, exist_ok=True)
    counts = dict.fromkeys(("built", "compiled", "trained", "same_as_wheel", "failed"), 0)
    for cell, following in zip(cells, [*cells[1:], None]):
        attempt(cell, given, counts)
        if not given.keep:
            remove_unless_next(cell, following)
    first = next((cell.environment for cell in cells if cell.environment.is_locked()), cells[0].environment)
    size = first.gigabytes() if first.folder.exists() else math.nan
    if size > MOST_GB:
        print(f"build_matrix: wanted at most {MOST_GB} GB for what ./bootstrap build installs, found {size:.2f}")
        counts["failed"] += 1
    print(f"cells={len(cells)} built={counts['built']} compiled={counts['compiled']} trained={counts['trained']} same_as_wheel={counts['same_as_wheel']} "
          f"bootstrap_gb={size:.2f} bootstrap_s={first.seconds:.0f}")
    sys.exit(1 if counts["failed"] or counts["trained"] + counts["same_as_wheel"] != len(cells) else 0)


if __name__ == "__main__":
    main()
