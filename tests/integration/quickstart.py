#!/usr/bin/env python3
# test: label=integration timeout=1200 gate="" alone
"""Runs the quick start of README.md as it stands, in a folder of its own, to generated text, in under ten minutes.

The commands are the lines of the ```bash block under `<!-- test: quickstart -->`. They run in one shell, in a scratch folder
that sees the checkout's files through links, so that runs/, checkpoints/ and .octavo/ do not land in the checkout.
One rule, so that the test costs no second build: the commands in BUILD_COMMANDS are left out, and the built tree
(OCTAVO_BUILD, build/release otherwise) must exist; .ci/run runs the same three commands.
With --max_steps N the training has no more steps than that: for CPUs on which all of them take too long.
"""
import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release"))
BUILD_COMMANDS = ["./bootstrap", "cmake --preset release", "cmake --build --preset release"]
MAX_SECONDS = 600
MIN_GENERATED_CHARS = 100


def quickstart_commands(readme):
    block = re.search(r"<!-- test: quickstart -->\n```bash\n(.*?)```", readme, re.S)
    if not block:
        sys.exit("README.md: wanted a ```bash block under <!-- test: quickstart -->, found none")
    return [line for line in block[1].splitlines() if line.strip()]


def make_scratch(folder):
    """The checkout's tracked top-level files and folders, by link, and the build under its usual name."""
    for name in ("src", "docs", "configs", "README.md"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "build").mkdir()
    (folder / "build" / "release").symlink_to(BUILD)


def run_in_one_shell(commands, folder, seconds):
    """Each command's output after a line that no program prints; exits when one fails or time is up."""
    mark = "quickstart-mark-5e2b"
    script = "set -e\n" + "".join(f"echo {mark}\n{command}\n" for command in commands)
    shell = subprocess.Popen(["bash", "-c", script], cwd=folder, text=True, errors="replace", start_new_session=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        output, _ = shell.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)
        sys.exit(f"quickstart: wanted an end within {seconds:.0f} s, found it still running: {commands}")
    sections = output.split(mark + "\n")[1:]
    for command, section in zip(commands, sections):
        print(f"$ {command}\n{section}", end="")
    if shell.returncode != 0:
        sys.exit(f"quickstart: '{commands[len(sections) - 1]}' ended with {shell.returncode}")
    return sections


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_steps", type=int)
    options = parser.parse_args()
    commands = quickstart_commands((ROOT / "README.md").read_text())
    missing = [command for command in BUILD_COMMANDS if command not in commands]
    if missing:
        sys.exit(f"README.md: wanted the quick start to build with {missing}; keep BUILD_COMMANDS in step")
    if not (BUILD / "bin" / "octavo").is_file():
        sys.exit(f"wanted {BUILD / 'bin' / 'octavo'}, found none; build first: " + " && ".join(BUILD_COMMANDS))
    commands = [command for command in commands if command not in BUILD_COMMANDS]
    if options.max_steps:
        commands = [f"{c} --max_steps {options.max_steps}" if c.startswith("octavo train ") else c for c in commands]
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        make_scratch(folder)
        sections = run_in_one_shell(commands, folder, MAX_SECONDS)
        kept = len(list(folder.glob("checkpoints/quickstart/step-*/manifest.json")))
    seconds = time.monotonic() - start
    generated = [len(section) for command, section in zip(commands, sections) if " generate " in command]
    chars = min(generated, default=0)
    good = seconds < MAX_SECONDS and chars >= MIN_GENERATED_CHARS and kept > 0
    print(f"seconds={seconds:.1f} commands={len(commands)} checkpoints={kept} generated_chars={chars}")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
