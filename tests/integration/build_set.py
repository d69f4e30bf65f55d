#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=120 gate="" measures="bootstrap packaging cmake src"
"""What `./bootstrap build` installs is enough to compile the program: every file that the compiler and the linker read for it is
of a package of that set.

The files are those that ninja noted when this build folder was built, so that nothing is built again; the packages are those of
the wheels' own lists and of dpkg. What a Debian package of the set depends on counts as installed with it.

The last line is files=… wheels=… debian=… outside=0 build_gb=….
"""
import csv
import importlib.metadata
import pathlib
import re
import subprocess
import sys

from common import BUILD, ROOT, require_files

LOCK = ROOT / "packaging" / "requirements.lock"
DEBIAN = ROOT / "packaging" / "debian-packages.txt"
MOST_GB = 3.5


def fail(text):
    sys.exit(f"build_set: {text}")


def output(*command):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True).stdout


def plain(name):
    return re.sub(r"[-_.]+", "-", name).lower()


def wheels_of_the_set():
    return {plain(name) for name in re.findall(r"^([\w.-]+)==.* # build$", LOCK.read_text(), re.M)}


def debian_of_the_set():
    """The packages below `# set build`, and all that they depend on."""
    section = re.search(r"^# set build\n((?:[^#\n].*\n)+)", DEBIAN.read_text(), re.M)
    listing = output("dpkg-query", "-W", "-f", "${Package}\t${Provides}\t${Pre-Depends},${Depends}\n")
    depends, provided = {}, {}
    for package, provides, needs in (line.split("\t") for line in listing.splitlines()):
        depends[package] = set(re.findall(r"(?:^|[,|])\s*([a-z0-9][a-z0-9+.-]*)", needs))
        for name in re.findall(r"(?:^|,)\s*([a-z0-9][a-z0-9+.-]*)", provides):
            provided.setdefault(name, set()).add(package)
    found, waiting = set(), section[1].split()
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        waiting += depends.get(name, set()) | provided.get(name, set())
    return found


def read_files():
    """What was read to make the program and its libraries."""
    inputs = set(output("ninja", "-C", BUILD, "-t", "inputs", "octavo_installed").splitlines())
    files, wanted = set(), False
    for line in output("ninja", "-C", BUILD, "-t", "deps").splitlines():
        if line and not line.startswith(" "):
            wanted = line.partition(":")[0] in inputs
        elif wanted and line:
            files.add(line.strip())
    files |= {name for name in inputs if re.search(r"\.so(\.\d+)*$", name)}
    return {pathlib.Path(file) for file in files if file.startswith("/")}


def owners_of_wheels():
    """{file: package} of all installed wheels, and the bytes of each package."""
    owners, sizes = {}, {}
    for wheel in importlib.metadata.distributions():
        name, base = plain(wheel.name), pathlib.Path(wheel.locate_file(""))
        for row in csv.reader((wheel.read_text("RECORD") or "").splitlines()):
            owners[(base / row[0]).resolve()] = name
            sizes[name] = sizes.get(name, 0) + int(row[2] or 0)
    return owners, sizes


def debian_owners(files):
    """{file: package}; a file that is of no package is left out."""
    # dpkg knows some libraries by the folder /lib, which is a link to /usr/lib.
    asked = {other: file for file in files for other in (str(file), str(file).removeprefix("/usr"))}
    found = subprocess.run(["dpkg-query", "-S", *asked], capture_output=True, text=True).stdout
    owners = {}
    for packages, _, file in (line.partition(": ") for line in found.splitlines()):
        owners[asked[file]] = packages.split(",")[0].partition(":")[0]
    return owners


def main():
    require_files()
    environment = pathlib.Path(sys.prefix).resolve()
    files = {file.resolve() for file in read_files()}
    files = {file for file in files if not file.is_relative_to(ROOT) or file.is_relative_to(environment)}
    if len(files) < 500:
        fail(f"wanted the files that the build read, found {len(files)}; cmake --build --preset release")
    owners, sizes = owners_of_wheels()
    of_wheels = {file: owners.get(file, "no package") for file in files if file.is_relative_to(environment)}
    of_debian = debian_owners(sorted(files - of_wheels.keys()))
    missing = {file: name for file, name in of_wheels.items() if name not in wheels_of_the_set()}
    missing |= {file: name for file, name in of_debian.items() if name not in debian_of_the_set()}
    missing |= {file: "no package" for file in files - of_wheels.keys() - of_debian.keys()}
    for name in sorted(set(missing.values())):
        example = next(file.name for file in sorted(missing) if missing[file] == name)
        print(f"build_set: the build reads {example} of {name}, which ./bootstrap build does not install; put it into the set build")
    size = sum(sizes.get(name, 0) for name in wheels_of_the_set()) / 1e9
    if size > MOST_GB:
        print(f"build_set: wanted at most {MOST_GB} GB of Python packages in the set build, found {size:.2f}")
    print(f"files={len(files)} wheels={len(set(of_wheels.values()))} debian={len(set(of_debian.values()))} outside={len(missing)} "
          f"build_gb={size:.2f}")
    sys.exit(1 if missing or size > MOST_GB else 0)


if __name__ == "__main__":
    main()
