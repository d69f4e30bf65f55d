#!/usr/bin/env python3
# test: label=lint timeout=60 gate=""
"""docs/results.md, and the table of README.md between its markers, are what the kept results and tests/results/targets.json say.

targets.json has, for each script with a kept result, what it shows and its targets (`key >= value`), and the rows of README.md.
Below target is what misses one of these targets; such a result says so in its header (`exit`), others do not. A target's number
stands in the script itself, or in a module that it imports.

A page's marks of age are right when they were right at the commit that last changed it: a commit to what is measured would
else fail the gate until the pages are written once more. How many marks have come since is the last line's `unmarked`.

usage: results_page.py            checks; exit 1 when a page is behind
       results_page.py --strict   the same, and marks that have come since are wrong (before a release)
       results_page.py --write    writes both
"""
import ast
import json
import operator
import pathlib
import re
import sys

import results
import scripts

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE, README, DATA = "docs/results.md", "README.md", "tests/results/targets.json"
BEGIN, END = "<!-- results: written by tests/lint/results_page.py --write -->", "<!-- end of results -->"
HEAD = """# Results

Every measurement that is kept, with its target. Each script prints its numbers on its last line and exits non-zero when one misses
its target: run one to measure it on your machine. Written by `tests/lint/results_page.py --write` from the kept
outputs (linked from the dates); do not edit it.

\\* older than the code: what the script measures has changed since; `tests/lint/results.py` lists by how many commits.
**Below target** is what misses its target. A commit with a question mark is the one that the output came with: the code that it
ran was not written down. Where the machine was not written down either, it is unknown.
"""
STUDIES = """
## Studies

Long runs with a page of their own:

| what | target | measured | script |
|---|---|---|---|
"""
OPERATORS = {">=": operator.ge, "<=": operator.le, "<": operator.lt, "=": operator.eq}
SIGNS = {">=": "≥", "<=": "≤", "<": "<", "=": "="}
AGED = " \\*"  # behind what is older than the code
IMPORT = re.compile(r"^(?:import|from) ([\w, ]+)", re.M)


def number(text):
    """97, 1e-4, 97/100 (a share), 200,000; None for words."""
    try:
        above, _, below = text.rstrip("%").replace(",", "").partition("/")
        return float(above) / float(below) if below else float(above)
    except ValueError:
        return None


def words_of(script):
    """A script's name as words, which a narrow column can break."""
    return pathlib.Path(script).stem.replace("_", " ")


class Target:
    """`key >= value`."""

    def __init__(self, text):
        match = re.fullmatch(r"([\w.]+) (>=|<=|<|=) (\S+)", text)
        if not match or number(match[3]) is None:
            raise ValueError(f"wanted 'key >= value', found '{text}'")
        self.key, self.sign, self.value = match.groups()

    def missed(self, found):
        value = number(found)
        return value is None or not OPERATORS[self.sign](value, number(self.value))

    def bound(self):
        return f"{SIGNS[self.sign]}\N{NO-BREAK SPACE}{self.value}"


