"""Which lines of the parsers' own files the corpora reach."""
import json
import pathlib
import subprocess

import ledger
from targets import COVERAGE, ROOT, TARGETS, environment, input_folders

WANTED_PERCENT = 85


def files_covered(target):
    """(file, lines, of them reached) of every file of the target's parser."""
    binary = COVERAGE / "bin" / f"fuzz_{target}"
    raw, merged = COVERAGE / f"{target}.raw", COVERAGE / f"{target}.profile"
    subprocess.run([binary, "-runs=0", *input_folders(target)], capture_output=True, check=True,
                   env=environment(False) | {"LLVM_PROFILE_FILE": str(raw)})
    subprocess.run(["llvm-profdata-14", "merge", raw, "-o", merged], check=True)
    exported = subprocess.run(["llvm-cov-14", "export", "-summary-only", f"-instr-profile={merged}", binary,
                               *(ROOT / "src" / f for f in TARGETS[target][2])], capture_output=True, check=True)
    for file in json.loads(exported.stdout)["data"][0]["files"]:
        count = file["summary"]["lines"]
        yield pathlib.Path(file["filename"]).relative_to(ROOT), count["count"], count["covered"]


def measure(target):
    """The percentage of all lines of the target's files; prints that of each file."""
    files = list(files_covered(target))
    total, reached = sum(f[1] for f in files), sum(f[2] for f in files)
    percent = 100 * reached / total if total else 0.0
    lines = [f"  {name}: {100 * hit / count:.1f}% of {count} lines" for name, count, hit in files]
    print("\n".join([f"{target}: {percent:.1f}%", *lines]), flush=True)
    ledger.add(target, coverage=f"{percent:.1f}%")
    return percent
