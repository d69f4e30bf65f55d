#!/usr/bin/env python3
# test: label=lint timeout=60 gate=""
"""docs/results.md is what the scripts' docstrings and the kept results say; --write makes it again."""
import ast
import pathlib
import re
import sys

import results
import scripts

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "results.md"
HEAD = """# Results

Written by `tests/lint/results_page.py --write` from the scripts and their kept results; do not edit. Each script prints its results on
its last line and exits non-zero when one of them is below its target. Many results are older than the code: `tests/lint/results.py`
lists those. Machine, command and the whole output are in the linked files; "unknown" is what was not written down at the time.
"""
MOST = 200  # characters of a summary


def summary(path):
    """The first sentence of a script's docstring."""
    first = " ".join((ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].split())
    sentence = re.split(r"(?<=[^.]\.)\s+(?=[A-Z`-])", first)[0]
    return sentence if len(sentence) <= MOST else sentence[:MOST].rpartition(" ")[0] + " …"


def row(script):
    path = ROOT / script.result()
    header, last = results.header_of(path), path.read_text().rstrip().rpartition("\n")[2]
    mark = "; **below target**" if "exit" in header else ""
    link = f"[{header['date'].split(';')[0]}](../{script.result()})"
    cells = [f"`{script.name}`", summary(script.path).replace("|", "\\|"), f"`{last}`{mark}", link]
    return f"| {' | '.join(cells)} |"


def page():
    kept = [script for script in scripts.scripts(ROOT) if script.kind != "study" and (ROOT / script.result()).is_file()]
    folders = sorted({script.path.parent.relative_to(ROOT) for script in kept}, key=str, reverse=True)
    parts = [HEAD]
    for folder in folders:
        parts += [f"\n## {folder}\n\n| script | what it shows | last results | when |\n|---|---|---|---|\n"]
        parts += [row(script) + "\n" for script in kept if script.path.parent == ROOT / folder]
    return "".join(parts)


def main():
    wanted = page()
    if "--write" in sys.argv:
        PAGE.write_text(wanted)
    current = PAGE.is_file() and PAGE.read_text() == wanted
    if not current:
        print("docs/results.md: behind the scripts or their results; run tests/lint/results_page.py --write")
    print(f"rows={wanted.count(chr(10) + '| `')} current={int(current)}")
    sys.exit(0 if current else 1)


if __name__ == "__main__":
    main()
