#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=lint timeout=60 gate=""
"""The files for hosted CI and for development containers, which nothing here can run: they parse, the commands, presets and
configurations that they name exist, jobs are bounded and may only read, and the gate is .ci/run.

usage: hosted_ci.py [ROOT]
"""
import json
import pathlib
import re
import sys

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Programs of the image, or that ./bootstrap installs.
KNOWN = {"apt-get", "cmake"}
ACTION = re.compile(r"[\w-]+/[\w-]+@v\d+")


def steps_of(workflow):
    for name, job in workflow["jobs"].items():
        for step in job["steps"]:
            yield name, step


def command_complaints(root, text):
    presets = {preset["name"] for preset in json.loads((root / "CMakePresets.json").read_text())["configurePresets"]}
    for command in re.split(r"&&|\n", text):
        words = command.split()
        if not words:
            continue
        built = words[0].startswith("build/release/bin/")
        if words[0] not in KNOWN and not built and not (root / words[0]).is_file():
            yield f"{words[0]}: no such command"
        for word in words[1:]:
            if word.startswith("configs/") and not (root / word).is_file():
                yield f"{word}: no such file"
        for preset in re.findall(r"--preset (\w+)", command):
            if preset not in presets:
                yield f"--preset {preset}: no such preset"


def workflow_complaints(root, workflow):
    if workflow.get("permissions") != {"contents": "read"}:
        yield "wanted permissions: {contents: read}"
    for name, job in workflow["jobs"].items():
        if not 0 < job.get("timeout-minutes", 0) <= 360:
            yield f"{name}: wanted timeout-minutes of at most 360"
    for name, step in steps_of(workflow):
        if "uses" in step and not ACTION.fullmatch(step["uses"]):
            yield f"{name}: {step['uses']}: wanted an action with its version"
        for complaint in command_complaints(root, step.get("run", "")):
            yield f"{name}: {complaint}"


def complaints(root):
    files = sorted((root / ".github" / "workflows").glob("*.yml"))
    if not files:
        yield ".github/workflows: wanted files, found none"
    runs = ""
    for path in files:
        text = path.read_text()
        workflow = yaml.safe_load(text)
        if "Not run yet" not in text:
            yield f"{path.name}: wanted a line that says that nobody ran it yet"
        for complaint in workflow_complaints(root, workflow):
            yield f"{path.name}: {complaint}"
        runs += " ".join(step.get("run", "") for _, step in steps_of(workflow)) + " "
    for command in (".ci/run", ".ci/nightly"):
        if command not in runs:
            yield f"no workflow runs {command}"
    container = json.loads((root / ".devcontainer" / "devcontainer.json").read_text())
    for key in ("onCreateCommand", "postCreateCommand"):
        for complaint in command_complaints(root, container[key]):
            yield f"devcontainer.json: {key}: {complaint}"
    for schema in container["customizations"]["vscode"]["settings"]["yaml.schemas"]:
        if not (root / schema).is_file():
            yield f"devcontainer.json: {schema}: no such file"


def main():
    found = list(complaints(pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT))
    for complaint in found:
        print(complaint)
    print(f"broken={len(found)}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