class Row:
    """One script's kept result beside its targets."""

    def __init__(self, root, entry, script, old):
        self.entry, self.script, self.old, self.path = entry, script, old, root / script.result()
        self.header = results.header_of(self.path)
        self.last = dict(re.findall(r"([\w.]+)=(\S+)", self.path.read_text().rstrip().rpartition("\n")[2]))
        self.targets = [Target(text) for text in entry["target"]]
        self.below = [target for target in self.targets if target.key in self.last and target.missed(self.last[target.key])]

    def complaints(self, root):
        name = self.script.name
        for key in [*(target.key for target in self.targets), *self.entry.get("show", ())]:
            if key not in self.last:
                yield f"{DATA}: {name} prints no '{key}'; its last line has {', '.join(self.last)}"
        if bool(self.below) != ("exit" in self.header):
            found = ", ".join(f"{t.key}={self.last[t.key]} (target {t.bound()})" for t in self.below) or "nothing"
            yield (f"{self.script.result()}: {found} is below target, and its header has {'an' if 'exit' in self.header else 'no'} "
                   f"'# exit:' line; correct {DATA} or measure again")
        numbers = numbers_of(root, self.script.path)
        for target in self.targets:
            value = number(target.value)
            if value not in (0, 1) and not any(abs(value - n) <= 1e-9 * abs(n) or abs(value * 100 - n) <= 1e-9 * abs(n) for n in numbers):
                yield f"{DATA}: the target {target.key} {target.bound()} is not in {name}; write the script's own"

    def cells(self):
        missed = [target.key for target in self.below]
        shown = [key for key in [*(target.key for target in self.targets), *self.entry.get("show", ())] if key in self.last]
        measured = [f"**`{key}={self.last[key]}` below target**" if key in missed else f"`{key}={self.last[key]}`" for key in shown]
        target = [f"`{target.key}` {target.bound()}" for target in self.targets] or ["runs to its end"]
        date = f"[{self.header['date'].split(';')[0]}](../{self.script.result()}){AGED if self.old else ''}"
        known = "unknown" not in self.header["commit"]
        commit = self.header["commit"] if known else f"{results.commit_of(self.header)}?"
        return [self.entry["what"], "<br>".join(target), "<br>".join(measured), date, commit, self.header["machine"],
                f"[{words_of(self.script.name)}](../{self.script.name})"]

    def front(self, text):
        values = {key: number(value) if number(value) is not None else value for key, value in self.last.items()}
        values = {key: int(value) if isinstance(value, float) and value == int(value) and "e" not in self.last[key] else value
                  for key, value in values.items()}
        text = text.format(**values)
        names = self.entry.get("names", {})
        if self.below:
            missed = ", ".join(f"{names.get(t.key, t.key)} {self.last[t.key]} (target {t.bound()})" for t in self.below)
            text += f"; **below target:** {missed}"
        return f"| {text}{AGED if self.old else ''} | [{words_of(self.script.name)}]({self.script.name}) |"


def numbers_of(root, path, seen=None):
    """The numbers in a script and in the modules of the tree that it imports."""
    seen = {path} if seen is None else seen
    text = path.read_text()
    found = {float(node.value) for node in ast.walk(ast.parse(text))
             if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool)}
    found |= {float(2 ** int(power)) for power in re.findall(r"\b2 ?\*\* ?(\d+)\b", text)}
    for names in IMPORT.findall(text):
        for name in re.findall(r"\w+", names):
            for folder in (path.parent, root / "tests" / "conformance", root / "tests" / "integration", root / "tests" / "faults"):
                module = folder / f"{name}.py"
                if module.is_file() and module not in seen:
                    seen.add(module)
                    found |= numbers_of(root, module, seen)
    return found


def table(root, until="HEAD"):
    """(title, rows) of the page, the rows of README.md as (row, text), and what is wrong with targets.json."""
    data = json.loads((root / DATA).read_text())
    kept = {script.name: script for script in scripts.scripts(root) if script.kind != "study" and (root / script.result()).is_file()}
    old = {path for path, _, _ in results.stale_results(root, until)}
    named = [entry["script"] for section in data["sections"] for entry in section["rows"]]
    wrong = [f"{DATA}: no row of {name}, which has a kept result; write what it shows and its targets" for name in kept if name not in named]
    wrong += [f"{DATA}: a row of {name}, which has no kept result" for name in named if name not in kept]
    wrong += [f"{DATA}: two rows of {name}" for name in sorted(set(named)) if named.count(name) > 1]
    sections = []
    for section in data["sections"]:
        title = "\n\n".join(filter(None, (section["title"], section.get("note"))))
        entries = [(entry, kept[entry["script"]]) for entry in section["rows"] if entry["script"] in kept]
        sections.append((title, [Row(root, entry, script, root / script.result() in old) for entry, script in entries]))
    rows = {row.script.name: row for _, group in sections for row in group}
    wrong += [complaint for row in rows.values() for complaint in row.complaints(root)]
    front = [(rows[entry["script"]], entry["text"]) for entry in data["front"] if entry["script"] in rows]
    wrong += [f"{DATA}: {README}'s row of {row.script.name} asks for '{key}', which it does not print"
              for row, text in front for key in re.findall(r"{([\w.]+)", text) if key not in row.last]
    front = [(row, text) for row, text in front if set(re.findall(r"{([\w.]+)", text)) <= set(row.last)]
    return sections, front, data["studies"], wrong


