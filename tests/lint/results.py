#!/usr/bin/env python3
# test: label=lint timeout=120 gate=""
"""Kept results: each says when, from which commit, on which machine and by which command it was made; stale ones are listed.

Results of tests are in tests/results/FOLDER/NAME.txt, those of benchmarks in bench/results/NAME.txt. A result is stale when
what its script measures (the key `measures` of its header, see scripts.py) has changed since its commit. Stale results are a list,
not a failure; a page that quotes one must say so: it contains the words "older than the code".

usage: results.py                        checks, and lists stale results
       results.py keep SCRIPT [ARGS]…    runs a script of tests/ or bench/ and keeps what it prints
       results.py renew SCRIPT [ARGS]…   the same, but leaves a result that was made with other arguments (a longer form) as it is
"""
import os
import pathlib
import re
import subprocess
import sys
import time

import scripts

ROOT = pathlib.Path(__file__).resolve().parents[2]
KEYS = ("date", "commit", "machine", "command")
PAGES = ("README.md", "docs/concepts/reliability.md", "docs/concepts/untrusted-input.md", "docs/internals/performance.md",
         "docs/internals/history/measurements.md", "docs/results.md")
MARK = "older than the code"
INSTRUCTION_SETS = {"avx2": "AVX2", "avx512f": "AVX-512", "avx512_bf16": "AVX-512 BF16", "amx_bf16": "AMX BF16", "sve": "SVE"}


def git(root, *words):
    return subprocess.run(["git", *words], cwd=root, check=False, capture_output=True, text=True)


def result_files(root):
    return [*sorted(root.glob("tests/results/*/*.txt")), *sorted(root.glob("bench/results/*.txt"))]


def header_of(path):
    """The `# key: value` lines at the top of a result."""
    found = {}
    for line in path.read_text().splitlines():
        match = re.fullmatch(r"# (\w+): (.*)", line)
        if not match:
            break
        found[match[1]] = match[2]
    return found


def commit_of(header):
    """The commit that a result was made from; where that was not written down, the one that brought the result."""
    match = re.search(r"\b[0-9a-f]{7,40}\b", header.get("commit", ""))
    return match[0] if match else None


def complaints(root):
    """Results that do not say what they are."""
    known = {script.name: script for script in scripts.scripts(root)}
    for path in result_files(root):
        name, header, lines = path.relative_to(root), header_of(path), path.read_text().rstrip().splitlines()
        missing = [key for key in KEYS if not header.get(key)]
        if missing:
            yield f"{name}: wanted a line '# {missing[0]}: …' at the top, found none; write it, 'unknown' when nobody knows"
            continue
        if not re.search(r"\w+=\S", lines[-1]) or lines[-1].startswith("# "):
            yield f"{name}: wanted results (key=value) in the last line, found '{lines[-1][:60]}'"
        used = [word for word in header["command"].split() if word in known]
        if not used and "bin/" not in header["command"]:
            yield f"{name}: its command '{header['command']}' names no script with a header; correct it"
        elif used and path != root / known[used[0]].result():
            yield f"{name}: the result of {used[0]} belongs in {known[used[0]].result()}"


def stale_results(root, until="HEAD"):
    """(result, what changed until then) of each stale one; the count of changes is None when this clone lacks the commit."""
    known = {root / script.result(): script for script in scripts.scripts(root) if script.kind != "study"}
    for path in result_files(root):
        measures = known[path].measures if path in known else ["src"]
        log = git(root, "log", "--format=%h", f"{commit_of(header_of(path))}..{until}", "--", *measures)
        changes = len(log.stdout.split()) if log.returncode == 0 else None
        if changes != 0:
            yield path, changes, measures


def unmarked(root, stale):
    """Pages that quote a stale result without a word about it."""
    makers = {root / script.result(): script.name for script in scripts.scripts(root)}
    for page in PAGES:
        text = (root / page).read_text() if (root / page).is_file() else ""
        quoted = [path for path in stale if path in makers and f"`{makers[path]}" in text]
        if quoted and MARK not in re.sub(r"\s+", " ", text):
            yield (f"{page}: quotes {quoted[0].relative_to(root)}, which is {MARK} ({len(quoted)} such); "
                   f"say so with these words, or measure again (tests/lint/results.py keep)")


def machine():
    info = pathlib.Path("/proc/cpuinfo").read_text()
    flags = set(re.findall(r"^flags\s*: (.*)$", info, re.M)[:1][0].split()) if "flags" in info else set()
    model = (re.findall(r"^model name\s*: (.*)$", info, re.M) or ["unknown model"])[0]
    sets = [name for flag, name in INSTRUCTION_SETS.items() if flag in flags]
    return f"{len(os.sched_getaffinity(0))} cores of {model}; {', '.join(sets) or 'no vector instructions known here'}"


def keep(words, replace=True):
    script = next((script for script in scripts.scripts(ROOT) if script.name == words[0].removeprefix("./")), None)
    if script is None:
        sys.exit(f"results.py: wanted a script with a header (scripts.py list), found '{words[0]}'")
    changed = git(ROOT, "status", "--porcelain", "--", *script.measures).stdout
    commit = git(ROOT, "rev-parse", "--short=10", "HEAD").stdout.strip() + (" with changes not yet committed" if changed else "")
    done = subprocess.run([ROOT / script.name, *words[1:]], cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True)
    lines = [f"# date: {time.strftime('%Y-%m-%d')}", f"# commit: {commit}", f"# machine: {machine()}",
             f"# command: {' '.join([script.name, *words[1:]])}"]
    if done.returncode != 0:
        lines.append(f"# exit: {done.returncode}")
    path = ROOT / script.result()
    said = done.stdout.replace(f"{ROOT}/", "")  # where this checkout lies is the machine's business
    closing, note = said.rstrip().rpartition("\n")[2], ""
    if replace or not path.is_file() or f"# command: {header_of(path).get('command')}" == lines[3]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines) + "\n" + said)
    else:
        note = f" (not kept: the result there is of {header_of(path).get('command')})"
    print(f"{path.relative_to(ROOT)}{note}: {closing}")
    sys.exit(done.returncode)


def main():
    if len(sys.argv) > 2 and sys.argv[1] in ("keep", "renew"):
        keep(sys.argv[2:], replace=sys.argv[1] == "keep")
    elif len(sys.argv) > 1:
        sys.exit(__doc__)
    found = list(complaints(ROOT))
    stale = list(stale_results(ROOT))
    found += unmarked(ROOT, [path for path, _, _ in stale])
    for path, changes, measures in stale:
        header = header_of(path)
        reason = "its commit is not in this clone" if changes is None else f"{changes} commits to {' '.join(measures)} since"
        print(f"stale: {path.relative_to(ROOT)}, {header.get('date', 'unknown')}: {reason}")
    print(*found, sep="\n", end="\n" if found else "")
    print(f"results={len(result_files(ROOT))} stale={len(stale)} broken={len(found)}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
