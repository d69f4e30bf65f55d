#!/usr/bin/env python3
# test: label=integration timeout=900 gate=""
"""Runs the command beside each capability on README.md ("What it does"), in a folder of its own; then those of its section "Keep your
trainer", and of docs/how-to/keep-your-trainer.md, on files of trainer_files.py, which must answer what they are asked for.

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
import trainer_files

ROOT = pathlib.Path(__file__).resolve().parents[2]
FEW = ["--max_steps", "16", "--eval_batches", "1", "--sample_freq", "0"]
LATER = ["--max_steps", "24", "--eval_batches", "1", "--sample_freq", "0"]
NOT_ENOUGH_DATA = 6
LEAST_COMMANDS, LEAST_KEPT = 7, 6
# What a command of another trainer's user may end with (verify finds faults of this machine, diagnose sick layers, compare too little),
# and a line that only an answer has.
ANSWERS = {"audit": ((0,), r"^verdict: FP8 asked for, 50% of GEMM time in FP8: 1 of 4096 x 4096 x 4096 in BF16"),
           "compare": ((0, NOT_ENOUGH_DATA), r"^  training loss +\d.*(PASS|NOT ENOUGH DATA)$"),
           "python": ((0,), r"^octavo\.capture: 15 linear layers of LlamaForCausalLM in "),
           "diagnose": ((0, 4), r"^to keep in BF16 under .*\n  lm_head: gradient: "),
           "plan": ((0,), r"^speed: \d+ tokens/s a GPU in (BF16|FP8 \(\w+\)), \d+ to \d+ for nine runs of ten"),
           "config": ((0,), r"^carried=\d+ refused=0 "),
           "verify": ((0, 3), r"^Python environment: \d+ ok$(.|\n)*^verify: ")}


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


def kept(readme):
    """The commands for those who keep their trainer: the front page's, and those of the page behind it that can run here."""
    for question, cell in re.findall(r"^\| (.+\?) \| (.+) \|$", section(readme, "Keep your trainer"), re.M):
        yield from ((question, command) for command in re.findall(r"`([^`]+)`", cell))
    page = (ROOT / "docs" / "how-to" / "keep-your-trainer.md").read_text()
    for block in re.findall(r"<!-- test: front_page -->\n```bash\n(.*?)```", page, re.S):
        yield from (("the page:", line.strip()) for line in block.splitlines() if line.strip())


def run_kept(commands, folder):
    """How many failed. Their `python` has torch; PATH, PYTHONPATH and VIRTUAL_ENV are those of an environment with octavo installed."""
    trainer_files.make(folder)
    venv = ROOT / ".deps" / "venv"
    environment = os.environ | {"PATH": f"{quickstart.BUILD / 'bin'}:{venv / 'bin'}:{os.environ['PATH']}", "VIRTUAL_ENV": str(venv),
                                "PYTHONPATH": str(ROOT / "packaging" / "python"), "OMP_WAIT_POLICY": "passive"}
    failed = 0
    for question, command in commands:
        words = command.split()
        right, answer = ANSWERS[words[1] if words[0] == "octavo" else words[0]]
        done = subprocess.run(["bash", "-c", command], cwd=folder, env=environment, check=False, text=True, errors="replace",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        good = done.returncode in right and re.search(answer, done.stdout, re.M)
        failed += not good
        print(f"{'ran' if good else 'WRONG'}: {question} {command}: exit code {done.returncode}", flush=True)
        if not good:
            print(f"wanted exit code {right} and a line as {answer}:\n{done.stdout[-3000:]}")
    return failed


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
    others = list(kept(readme))
    with tempfile.TemporaryDirectory() as name:
        failed += run_kept(others, pathlib.Path(name))
    print(f"commands={len(commands)} kept={len(others)} failed={failed} exported={int(exported)}")
    sys.exit(0 if failed == 0 and exported and len(commands) >= LEAST_COMMANDS and len(others) >= LEAST_KEPT else 1)


if __name__ == "__main__":
    main()