def line(cells):
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def study_cell(root, study):
    """The gaps in the first table of a study's page, and a link to it."""
    lines = [[cell.strip() for cell in row.strip("|").split("|")] for row in re.findall(r"^\|.*\|$", (root / study["page"]).read_text(), re.M)]
    heads, cells = lines[0], []
    for row in lines[2:] if study["column"] else ():
        if len(row) == len(heads) and row[heads.index(study["column"])]:
            missed = "within" in heads and row[heads.index("within")] == "no"
            cells.append(f"{row[0]} {row[heads.index(study['column'])]}{' (**below target**)' if missed else ''}")
    return ", ".join([*cells, f"[all](../{study['page']})"])


def page_of(root, sections, studies):
    parts = [HEAD]
    for title, rows in sections:
        parts.append(f"\n## {title}\n\n| what | target | measured | date | commit | machine | script |\n|---|---|---|---|---|---|---|\n")
        parts += [line(row.cells()) for row in rows]
    parts.append(STUDIES)
    parts += [line([study["what"], study["target"], study_cell(root, study),
                    f"[{words_of(study['script'])}](../{study['script']})"]) for study in studies]
    return "".join(parts)


def front_of(front):
    old = sum(row.old for row, _ in front)
    note = f"\n\\* {results.MARK}: what it measures has changed since.\n" if old else ""
    return "| result | script |\n|---|---|\n" + "".join(row.front(text) + "\n" for row, text in front) + note


def without_age(text):
    return re.sub(r" \\\*|\n\\\* older than the code: what it measures.*\n", "", text)


def pages_of(root, until="HEAD"):
    """{page: what it should be}, with the marks of age of that commit, all rows, and what is wrong."""
    sections, front, studies, wrong = table(root, until)
    readme = (root / README).read_text()
    before, begin, rest = readme.partition(BEGIN + "\n")
    _, end, after = rest.partition(END)
    if not end:
        wrong.append(f"{README}: wanted the lines '{BEGIN}' and '{END}' around its results")
    pages = {PAGE: page_of(root, sections, studies), README: before + begin + front_of(front) + end + after if end else readme}
    return pages, [row for _, group in sections for row in group], len(front), wrong


def check(root, write=False, strict=False):
    """What is wrong with the pages, and how many rows they have."""
    wanted, rows, front, wrong = pages_of(root)
    # A clone without history cannot tell which results are old.
    whole = results.git(root, "rev-parse", "--is-shallow-repository").stdout.strip() == "false"
    unmarked = 0
    for name, text in wanted.items():
        if write:
            (root / name).write_text(text)
        there = (root / name).read_text() if (root / name).is_file() else ""
        right = there == text if whole else without_age(there) == without_age(text)
        if not right and whole and not strict:
            written = results.git(root, "log", "-1", "--format=%H", "--", name).stdout.strip()
            right = bool(written) and there == pages_of(root, written)[0][name]
            unmarked += text.count(AGED) - there.count(AGED) if right else 0
        if not right:
            wrong.append(f"{name}: behind the kept results, or does not say which are {results.MARK}; run tests/lint/results_page.py --write")
    return wrong, f"rows={len(rows)} below_target={sum(bool(row.below) for row in rows)} front={front} unmarked={unmarked} wrong={len(wrong)}"


def main():
    wrong, counts = check(ROOT, "--write" in sys.argv, "--strict" in sys.argv)
    print(*wrong, counts, sep="\n")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
