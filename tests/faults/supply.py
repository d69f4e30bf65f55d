#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=faults timeout=600 gate="--short"
"""What octavo is made of; the last line has the results.

lock          every Python package has its hash, ./bootstrap wants it, what is installed is what is locked; pip
              refuses a wrong hash
sbom          valid CycloneDX; every library that the loader takes is in it, with the version and hash of what is there
hardening     the ELF files as they are installed (supply_elf.py); nothing in them names the folder of the build
reproducible  two builds from two folders are the same, byte for byte, as built (with debug information)

usage: supply.py [--short | --core]    --short: no builds, for CI; --core: all that is installed is built twice, not
only the program and the light library: ten minutes on two free cores
"""
import argparse
import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import urllib.parse

HERE = pathlib.Path(__file__).resolve().parent
sys.path += map(str, (HERE.parent / "integration", HERE.parents[1] / "packaging" / "backend"))
import bundle  # noqa: E402
import common  # noqa: E402
import supply_elf  # noqa: E402

LOCK = common.ROOT / "packaging" / "requirements.lock"
SBOM = common.BUILD / "octavo.cdx.json"
OF_PYTHON = {"pip", "setuptools"}  # that python3 -m venv brings
TRIED_FROM_THE_INDEX = ["six", "mdurl"]  # small ones
HASHED_IN_SHORT = 64 << 20  # bytes: larger libraries are hashed in the long form alone
RUN = ["--model_name", "custom", "--n_layer", "1", "--n_head", "1", "--n_embd", "32", "--max_seq_length", "32",
       "--batch_size", "2", "--max_steps", "1", "--eval_freq", "0", "--sample_freq", "0", "--checkpoint_freq", "0",
       "--num_threads", "1"]
BUILT_TWICE = ["bin/octavo", "lib/liboctavo_light.so"]


class Checks:
    """Counts what was tried, and says what was lost."""

    def __init__(self):
        self.tried, self.lost = 0, []

    def check(self, right, complaint):
        self.tried += 1
        if not right:
            self.lost.append(complaint)
            print(f"supply: {complaint}", flush=True)
        return right


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def sha256(path):
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_lock(checks):
    """Returns how many packages are locked."""
    rows = [line for line in LOCK.read_text().splitlines() if line and not line.startswith("#")]
    for row in rows:
        locked_row = re.fullmatch(r'[\w.-]+==[\w.!+-]+( ; platform_machine == "x86_64")?( --hash=sha256:[0-9a-f]{64})+ # (build|bench|test)', row)
        checks.check(locked_row, f"{LOCK.name}: no hash or no set in: {row}")
    script = (common.ROOT / "bootstrap").read_text()
    checks.check("--require-hashes" in script, "bootstrap: wanted pip's --require-hashes")
    locked = {plain(row.split("==")[0]): re.split(r"==| ", row)[1] for row in rows}
    installed = {plain(found.name): found.version for found in importlib.metadata.distributions()}
    for name in sorted(locked.keys() | installed.keys() - OF_PYTHON):
        checks.check(locked.get(name) == installed.get(name),
                     f"{name}: locked {locked.get(name)}, installed {installed.get(name)}; run ./bootstrap")
    for name in TRIED_FROM_THE_INDEX:
        row = next(row for row in rows if row.startswith(f"{name}=="))
        wrong = re.sub(r".(?= # )", lambda last: "0" if last[0] != "0" else "1", row)
        checks.check(pip_takes(row), f"{name}: pip refuses the locked file")
        checks.check(not pip_takes(wrong), f"{name}: pip takes a file with a wrong hash")
    return len(rows)


def pip_takes(row):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "one.txt").write_text(row + "\n")
        done = subprocess.run([sys.executable, "-m", "pip", "download", "--no-cache-dir", "--no-deps",
                               "--require-hashes", "-d", folder, "-r", f"{folder}/one.txt"], capture_output=True, text=True)
    return done.returncode == 0


def report_debian():
    """Debian gives updates and not old versions, so another version than the recorded one is told and not a failure."""
    lines = (common.ROOT / "packaging" / "debian-packages.lock").read_text().splitlines()
    for name, recorded in (line.split() for line in lines if not line.startswith("#")):
        found = subprocess.run(["dpkg-query", "-W", "-f", "${Version}", name], capture_output=True, text=True).stdout
        if found != recorded:
            print(f"supply: Debian's {name}: recorded {recorded}, found {found or 'none'}")


