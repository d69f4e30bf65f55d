#!/usr/bin/env python3
# test: label=integration timeout=900 gate=""
"""Runs the command beside each capability on README.md ("What it does"), in a folder of its own.

What trains the quick start's model has fewer steps. A config of a model that is not here is checked (tests/integration/configs.py trains
it in miniature); `octavo plan` takes it as it stands. `compare` may find that so few steps are not enough.
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

import quickstart

ROOT = pathlib.Path(__file__).resolve().parents[2]
FEW = ["--max_steps", "16", "--eval_batches", "1", "--sample_freq", "0"]
LATER = ["--max_steps", "24", "--eval_batches", "1", "--sample_freq", "0"]
NOT_ENOUGH_DATA = 6
LEAST_COMMANDS = 7


def section(readme, title):
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", readme, re.M | re.S)
    if not found:
        sys.exit(f"README.md: wanted a section '## {title}', found none")
    return found[1]


def runnable(command):
    """The words to run for a command of the page, and the exit codes that are right."""
    words = shlex.split(command)[1:]
    if "--resume" in words:
        return words + LATER, (0,)
    if "configs/quickstart.yaml" in words and words[0] in ("train", "launch", "compare"):
        return words + FEW, (0, NOT_ENOUGH_DATA) if words[0] == "compare" else (0,)
    if words[0] == "train":
        return ["config", "check", words[1]], (0,)
    return words, (0,)


def capabilities(readme):
    """Bold headings and their commands: one each."""
    for item in re.findall(r"^- (.*?)(?=^- |^\S|\Z)", section(readme, "What it does"), re.M | re.S):
        heading, commands = re.match(r"\*\*(.*?)\*\*", item), re.findall(r"`(octavo [^`]+)`", item)
        if not heading or len(commands) != 1:
            sys.exit(f"README.md: wanted a bold heading and one command in each item, found '{item[:60]}'")
        yield heading[1], commands[0]


def main():
    readme = (ROOT / "README.md").read_text()
    octavo = quickstart.BUILD / "bin" / "octavo"
    if not octavo.is_file():
        sys.exit(f"wanted {octavo}, found none; build first: {' && '.join(quickstart.BUILD_COMMANDS)}")
    commands = list(capabilities(readme))
    # The run that later commands resume, and export.
    first = [("the quick start", "octavo train configs/quickstart.yaml --use_fp8")]
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        quickstart.make_scratch(folder)
        for heading, command in first + commands:
            words, right = runnable(command)
            done = subprocess.run([octavo, *words], cwd=folder, env=os.environ | {"OMP_WAIT_POLICY": "passive"}, check=False,
                                  capture_output=True, text=True, errors="replace")
            good = done.returncode in right
            failed += not good
            print(f"{'ran' if good else 'WRONG'}: {heading} octavo {' '.join(words)}: exit code {done.returncode}", flush=True)
            if not good:
                print(done.stdout[-1500:] + done.stderr[-1500:])
        exported = (folder / "my-model" / "config.json").is_file()
    print(f"commands={len(commands)} failed={failed} exported={int(exported)}")
    sys.exit(0 if failed == 0 and exported and len(commands) >= LEAST_COMMANDS else 1)


if __name__ == "__main__":
    main()
