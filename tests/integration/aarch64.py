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
import shutil
import subprocess
import sys
import tempfile

from common import BUILD, OCTAVO, ROOT, TEXT, require_files

FOLDER = BUILD.parent / "aarch64"
SYSROOT = FOLDER / "sysroot"
TOOLS = ("apt-get", "clang++", "cmake", "dpkg-deb", "ld.lld", "ninja", "pkg-config", "qemu-aarch64")
# For a compiler from scratch, beside the libraries of packaging/debian-packages.txt.
COMPILERS = ("libc6-dev", "libstdc++-12-dev")
NOT_NEEDED = ("dpkg-dev", "libgloo-dev", "libclang-rt-14-dev")  # the wheel's, libtorch's and the sanitizers'
# What cannot hold here, and why. The kernel cannot start an aarch64 program for a process in QEMU: octavo is started by a script.
SLOW = "it measures seconds, and QEMU takes ten times as many"
COPIED = "it copies the program, which is a script here"
NOT_RUN = {"cli:Cli.HelpIsQuickAndWithoutTorch": SLOW, "cli:Cli.MissingOrBrokenCoreIsSaid": COPIED,
           "cli:Examples.WithoutAnInstalledSchemaSayHowToGetOne": COPIED, "config:Yaml.HostileFilesEndQuickly": SLOW,
           "data:Columns.FilesThatAreNoneAreDamage": "it reads through Arrow, which Debian does not have",
           "data:TokenData.AnIndexOfAHundredThousandShardsOpens": SLOW,
           "sweep:Journals/StoreRaceTest.*": "QEMU gives a forked process its parent's start time, by which agents know each other",
           "tokenizer:Bpe.AWordOfTenMegabytes": SLOW, "tokenizer:PreTokenizer.LongRunsTakeLinearTime": SLOW,
           "tokenizer:Nfc.ManyMarksInTheWrongOrder": SLOW}
SECONDS = 1200  # of one test program


def fail(text):
    print(f"aarch64: {text}")
    print("cross_built=0 tests=0 failed=0")
    sys.exit(1)


def run(what, command, **more):
    """Its output. Ends the script when it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **more)
    if done.returncode != 0:
        print(done.stdout[-6000:])
        fail(f"{what} ended with {done.returncode}")
    return done.stdout


def wanted_packages():
    """The development packages of packaging/debian-packages.txt, which are the libraries that are linked."""
    lines = (ROOT / "packaging" / "debian-packages.txt").read_text().splitlines()
    return [*COMPILERS, *(line for line in lines if line.endswith("-dev") and line not in NOT_NEEDED)]


def make_sysroot():
    """Unpacks the packages and all that they depend on, as apt would install them on an empty arm64 machine."""
    wanted, made = " ".join(wanted_packages()), SYSROOT / "packages.txt"
    if made.exists() and made.read_text() == wanted:
        print(f"sysroot: {SYSROOT} is there already")
        return
    state = FOLDER / "apt"
    for folder in (state / "lists" / "partial", state / "cache" / "archives" / "partial"):
        folder.mkdir(parents=True, exist_ok=True)
    (state / "status").write_text("")  # nothing is installed there
    options = {"APT::Architecture": "arm64", "APT::Architectures": "arm64", "APT::Install-Recommends": "false",
               "APT::Sandbox::User": "", "Acquire::Retries": "3", "Dir::State": state, "Dir::State::lists": state / "lists",
               "Dir::State::status": state / "status", "Dir::Cache": state / "cache"}
    apt = ["apt-get", "-qq", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    run("the list of arm64 packages", [*apt, "update"])
    run(f"the download of {wanted}", [*apt, "install", "-y", "--download-only", *wanted.split()])
    packages = sorted((state / "cache" / "archives").glob("*.deb"))
    shutil.rmtree(SYSROOT, ignore_errors=True)
    SYSROOT.mkdir()
    for package in packages:
        run(f"unpacking {package.name}", ["dpkg-deb", "-x", package, SYSROOT])
    # Links to /lib would lead to this machine's; the linker would take the static library beside them.
    for link in [path for path in SYSROOT.rglob("*") if path.is_symlink() and os.readlink(path).startswith("/")]:
        there = SYSROOT / os.readlink(link).lstrip("/")
        link.unlink()
        link.symlink_to(os.path.relpath(there, link.parent))
    made.write_text(wanted)
    print(f"sysroot: {len(packages)} packages", flush=True)


def build(jobs):
    run("cmake", ["cmake", "-S", ROOT, "-B", FOLDER / "build", "-G", "Ninja", f"-DOCTAVO_SYSROOT={SYSROOT}",
                  f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/cmake/aarch64.cmake", "-DOCTAVO_TORCH=OFF", "-DCMAKE_BUILD_TYPE=Release",
                  "-DCMAKE_UNITY_BUILD=ON", "-DOCTAVO_WERROR=ON"])
    run("the build", ["ninja", "-C", FOLDER / "build", "-j", str(jobs)])
    machine = (FOLDER / "build" / "bin" / "octavo").read_bytes()[18:20]
    if machine != b"\xb7\x00":  # EM_AARCH64
        fail(f"wanted a program for aarch64, found machine {machine.hex()} in its header")


def emulated(program):
    return ["qemu-aarch64", "-L", SYSROOT, FOLDER / "build" / "bin" / program]


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
        done = subprocess.run([*emulated(program), *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
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
    here, there = run("plan", [OCTAVO, *plan]), run("plan under QEMU", [*emulated("octavo"), *plan])
    if here != there or "\n" not in here:
        fail(f"wanted one forecast on both processors, found\n{here}\nand\n{there}")
    prepare = ["data", "prepare", "--dataset", TEXT, "--output"]
    run("data prepare", [OCTAVO, *prepare, folder / "here"])
    run("data prepare under QEMU", [*emulated("octavo"), *prepare, folder / "there"])
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
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        fail(f"wanted {' '.join(missing)}, found none; run ./bootstrap")
    FOLDER.mkdir(parents=True, exist_ok=True)
    make_sysroot()
    build(given.jobs)
    programs = sorted(path.name for path in (FOLDER / "build" / "bin").glob("test_*"))
    wanted = [f"test_{name}" for name in given.tests] or programs
    unknown = sorted(set(wanted) - set(programs))
    if unknown or not programs:
        fail(f"wanted test programs of {FOLDER}/build/bin, found no {' '.join(unknown) or 'such file'}")
    with tempfile.TemporaryDirectory() as folder:
        counts = [test(program, pathlib.Path(folder)) for program in wanted]
        same = same_as_here(pathlib.Path(folder))
    tests, failed = (sum(column) for column in zip(*counts))
    print(f"not_run={len(NOT_RUN)} same_as_here={same}")
    print(f"cross_built=1 tests={tests} failed={failed}")
    sys.exit(1 if failed or tests == 0 else 0)


if __name__ == "__main__":
    main()
