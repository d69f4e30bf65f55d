#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=7200 alone measures="packaging pyproject.toml CMakeLists.txt cmake"
"""One wheel, installed by pip with all that it depends on in a clean environment of each Python, where it trains 20 steps.

The wheel is for any Python 3; torch's and pyarrow's are for one each, so that each Python has other files beside the same program.
Also: a dry run, which opens CUDA's libraries of the same environment, and a Parquet file, which opens Arrow's.

usage: install_pythons.py [VERSION]…    such as 3.12; without any, each from 3.11 to 3.13 whose command (python3.12) is on PATH
The packages are downloaded (3 GB for each Python, of which most is the same and comes from pip's cache the second time).
The last line is pythons=… installed=… trained=….
"""
import pathlib
import subprocess
import sys
import tempfile
import time

import common
import install
from build_matrix import interpreter

VERSIONS = ("3.11", "3.12", "3.13")  # for which the lock has hashes
WANTED = 3
RUN_LOCK = common.ROOT / "packaging" / "run.lock"


def interpreters(asked):
    """{version: command} of those that work and can make environments."""
    found = {}
    for version in asked or VERSIONS:
        if command := interpreter(version):
            found[version] = command
        else:
            print(f"python{version}: none that works on PATH, not tried", flush=True)
    return found


def attempt(version, command, wheel, work):
    """(installed, trained) of one Python."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(dir=work) as folder, tempfile.TemporaryDirectory() as elsewhere:
        place = pathlib.Path(elsewhere)
        place.joinpath("text.txt").write_bytes(common.TEXT.read_bytes()[:200_000])
        environment = install.Environment(pathlib.Path(folder) / "fresh", place, command)
        try:
            # As the container does (packaging/Dockerfile): every file by its hash, then the wheel.
            environment.install(RUN_LOCK, "--no-deps", "--require-hashes", "--only-binary=:all:", "-r")
            environment.install(wheel, "--no-deps", "--no-index")
        except subprocess.CalledProcessError as error:
            print(f"python{version}: pip ended with {error.returncode}", flush=True)
            return 0, 0
        seconds = time.monotonic() - begin
        try:
            install.check_train(environment)
            install.check_modules(environment)
        except SystemExit as error:
            print(f"python{version}: {error}", flush=True)
            return 1, 0
        size = int(subprocess.check_output(["du", "-s", "--block-size=1000000", environment.folder]).split()[0]) / 1000
    print(f"python{version}: installed in {seconds:.0f} s ({size:.2f} GB), trained {install.STEPS} steps", flush=True)
    return 1, 1


def main():
    asked = sys.argv[1:]
    common.require_files()
    found = interpreters(asked)
    with tempfile.TemporaryDirectory(dir=common.BUILD) as name:
        work = pathlib.Path(name)
        wheel = install.make_wheel(work)
        print(f"{wheel.name}: auditwheel says {install.check_tag(wheel)}", flush=True)
        counts = [attempt(version, command, wheel, work) for version, command in found.items()]
    installed, trained = (sum(column) for column in zip(*counts)) if counts else (0, 0)
    print(f"pythons={len(found)} installed={installed} trained={trained}")
    sys.exit(0 if trained == len(found) >= (len(asked) or WANTED) else 1)


if __name__ == "__main__":
    main()