def loaded_libraries(work):
    """{name: path} of what the loader finds for our files, and of what two real commands load."""
    found, logs = {}, work / "loader"
    for file in supply_elf.own_files(common.BUILD):
        for name, path in re.findall(r"^\s*(\S+) => (\S+) \(", bundle.output("ldd", file), re.M):
            found.setdefault(name, pathlib.Path(path))  # core's come before those of cuda, which it loads
    import pyarrow.parquet
    pyarrow.parquet.write_table(pyarrow.table({"text": ["to be or not to be " * 20] * 50}), work / "rows.parquet")
    for words in (["data", "prepare", "rows.parquet", "--output", "rows"], ["train", "--dataset", "rows", *RUN]):
        debugged = os.environ | {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(logs), "OMP_WAIT_POLICY": "passive"}
        done = subprocess.run([common.OCTAVO, *words], cwd=work, capture_output=True, text=True, env=debugged)
        if done.returncode != 0:
            sys.exit(f"supply: octavo {' '.join(words)} ended with {done.returncode}: {done.stderr}")
    for log in work.glob("loader.*"):
        for path in re.findall(r"calling init: (/\S+)", log.read_text(errors="replace")):
            found.setdefault(pathlib.Path(path).name, pathlib.Path(path))
    own = {file.name for file in supply_elf.own_files(common.BUILD)}
    return {name: path for name, path in found.items() if name not in own and not name.startswith("ld-linux")}


def version_here(purl):
    kind, name = re.match(r"pkg:(deb|pypi)/(?:debian/)?([^@]+)@", purl).groups()
    if kind == "pypi":
        return importlib.metadata.version(name)
    return bundle.output("dpkg-query", "-W", "-f", "${Version}", name)


def check_sbom(checks, work, short):
    """Returns the numbers of components and of libraries."""
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
    text = SBOM.read_text()
    complaint = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    checks.check(complaint is None, f"{SBOM.name}: not valid CycloneDX 1.6: {complaint}")
    again = work / "again.json"
    packages = next((pathlib.Path(sys.prefix) / "lib").glob("python3*/site-packages"))
    subprocess.run([common.ROOT / "packaging" / "sbom", common.BUILD, packages, again], check=True)
    checks.check(again.read_text() == text, f"{SBOM.name}: made again, it is another; build the target octavo_sbom")
    components = json.loads(text)["components"]
    listed = {}
    for component in components:
        name, version, purl = component["name"], component["version"], component["purl"]
        here = version_here(purl)
        checks.check(component["licenses"] and version == here, f"{name}: the SBOM has {version}, here is {here}")
        quoted = urllib.parse.quote(version, safe="")
        checks.check(f"@{quoted}" in purl, f"{name}: the version {version} is not that of {purl}")
        for file in component.get("components", []):
            listed[file["name"]] = file["hashes"][0]["content"]
    loaded = loaded_libraries(work)
    for name, path in sorted(loaded.items()):
        if checks.check(name in listed, f"{name} ({path.name}) is loaded, and not in the SBOM"):
            if not short or path.stat().st_size < HASHED_IN_SHORT:
                checks.check(sha256(path) == listed[name], f"{name}: the SBOM has another hash than the file")
    return len(components), len(loaded)


def copy_of_the_tree(folder):
    """The files that git knows or would take, as they are now, with the same environment."""
    listed = bundle.output("git", "-C", common.ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for name in filter(None, listed.split("\0")):
        if (common.ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes((common.ROOT / name).read_bytes())
    (folder / "packaging" / "sbom").chmod(0o755)
    (folder / ".deps").symlink_to(common.ROOT / ".deps")


def build(folder, targets):
    """As .ci/run does, without a cache."""
    environment = os.environ | {"CCACHE_DISABLE": "1"}
    for command in (["cmake", "--preset", "release", "-DCMAKE_UNITY_BUILD=ON"],
                    ["ninja", "-C", "build/release", *targets]):
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"supply: {' '.join(command)} in {folder}: {done.stdout[-4000:]}{done.stderr[-4000:]}")
    return folder / "build" / "release"


def check_reproducible(checks, work, core):
    """Returns how many files were the same."""
    names = [*bundle.OWN, "octavo.cdx.json"] if core else BUILT_TWICE
    folders = [work / "one", work / "another" / "and" / "deeper"]
    copy_of_the_tree(folders[0])  # once: someone may be at work in it
    shutil.copytree(folders[0], folders[1], symlinks=True)
    builds = []
    for number, folder in enumerate(folders, 1):
        print(f"supply: build {number} of {len(folders)}", flush=True)
        builds.append(build(folder, ["octavo_installed"] if core else ["octavo", "octavo_light"]))
    return sum(checks.check(sha256(builds[0] / name) == sha256(builds[1] / name), f"{name}: two builds differ")
               for name in names)


def main():
    parser = argparse.ArgumentParser()
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--short", action="store_true")
    form.add_argument("--core", action="store_true")
    arguments = parser.parse_args()
    checks = Checks()
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        packages = check_lock(checks)
        report_debian()
        components, libraries = check_sbom(checks, work, arguments.short)
        hardened = supply_elf.check(checks, work / "installed")
        same = "not_tried" if arguments.short else check_reproducible(checks, work, arguments.core)
    print(f"locked={packages} components={components} libraries={libraries} hardened={hardened} reproducible={same} "
          f"tried={checks.tried} survived={checks.tried - len(checks.lost)} lost={len(checks.lost)}")
    sys.exit(1 if checks.lost else 0)


if __name__ == "__main__":
    main()
