#!/usr/bin/env python3
# test: label=lint timeout=60 gate=""
"""Shows that results_page.py finds a page that is behind, a row that is missing, a target that nobody checks, and a miss that is not marked."""
import json
import pathlib
import subprocess
import sys
import tempfile

import results_page
import scripts
from results_selftest import commit, write

SCRIPT = scripts.PLAIN_SHEBANG + '\n# bench: measures="src/data"\nTARGET = 1.3\n'
RESULT = "# date: 2026-01-02\n# commit: {}\n# machine: unknown\n# command: bench/speed.py\n{}ratio={} steps=3\n"
ROW = {"script": "bench/speed.py", "what": "speed", "target": ["ratio >= 1.3"], "show": ["steps"], "names": {"ratio": "speed"}}
DATA = {"sections": [{"title": "Speed", "rows": [ROW]}], "front": [{"script": "bench/speed.py", "text": "{ratio:.1f}x in {steps} steps"}],
        "studies": []}


def data(**changes):
    return json.dumps(DATA | {"sections": [{"title": "Speed", "rows": [ROW | changes]}]})


def spoiled(base):
    """(file, its text, what is then complained about)"""
    yield "bench/results/speed.txt", RESULT.format(base, "", "1.5"), "docs/results.md: behind"
    yield "bench/results/speed.txt", RESULT.format(base, "", "1.2"), "ratio=1.2 (target ≥\N{NO-BREAK SPACE}1.3) is below target, and its header has no"
    yield "bench/results/speed.txt", RESULT.format(base, "# exit: 1\n", "1.4"), "nothing is below target, and its header has an"
    yield results_page.DATA, data(target=["ratio >= 1.25"]), "the target ratio ≥\N{NO-BREAK SPACE}1.25 is not in bench/speed.py"
    yield results_page.DATA, data(show=["paces"]), "prints no 'paces'"
    yield results_page.DATA, data(what="pace"), "docs/results.md: behind"
    yield results_page.DATA, json.dumps(DATA | {"sections": []}), "no row of bench/speed.py"
    yield results_page.DATA, data(script="bench/gone.py"), "a row of bench/gone.py, which has no kept result"
    yield results_page.DATA, json.dumps(DATA | {"front": [{"script": "bench/speed.py", "text": "{pace}"}]}), "asks for 'pace'"
    yield "README.md", "no markers\n", "wanted the lines"
    yield "README.md", f"{results_page.BEGIN}\n| 9.9x |\n{results_page.END}\n", "README.md: behind"
    yield "docs/results.md", "by hand\n", "docs/results.md: behind"


def failures(root):
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    write(root, "src/data/a.cpp", "int a;\n")
    write(root, "bench/speed.py", SCRIPT).chmod(0o755)
    base = commit(root)
    good = {"bench/results/speed.txt": RESULT.format(base, "", "1.4"), results_page.DATA: json.dumps(DATA), "docs/results.md": "\n",
            "README.md": f"above\n{results_page.BEGIN}\n{results_page.END}\nbelow\n"}
    for name, text in good.items():
        write(root, name, text)
    wrong, _ = results_page.check(root, write=True)
    good = {name: (root / name).read_text() for name in good}
    if wrong or "| 1.4x in 3 steps |" not in good["README.md"] or not good["README.md"].endswith("below\n"):
        yield f"a good tree: wanted its pages written, found {wrong} and {good['README.md']}"
    for name, text, wanted in spoiled(base):
        write(root, name, text)
        found, _ = results_page.check(root)
        if not any(wanted in complaint for complaint in found):
            yield f"{name} spoiled: wanted a complaint with '{wanted}', found {found}"
        write(root, name, good[name])
    write(root, "bench/results/speed.txt", RESULT.format(base, "# exit: 1\n", "1.2"))
    wrong, _ = results_page.check(root, write=True)
    if wrong or "**below target:** speed 1.2 (target ≥\N{NO-BREAK SPACE}1.3)" not in (root / "README.md").read_text():
        yield f"a result below target: wanted it marked, found {wrong} and {(root / 'README.md').read_text()}"
    commit(root)
    write(root, "src/data/a.cpp", "int a = 1;\n")
    commit(root)
    found, counts = results_page.check(root)
    if found or "unmarked=2 " not in counts:
        yield f"what it measures has changed after the pages were written: wanted that counted, found {found} and {counts}"
    if not any("older than the code" in complaint for complaint in results_page.check(root, strict=True)[0]):
        yield "the same, strictly: wanted a complaint about pages that do not say so, found none"
    write(root, "docs/results.md", (root / "docs/results.md").read_text() + "\n")
    commit(root)
    if not any("docs/results.md" in complaint for complaint in results_page.check(root)[0]):
        yield "a page that was written after that: wanted a complaint that it does not say so, found none"
    results_page.check(root, write=True)
    if "older than the code" not in (root / "README.md").read_text() or "speed.txt) \\*" not in (root / "docs/results.md").read_text():
        yield "an old result: wanted it marked on both pages"


def main():
    with tempfile.TemporaryDirectory() as folder:
        found = list(failures(pathlib.Path(folder)))
    print(*found, f"spoiled={len(list(spoiled('x')))} failures={len(found)}", sep="\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
