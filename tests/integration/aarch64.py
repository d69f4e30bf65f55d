#!/usr/bin/env python3
# test: label=integration timeout=7200 night="" alone=night measures="src tests cmake"
"""Everything that needs no libtorch, built for aarch64 with clang and Debian's arm64 packages, and its unit tests under QEMU.

Among it are the FP8 formats, the plain quantizers and Highway's (NEON). The sysroot is made of the packages that this machine's
apt sources have for arm64, in a folder of the build directory; a package that cannot be had is a failure. Afterwards the
program itself plans and prepares data under QEMU, and must print and write what this machine's own program does.

usage: aarch64.py [--jobs N] [TEST]…    TEST: names such as fp8 or engine_rows; all when none is given
The last line is cross_built=1 tests=… failed=0.
"""
import argparse
import filecmp
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from aarch64_tools import FOLDER, build, emulated, fail, make_sysroot, require_tools, run
from common import OCTAVO, ROOT, TEXT, require_files

PROGRAMS = FOLDER / "build" / "bin"

# What cannot hold here, and why. The kernel cannot start an aarch64 program for a process in QEMU: octavo is started by a script.
SLOW = "it measures seconds, and QEMU takes ten times as many"
COPIED = "it copies the program, which is a script here"
FORKED = "QEMU gives a forked process its parent's start time, by which processes know each other"
NOT_RUN = {"cli:Cli.HelpIsQuickAndWithoutTorch": SLOW, "cli:Cli.MissingOrBrokenCoreIsSaid": COPIED,
           "cli:Examples.WithoutAnInstalledSchemaSayHowToGetOne": COPIED, "config:Yaml.HostileFilesEndQuickly": SLOW,
           "data:Columns.FilesThatAreNoneAreDamage": "it reads through Arrow, which Debian does not have",
           "data:TokenData.AnIndexOfAHundredThousandShardsOpens": SLOW,
           "data:Sampler.VirtualDataSetOfTenTrillionTokens": SLOW,
           "data:SharedPrepare.KilledProcessesAreReplaced": FORKED, "data:Extend.ManyProcessesExtendTogether": FORKED,
           "sweep:Journals/StoreRaceTest.*": FORKED,
           "tokenizer:Bpe.AWordOfTenMegabytes": SLOW, "tokenizer:PreTokenizer.LongRunsTakeLinearTime": SLOW,
           "tokenizer:Nfc.ManyMarksInTheWrongOrder": SLOW,
           "tokenizer:Patterns/ScannerAgainstPcre2.*": "a match may take 50 ms of CPU time, and QEMU translates PCRE2's own code in it"}
SECONDS = 1200  # of one test program


def test(program, folder):
    """(tests, failed) of one test program."""
    name, report = program.removeprefix("test_"), folder / f"{program}.json"
    skipped = [pattern for pattern in NOT_RUN if pattern.startswith(f"{name}:")]
    words = [f"--gtest_output=json:{report}"]
    if skipped:
        words.append("--gtest_filter=-" + ":".join(pattern.partition(":")[2] for pattern in skipped))
        for pattern in skipped:
            print(f"{pattern}: not run, {NOT_RUN[pattern]}")
    try:
        done = subprocess.run([*emulated(PROGRAMS / program), *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", timeout=SECONDS, env=os.environ | {"TMPDIR": str(folder)})
        said, code = done.stdout, done.returncode
    except subprocess.TimeoutExpired as stopped:
        said, code = (stopped.stdout or b"").decode(errors="replace"), f"no end within {SECONDS} s"
    counts = json.loads(report.read_text()) if report.exists() else {"tests": 0, "failures": 1}
    tests, failed = counts["tests"], counts["failures"]
    if code != 0:
        failed = max(failed, 1)
        shown = [line for line in said.splitlines() if "[       OK ]" not in line and "[ RUN      ]" not in line]
        print("\n".join(shown[-60:]))
    print(f"{name}: tests={tests} failed={failed} ended={code}", flush=True)
    return tests, failed


def same_as_here(folder):
    """The number of things that the emulated program does as this machine's."""
    plan = ["plan", ROOT / "configs" / "quickstart.yaml", "--gpu", "h100"]
    here, there = run("plan", [OCTAVO, *plan]), run("plan under QEMU", [*emulated(PROGRAMS / "octavo"), *plan])
    if here != there or "\n" not in here:
        fail(f"wanted one forecast on both processors, found\n{here}\nand\n{there}")
    prepare = ["data", "prepare", "--dataset", TEXT, "--output"]
    run("data prepare", [OCTAVO, *prepare, folder / "here"])
    run("data prepare under QEMU", [*emulated(PROGRAMS / "octavo"), *prepare, folder / "there"])
    names = sorted(str(path.relative_to(folder / "here")) for path in (folder / "here").rglob("*") if path.is_file())
    _, different, missing = filecmp.cmpfiles(folder / "here", folder / "there", names, shallow=False)
    if different or missing or not names:
        fail(f"wanted the same files from data prepare on both processors, found {names}; they differ in {different + missing}")
    return 1 + len(names)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("tests", nargs="*")
    given = parser.parse_args()
    require_files()
    require_tools()
    make_sysroot()
    build(FOLDER / "build", given.jobs, [], "-DOCTAVO_TORCH=OFF")
    programs = sorted(path.name for path in PROGRAMS.glob("test_*"))
    wanted = [f"test_{name}" for name in given.tests] or programs
    unknown = sorted(set(wanted) - set(programs))
    if unknown or not programs:
        fail(f"wanted test programs of {PROGRAMS}, found no {' '.join(unknown) or 'such file'}")
    with tempfile.TemporaryDirectory() as folder:
        counts = [test(program, pathlib.Path(folder)) for program in wanted]
        same = same_as_here(pathlib.Path(folder))
    tests, failed = (sum(column) for column in zip(*counts))
    print(f"not_run={len(NOT_RUN)} same_as_here={same}")
    print(f"cross_built=1 tests={tests} failed={failed}")
    sys.exit(1 if failed or tests == 0 else 0)


if __name__ == "__main__":
    main()
