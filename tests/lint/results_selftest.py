#!/usr/bin/env python3
# test: label=lint timeout=60 gate=""
"""Shows that results.py finds a result that does not say what it is, one that is stale, and a page that is silent about it."""
import pathlib
import subprocess
import sys
import tempfile

import results
import scripts

HEADER = "# date: 2026-01-02\n# commit: {}\n# machine: unknown\n# command: tests/integration/good.py --short\n"
RESULT = "tests/results/integration/good.txt"
# A result's text, and a word of the complaint that it must cause; None: none.
TEXTS = [
    (HEADER + "cases=3\n", None),
    (HEADER.replace("# machine: unknown\n", "") + "cases=3\n", "wanted a line '# machine: …'"),
    (HEADER, "wanted results (key=value) in the last line"),
    (HEADER.replace("good", "gone") + "cases=3\n", "names no script"),
]


def write(root, name, text):
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def commit(root):
    for words in (("add", "-A"), ("-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "x")):
        subprocess.run(["git", *words], cwd=root, check=True)
    return results.git(root, "rev-parse", "--short=10", "HEAD").stdout.strip()


def failures(root):
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    script = write(root, "tests/integration/good.py",
                   scripts.PLAIN_SHEBANG + '\n# test: label=integration timeout=60 gate="" measures="src/data"\n')
    write(root, "src/data/a.cpp", "int a;\n")
    base = commit(root)
    for text, wanted in TEXTS:
        write(root, RESULT, text.format(base))
        found = list(results.complaints(root))
        if bool(found) != bool(wanted) or (wanted and wanted not in found[0]):
            yield f"wanted a complaint with {wanted}, found {found}"
    write(root, "tests/results/integration/other.txt", TEXTS[0][0])
    if not any("belongs in tests/results/integration/good.txt" in text for text in results.complaints(root)):
        yield "a result in another script's place was not found"
    (root / "tests/results/integration/other.txt").unlink()
    write(root, RESULT, TEXTS[0][0].format(base))
    write(root, "README.md", f"| x | `{script.relative_to(root)}` |\n")
    write(root, "src/nn/b.cpp", "int b;\n")
    commit(root)
    if stale := list(results.stale_results(root)):
        yield f"nothing that it measures has changed: wanted no stale result, found {stale}"
    write(root, "src/data/a.cpp", "int a = 1;\n")
    commit(root)
    stale = list(results.stale_results(root))
    if [changes for _, changes, _ in stale] != [1]:
        yield f"what it measures has changed once: wanted one stale result, found {stale}"
    if len(list(results.unmarked(root, [root / RESULT]))) != 1:
        yield "a page that quotes a stale result in silence was not found"
    write(root, "README.md", f"| x | `{script.relative_to(root)}` |\nThis is older\nthan the code.\n")
    if found := list(results.unmarked(root, [root / RESULT])):
        yield f"a page that says so: wanted no complaint, found {found}"


def main():
    with tempfile.TemporaryDirectory() as folder:
        found = list(failures(pathlib.Path(folder)))
    print(*found, f"checks={len(TEXTS) + 5} failures={len(found)}", sep="\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
