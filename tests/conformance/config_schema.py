#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=120 gate="" measures="src/config src/sweep/schema.cpp src/cli configs"
"""The JSON schemas that editors check configurations with, asked through the package jsonschema: every file of configs/ and every
default is accepted, and a wrong value of each key is refused by the schema and by octavo alike."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import jsonschema
import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release")) / "bin" / "octavo"
MODELINE = "# yaml-language-server: $schema="
WRONG_SWEEPS = {
    "method": ("method: grid", "method: gird"),
    "metric": ("name: val/loss", "name: val/los"),
    "goal": ("goal: minimize", "goal: smaller"),
    "key": ("penalty_weight:", "penalty_wait:"),
    "own key": ("penalty_weight:", "run_name:"),
    "field": ("values: [", "valuez: ["),
    "distribution": ("values: [0.0, 0.005, 0.01, 0.02, 0.05]", "{distribution: unifrm, min: 0.1, max: 0.2}"),
    "section": ("metric:", "metrics:"),
}


class Yaml12(yaml.SafeLoader):
    """PyYAML reads YAML 1.1, editors 1.2: 6e-4 is a number there, and off and yes are words."""


Yaml12.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:float")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()}
Yaml12.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
Yaml12.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(r"^[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?$"),
                             list("-+.0123456789"))


def octavo(*words, cwd=None):
    return subprocess.run([OCTAVO, *words], cwd=cwd, text=True, capture_output=True)


def schema_of(verb):
    """The schema as the program prints it; it must be one."""
    schema = json.loads(octavo(verb, "schema").stdout)
    jsonschema.Draft7Validator.check_schema(schema)
    return jsonschema.Draft7Validator(schema)


def problems_of(validator, text):
    return [error.message[:200] for error in validator.iter_errors(yaml.load(text, Yaml12))]


def wrong_values(entry):
    kinds = entry["type"] if isinstance(entry["type"], list) else [entry["type"]]
    if "enum" in entry:
        return ["no_such_word", "[" + entry["enum"][0] + "]"]
    if kinds[0] in ("integer", "number"):
        return ["word", f"{entry['minimum'] - 1}", f"{entry['maximum'] * 2 + 1}"]
    if kinds[0] == "boolean":
        return ["maybe", "3"]
    return ["[a, b]"] if "array" not in kinds else ['["", b]']


def wrong_configs(validator, work):
    """(tried, taken by the schema, taken by octavo)"""
    cases = [(key, value) for key, entry in validator.schema["properties"].items() for value in wrong_values(entry)]
    cases += [("batchsize", "3"), ("lerning_rate", "1e-3")]
    by_schema, by_octavo = [], []
    for key, value in cases:
        text = f"{key}: {value}\n"
        (work / "wrong.yaml").write_text(text)
        if not problems_of(validator, text):
            by_schema.append(text)
        done = octavo("config", "check", "wrong.yaml", cwd=work)
        if done.returncode != 2 or not re.search(r"wanted|unknown key", done.stderr):
            by_octavo.append(text)
    return len(cases), by_schema, by_octavo


def wrong_sweeps(validator, work):
    right = (ROOT / "configs" / "sweep_lambda.yaml").read_text()
    by_schema, by_octavo = [], []
    for name, (old, new) in WRONG_SWEEPS.items():
        text = right.replace(old, new, 1)
        if text == right:
            sys.exit(f"sweep_lambda.yaml: wanted '{old}' for the case {name}, found none")
        (work / "wrong.yaml").write_text(text)
        if not problems_of(validator, text):
            by_schema.append(name)
        if octavo("sweep", "create", "wrong.yaml", "--database", f"{name}.db", cwd=work).returncode != 2:
            by_octavo.append(name)
    return len(WRONG_SWEEPS), by_schema, by_octavo


def main():
    validators = {"octavo.schema.json": schema_of("config"), "sweep.schema.json": schema_of("sweep")}
    failed, files = [], sorted((ROOT / "configs").glob("*.yaml"))
    for path in files:
        text = path.read_text()
        name = text.splitlines()[0].removeprefix(MODELINE)
        if name not in validators or not (path.parent / name).is_file():
            failed.append(f"{path.name}: wanted a first line that names a schema beside it, found '{text.splitlines()[0]}'")
            continue
        failed += [f"{path.name}: {problem}" for problem in problems_of(validators[name], text)]
    failed += [f"defaults: {problem}" for problem in problems_of(validators["octavo.schema.json"], octavo("config", "show").stdout)]
    with tempfile.TemporaryDirectory() as folder:
        results = [wrong_configs(validators["octavo.schema.json"], pathlib.Path(folder)),
                   wrong_sweeps(validators["sweep.schema.json"], pathlib.Path(folder))]
    for _, by_schema, by_octavo in results:
        failed += [f"the schema takes: {case}" for case in by_schema] + [f"octavo takes: {case}" for case in by_octavo]
    print(*failed, sep="\n")
    print(f"configs={len(files)} wrong={sum(tried for tried, _, _ in results)} failed={len(failed)}")
    sys.exit(1 if failed or len(files) < 18 else 0)


if __name__ == "__main__":
    main()
