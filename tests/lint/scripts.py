"""Lists the scripts of the tree. A script says itself what it is, in a line right below its shebang:

    # test: label=integration timeout=300 gate="--short" night=""

The first word is the kind: `test` (below tests/), `bench` or `study`. Keys of a test:
  label      its group for `ctest -L`: conformance, integration, faults, unit or lint
  timeout    seconds that ctest gives it
  gate       its arguments in .ci/run; without this key it is not in the gate
  night      its arguments in .ci/nightly; without this key it is not in the night
  alone      it measures time or memory, or uses both cores: nothing runs beside it. alone=night: only its night form
Of every kind:
  measures   the paths whose change makes its kept result old (see results.py); src when not given

ctest runs the gate form, or the night form of a script that has no other. A script without either is run by hand.

usage: scripts.py gate|night together|alone|lint    the commands, one a line
       scripts.py ctest BUILD                       the tests in the language of CTestTestfile.cmake
       scripts.py list                              every script and what it is
"""
import ast
import os
import pathlib
import re
import shlex
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDERS = {"test": "tests", "bench": "bench", "study": "studies"}
LABELS = ("conformance", "integration", "faults", "unit", "lint")
KEYS = {"test": {"label", "timeout", "gate", "night", "alone", "measures"}, "bench": {"measures"}, "study": {"measures"}}
HEADER = re.compile(r"# (test|bench|study):(.*)")
# The Python of ./bootstrap, found from the script; env's -S keeps it to one line. {} leads to the root.
VENV_SHEBANG = """#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/{}/.deps/venv/bin/python" "$0" "$@"'"""
PLAIN_SHEBANG = "#!/usr/bin/env python3"  # needs no package


class Script:
    """One script and its header."""

    def __init__(self, root, path, kind, text):
        self.root, self.path, self.name, self.kind = root, path, str(path.relative_to(root)), kind
        words = [word.partition("=") for word in shlex.split(text)]
        self.keys = {key: value for key, _, value in words}
        self.label = self.keys.get("label", kind)
        self.measures = self.keys.get("measures", "src").split()

    def command(self, occasion):
        """What .ci/run (gate) or .ci/nightly (night) calls, None when it does not."""
        return " ".join([self.name, *self.keys[occasion].split()]) if occasion in self.keys else None

    def alone(self, occasion):
        return self.keys.get("alone") in ("", occasion)

    def result(self):
        """Where its last output is kept."""
        if self.kind == "test":
            return f"tests/results/{self.path.parent.name}/{self.path.stem}.txt"
        return f"{FOLDERS[self.kind]}/results/{self.path.stem}.txt"

    def complaints(self):
        unknown = sorted(set(self.keys) - KEYS[self.kind])
        if unknown:
            yield f"{self.name}: its header has '{unknown[0]}'; {self.kind} has {', '.join(sorted(KEYS[self.kind]))}"
        if self.kind == "test" and self.label not in LABELS:
            yield f"{self.name}: its header needs label= one of {', '.join(LABELS)}, found '{self.keys.get('label', '')}'"
        if self.kind == "test" and not self.keys.get("timeout", "").isdigit():
            yield f"{self.name}: its header needs timeout=SECONDS, found '{self.keys.get('timeout', '')}'"
        if self.keys.get("alone", "") not in ("", "night"):
            yield f"{self.name}: its header needs alone or alone=night, found 'alone={self.keys['alone']}'"
        for path in self.measures:
            if not (self.root / path).exists():
                yield f"{self.name}: its header measures {path}, which is not there; name what took its place"


def python_files(root):
    """(file, the kind of script that its folder holds)."""
    for kind, folder in FOLDERS.items():
        for path in sorted((root / folder).glob("*/*.py" if kind == "test" else "*.py")):
            yield path, kind


def header_of(path):
    """The match of a file's header line, None without one."""
    with path.open() as file:
        return next((found for line, _ in zip(file, range(5)) if (found := HEADER.fullmatch(line.rstrip()))), None)


def scripts(root=ROOT):
    for path, _ in python_files(root):
        header = header_of(path)
        if header:
            yield Script(root, path, header[1], header[2])


def complaints(root):
    """What is wrong with the scripts: a file that runs without a header would be run by nothing."""
    texts = {path: path.read_text() for path, _ in python_files(root)}
    for path, kind in python_files(root):
        name, text, header = path.relative_to(root), texts[path], header_of(path)
        executable = os.access(path, os.X_OK)
        if header is None:
            used = re.compile(rf"\b(?:import|from) {path.stem}\b|import \w+, {path.stem}\b|\b{path.name}\b")
            if executable or text.startswith("#!"):
                yield (f"{name}: a script without a header, so nothing runs it; write a line '# {kind}: …' below the shebang "
                       "(tests/lint/scripts.py says what stands there), or take its shebang and executable bit")
            elif not any(used.search(other) for there, other in texts.items() if there != path):
                yield (f"{name}: no script imports it, and it has no header, so nothing runs it; write a shebang and a line "
                       f"'# {kind}: …' (tests/lint/scripts.py says what stands there) and make it executable")
            continue
        shebang = text.partition("\n")[0]
        wanted = (PLAIN_SHEBANG, VENV_SHEBANG.format("/".join([".."] * (len(name.parts) - 1))))
        if shebang not in wanted:
            yield f"{name}: wanted one of the shebangs {wanted[0]} or {wanted[1]}, found {shebang}"
        if not executable:
            yield f"{name}: a script that is not executable; chmod +x {name}"
        if header[1] != kind:
            yield f"{name}: its header says '{header[1]}'; scripts in {FOLDERS[kind]}/ say '{kind}'"
            continue
        yield from Script(root, path, header[1], header[2]).complaints()


def ctest_lines(build, root=ROOT):
    for script in scripts(root):
        command = script.command("gate") or script.command("night")
        if command is None:
            continue
        path, *arguments = command.split()
        name = path.removeprefix("tests/").removesuffix(".py")
        words = " ".join(f"[==[{word}]==]" for word in [str(root / path), *arguments])
        occasion = "gate" if script.command("gate") else "night"
        yield f"add_test([==[{name}]==] {words})"
        yield (f"set_tests_properties([==[{name}]==] PROPERTIES LABELS \"{script.label};script\" "
               f"TIMEOUT {script.keys['timeout']} RUN_SERIAL {'TRUE' if script.alone(occasion) else 'FALSE'} "
               f"ENVIRONMENT [==[OCTAVO_BUILD={build}]==])")


def summary_of(script):
    """The first sentence of its docstring."""
    return (ast.get_docstring(ast.parse(script.path.read_text())) or "").partition("\n")[0]


def main():
    words = sys.argv[1:]
    if len(words) == 2 and words[0] == "ctest":
        print(*ctest_lines(words[1]), sep="\n")
    elif len(words) == 2 and words[0] in ("gate", "night") and words[1] in ("together", "alone", "lint"):
        for script in scripts():
            group = "lint" if script.label == "lint" else "alone" if script.alone(words[0]) else "together"
            if script.command(words[0]) is not None and group == words[1]:
                print(script.command(words[0]))
    elif words == ["list"]:
        for script in scripts():
            print(f"{script.name}: {' '.join(f'{key}={value}' for key, value in script.keys.items())}\n    {summary_of(script)}")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
