"""The Dockerfile, which no engine builds here: linted, its files exist, its steps are those of bootstrap and CI."""
import pathlib
import re
import subprocess
import sys

import common

DOCKERFILE = common.ROOT / "packaging" / "Dockerfile"


def instructions():
    """(word, rest) of each instruction; comments left out, lines joined."""
    lines = [line for line in DOCKERFILE.read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [tuple(line.split(None, 1)) for line in joined.splitlines() if line.strip()]


def copied_files(rest):
    words = rest.split()
    return [] if any(word.startswith("--from") for word in words) else words[:-1]


def complaints():
    found = instructions()
    runs = [rest for word, rest in found if word == "RUN"]
    build = [" ".join(rest.split()) for rest in runs]
    for step in ("./bootstrap build", "packaging/wheel /wheel"):
        if step not in build:
            yield f"wanted the step RUN {step}"
    next_steps = re.search(r"Next: (.*?)\"", (common.ROOT / "bootstrap").read_text())[1]
    if not any(step.startswith(next_steps) for step in build):
        yield f"wanted the step that bootstrap tells next: {next_steps}"
    for word, rest in found:
        for name in copied_files(rest) if word == "COPY" else re.findall(r"bind,source=([^,\s]+)", rest):
            if not (common.ROOT / name).exists():
                yield f"{word} {name}: no such file"
        if word in ("ARG", "ENV") and re.search(r"TOKEN|KEY|SECRET|PASSWORD", rest, re.I):
            yield f"{word} {rest}: a secret does not belong into an image"
    users = [rest for word, rest in found if word == "USER"]
    if not users or users[-1] in ("0", "root"):
        yield "wanted a last USER that is not root"
    if sum(word == "FROM" for word, _ in found) < 2:
        yield "wanted an image to build and another to run"
    lock = (common.ROOT / "packaging" / "requirements.lock").read_text()
    rows = {row.partition(" # ")[0] for row in lock.splitlines()}
    run = [row for row in (common.ROOT / "packaging" / "run.lock").read_text().splitlines() if not row.startswith("#")]
    if not set(run) <= rows or not any(row.startswith("torch==") for row in run):
        yield "packaging/run.lock has rows that requirements.lock has not; run packaging/lock"
    cuda = re.search(r"^cuda-toolkit==(\d+\.\d+)", lock, re.M)[1]
    if f"nvidia/cuda:{cuda}." not in DOCKERFILE.read_text():
        yield f"wanted a base image of CUDA {cuda}, as torch's wheel"


def check():
    linted = subprocess.run([pathlib.Path(sys.prefix) / "bin" / "hadolint", "--no-color", DOCKERFILE], capture_output=True, text=True)
    found = linted.stdout.splitlines() + list(complaints())
    if linted.returncode != 0 or found:
        sys.exit("install: packaging/Dockerfile: " + "; ".join(found or [linted.stderr]))
