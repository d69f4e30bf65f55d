#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 night=""
"""The wheel of the built program: made, installed in a fresh environment, used from another folder without a variable or a
library of the source tree; what it bundles, and that it speaks HTTPS; what is said when a library is missing; that no
command but a dry run opens the fake CUDA driver; completion; the commands of docs/get-started/install.md; the Dockerfile.

usage: install.py [--full]
The fresh environment is a new one in which pip installs our wheel. torch and the other 5 GB that the wheel depends on are hard
links to the files that ./bootstrap installed; --full lets pip install them anew by their names (minutes, 6 GB).
The last line is tag=… wheel_mb=… bundled=… installed=1 steps=20 hints=… traced=3 deb_mb=….
"""
import argparse
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

import common
import install_curl
import install_dockerfile

STEPS = 20
ENVIRONMENT_FAULT = 3  # exit code
MODEL = ["--model_name", "custom", "--n_layer", "2", "--n_head", "2", "--n_embd", "64", "--max_seq_length", "64",
         "--batch_size", "4", "--eval_freq", "0", "--sample_freq", "0", "--checkpoint_freq", "0"]

TINY = ["--gpu", "h100", "--model_name", "custom", "--n_layer", "1", "--n_head", "1", "--n_embd", "64", "--batch_size", "1",
        "--max_seq_length", "64", "--vocab_size", "256"]


def fail(text):
    sys.exit(f"install: {text}")


def make_wheel(folder):
    subprocess.run([common.ROOT / "packaging" / "wheel", folder, common.BUILD], check=True)
    wheels = list(folder.glob("octavo-*.whl"))
    if len(wheels) != 1:
        fail(f"wanted one wheel, found {wheels}")
    return wheels[0]


def check_tag(wheel):
    """What auditwheel says of the wheel is the tag in its name: no newer than needed, and no older than it runs with."""
    shown = subprocess.run([sys.executable, "-m", "auditwheel", "show", wheel], check=True, capture_output=True, text=True).stdout
    said = re.search(r'constrains the platform tag to\s+"(\w+)"', shown)
    tag = wheel.stem.split("-")[-1]
    if not said or said[1] != tag or "-py3-none-" not in wheel.name:
        fail(f"wanted a wheel for any Python 3 and the platform that auditwheel says, found {wheel.name} and\n{shown}")
    return tag


def closure(names):
    """The installed distributions of these names and all that they require here."""
    found, waiting = {}, list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        try:
            found[name] = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # Python packages that only Python code of torch wants
        for line in found[name].requires or []:
            if "extra ==" not in line:
                waiting.append(re.match(r"[\w.-]+", line)[0])
                if extras := re.match(r"cuda-toolkit\[(.*?)\]", line):
                    waiting += [f"nvidia-{'cuda-' * cuda}{part}" for part in extras[1].split(",") for cuda in (0, 1)]
    return found.values()


def link_dependencies(environment, wheel):
    """The files of what the wheel requires, under the same names in the fresh environment."""
    base = pathlib.Path(sys.prefix)
    names = [re.match(r"[\w.-]+", line)[0] for line in requirements(wheel)]
    for distribution in closure(names):
        for file in distribution.files or []:
            source = pathlib.Path(os.path.normpath(distribution.locate_file(file)))
            target = environment / source.relative_to(base)
            if source.exists() and not target.exists() and "__pycache__" not in source.parts:
                target.parent.mkdir(parents=True, exist_ok=True)
                os.link(source, target)


def requirements(wheel):
    """What the wheel says that it cannot do without."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    return [line for line in re.findall(r"^Requires-Dist: (.*)$", metadata, re.M) if "extra ==" not in line]


class Environment:
    """A Python environment, and the octavo in it run from a folder of its own with a bare set of variables."""

    def __init__(self, folder, place, python=sys.executable):
        self.folder, self.place = folder, place
        subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
        self.packages = next((folder / "lib").glob("python3*/site-packages"))

    def install(self, wheel, *options):
        subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "--python",
                        self.folder / "bin" / "python", "install", *options, wheel], check=True)

    def variables(self, **more):
        return {"PATH": f"{self.folder}/bin:/usr/bin:/bin", "HOME": str(self.place), "LANG": "C.UTF-8",
                "OMP_WAIT_POLICY": "passive", **more}

    def run(self, *words, code=0, **variables):
        done = subprocess.run(["octavo", *words], cwd=self.place, env=self.variables(**variables), text=True,
                              capture_output=True)
        if done.returncode != code:
            fail(f"octavo {' '.join(map(str, words))}: wanted exit code {code}, found {done.returncode}: {done.stderr}")
        return done

    def train(self, steps, name, **variables):
        self.run("train", *MODEL, "--dataset", self.place / "text.txt", "--max_steps", str(steps), "--run_name", name,
                 **variables)
        records = (self.place / "runs" / name / "metrics.jsonl").read_text().splitlines()
        return sum("train/loss" in json.loads(line) for line in records)


def check_train(environment):
    """20 steps; while they run, the process is the native program and maps nothing of the source tree."""
    command = ["octavo", "train", *MODEL, "--dataset", environment.place / "text.txt", "--max_steps", str(STEPS),
               "--run_name", "first"]
    process = subprocess.Popen(command, cwd=environment.place, env=environment.variables(), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    if not common.wait_for_step(process, 1):
        fail(f"train: wanted a step line, found none: {process.stderr.read()}")
    program = pathlib.Path(f"/proc/{process.pid}/exe").resolve()
    maps = {line.split()[-1] for line in pathlib.Path(f"/proc/{process.pid}/maps").read_text().splitlines()}
    process.communicate()
    if process.returncode != 0:
        fail(f"train: wanted exit code 0, found {process.returncode}")
    if program != environment.packages / "octavo" / "bin" / "octavo":
        fail(f"wanted the native program of the wheel, found {program}")
    foreign = [path for path in maps if path.startswith((str(common.BUILD / "lib"), str(common.ROOT / ".deps")))
               or "libpython" in path or re.search(r"/(libspdlog|libcurl|libyaml-cpp)\.so", path)]
    if foreign:
        fail(f"wanted libraries of the wheels alone, found {foreign}")
    records = (environment.place / "runs" / "first" / "metrics.jsonl").read_text().splitlines()
    steps = sum("train/loss" in json.loads(line) for line in records)
    if steps != STEPS:
        fail(f"wanted {STEPS} steps in metrics.jsonl, found {steps}")
    return steps


def check_light_verbs(environment):
    for words, part in ((["--help"], "train a model"), (["--version"], "octavo 0."), (["config", "show"], "batch_size:")):
        if part not in environment.run(*words).stdout:
            fail(f"octavo {' '.join(words)}: wanted '{part}', found none")
    done = subprocess.run([environment.folder / "bin" / "python", "-m", "octavo.capture", "--help"], cwd=environment.place,
                          env=environment.variables(), capture_output=True, text=True)
    if done.returncode != 0 or "--step" not in done.stdout:
        fail(f"python -m octavo.capture --help: wanted its flags, found {done.stdout}{done.stderr}")
    configs = environment.packages / "octavo" / "share" / "configs"
    environment.run("config", "check", configs / "quickstart.yaml")
    check_examples(environment, configs)


def check_examples(environment, configs):
    """octavo examples: each passes the check in the user's own folder, and its first line names the wheel's schema."""
    names = [line.split()[0] for line in environment.run("examples").stdout.splitlines() if line.startswith("  ")]
    if sorted(names) != sorted(path.stem for path in (common.ROOT / "configs").glob("*.yaml")):
        fail(f"octavo examples: wanted the files of configs/, found {names}")
    for name in names:
        printed = environment.run("examples", name).stdout
        schema = configs / ("sweep.schema.json" if name.startswith("sweep_") else "octavo.schema.json")
        if printed.splitlines()[0] != f"# yaml-language-server: $schema={schema}" or not schema.is_file():
            fail(f"octavo examples {name}: wanted {schema} in its first line, and there; found {printed.splitlines()[0]}")
        (environment.place / f"{name}.yaml").write_text(printed)
        if not name.startswith("sweep_"):
            environment.run("config", "check", f"{name}.yaml")


def write_parquet(path):
    import pyarrow
    import pyarrow.parquet
    pyarrow.parquet.write_table(pyarrow.table({"text": ["to be or not to be " * 20] * 50}), path)


def check_modules(environment):
    """What is opened at run time: Arrow for Parquet, and the fake GPU."""
    write_parquet(environment.place / "rows.parquet")
    environment.run("data", "prepare", "rows.parquet", "--output", "rows")
    environment.run("plan", "--dry_run", *TINY)


def opened_files(environment, *words):
    """What the command and its children tried to open, the loader's attempts among it."""
    log = environment.place / "opened.txt"
    subprocess.run(["strace", "-f", "-qq", "-e", "trace=open,openat", "-o", log, "octavo", *words], cwd=environment.place,
                   env=environment.variables(), capture_output=True)
    return re.findall(r'open(?:at)?\((?:AT_FDCWD, )?"([^"]+)"', log.read_text(errors="replace"))


def check_fake_device(environment):
    """The fake driver is met by a dry run alone; verify looks for a driver and must not find that one. Returns the commands tried."""
    train = ["train", *MODEL, "--dataset", "text.txt", "--max_steps", "1", "--run_name", "traced"]
    for words in (["verify"], train):
        opened = opened_files(environment, *words)
        if fakes := [path for path in opened if "fake_cuda" in path]:
            fail(f"octavo {words[0]}: wanted nothing of the fake CUDA device, found {fakes[0]} opened")
        if words == ["verify"] and not any(path.endswith("libcuda.so.1") for path in opened):
            fail("octavo verify: wanted it to look for libcuda.so.1, found no attempt; this check would show nothing")
    dry = opened_files(environment, "plan", "--dry_run", *TINY)
    if not any(path.endswith("fake_cuda/libcuda.so.1") for path in dry):
        fail("octavo plan --dry_run: wanted the fake libcuda.so.1 to be opened, found no attempt")
    return 3


def check_completion(environment):
    script = ("source <(octavo completion bash); complete -p octavo; "
              "COMP_WORDS=(octavo \"$1\" \"$2\") COMP_CWORD=2; _octavo; printf '%s\\n' \"${COMPREPLY[@]}\"")
    for words, part in ((["train", "--fp8_f"], "--fp8_format"), (["data", ""], "prepare")):
        done = subprocess.run(["bash", "-c", script, "bash", *words], env=environment.variables(), cwd=environment.place,
                              capture_output=True, text=True)
        lines = done.stdout.splitlines()
        if done.returncode != 0 or lines[0] != "complete -o default -F _octavo octavo" or part not in lines:
            fail(f"completion of {words}: wanted {part}, found {done.stdout}{done.stderr}")


class Hidden:
    """A file or folder that is not there for a while."""

    def __init__(self, path):
        self.path, self.away = path, path.with_name(path.name + ".away")

    def __enter__(self):
        self.path.rename(self.away)

    def __exit__(self, *_):
        self.away.rename(self.path)


def check_hints(environment):
    """What is said when a library is missing or of another version: never the loader's words alone. Returns how many."""
    packages = environment.packages
    train = ["train", *MODEL, "--dataset", environment.place / "text.txt", "--max_steps", "1"]
    prepare = ["data", "prepare", "rows.parquet", "--output", "again"]
    pins = {line.split("==")[0]: line.split(" ")[0] for line in (common.ROOT / "packaging" / "requirements.lock").read_text().splitlines()}
    cases = [(packages / "torch", train, r"libtorch_cpu\.so", "torch", packages / "torch" / "lib"),
             (environment.folder / "lib" / "libdnnl.so.3", train, r"libdnnl\.so\.3", "onednn-cpu-gomp", environment.folder / "lib"),
             (packages / "pyarrow", prepare, r"lib(arrow|parquet)\.so\.\d+", "pyarrow", packages / "pyarrow")]
    for hidden, words, library, package, place in cases:
        with Hidden(hidden):
            said = environment.run(*words, code=ENVIRONMENT_FAULT).stderr
        print(said.strip())
        wanted = rf"octavo: \[\w+\] [^:]+: wanted {library} of {package}==\S+, found none; looked in {re.escape(str(place))}"
        if not re.search(wanted, said) or f"pip install {pins[package]}" not in said:
            fail(f"with {hidden.name} hidden: wanted a message like '{wanted}' and the command, found: {said}")
    with Hidden(packages / "torch"):
        said = environment.run(*train, code=ENVIRONMENT_FAULT, OCTAVO_SITE_PACKAGES="/nowhere/site-packages").stderr
    if "looked in /nowhere/site-packages/torch/lib, " not in said:
        fail(f"with a wrong OCTAVO_SITE_PACKAGES: wanted its folder in the message, found: {said}")
    info = next(packages.glob("torch-*.dist-info"))
    with Hidden(info):
        older = packages / "torch-2.14.0.dist-info"
        older.mkdir()
        said = environment.run(*train, code=ENVIRONMENT_FAULT).stderr
        older.rmdir()
    print(said.strip())
    if "train wants torch" not in said or "found torch 2.14.0" not in said:
        fail(f"with another torch: wanted its version in the message, found: {said}")
    return len(cases) + 2


def check_other_places(work, wheel, first):
    """torch in another site-packages: found by Python's path (a .pth file), and without Python by OCTAVO_SITE_PACKAGES."""
    second = Environment(work / "second", first.place)
    second.install(wheel, "--no-index", "--no-deps")
    (second.packages / "other.pth").write_text(str(first.packages) + "\n")
    if second.train(2, "by_path") != 2:
        fail("wanted 2 steps with torch of a .pth file's folder")
    train_native(second.packages / "octavo" / "bin" / "octavo", first, "native")


def train_native(program, environment, name):
    """Two steps without Python's help, with the libraries of the environment."""
    command = [program, "train", *MODEL, "--dataset", environment.place / "text.txt", "--max_steps", "2", "--run_name", name]
    done = subprocess.run(command, cwd=environment.place, text=True, capture_output=True,
                          env=environment.variables(OCTAVO_SITE_PACKAGES=str(environment.packages)))
    if done.returncode != 0:
        fail(f"{program} with OCTAVO_SITE_PACKAGES: wanted exit code 0, found {done.returncode}: {done.stderr}")


def check_debian_package(work, environment):
    """Made, unpacked, and run with the environment's libraries. Returns its megabytes."""
    made = subprocess.run([common.ROOT / "packaging" / "deb", work, common.BUILD], check=True, capture_output=True, text=True)
    package = pathlib.Path(made.stdout.split()[-1])
    subprocess.run(["dpkg-deb", "-x", package, work / "unpacked"], check=True)
    train_native(work / "unpacked" / "usr" / "bin" / "octavo", environment, "debian")
    return package.stat().st_size / 1e6


def check_page(environment):
    """The commands of docs/get-started/install.md that a machine without Docker and a GPU can run."""
    for command in common.page_commands("get-started/install.md", "install"):
        done = subprocess.run(["bash", "-c", command], cwd=environment.place, env=environment.variables(), capture_output=True,
                              text=True)
        if done.returncode != 0:
            fail(f"docs/get-started/install.md: '{command}' ended with {done.returncode}: {done.stderr}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--full", action="store_true")
    arguments = parser.parse_args()
    common.require_files()
    install_dockerfile.check()
    # In the build folder: hard links want the file system of .deps.
    with tempfile.TemporaryDirectory(dir=common.BUILD) as name, tempfile.TemporaryDirectory() as elsewhere:
        work, place = pathlib.Path(name), pathlib.Path(elsewhere)
        wheel = make_wheel(work)
        tag = check_tag(wheel)
        environment = Environment(work / "fresh", place)
        if arguments.full:
            environment.install(wheel)
        else:
            link_dependencies(environment.folder, wheel)
            environment.install(wheel, "--no-index", "--no-deps")
        place.joinpath("text.txt").write_bytes(common.TEXT.read_bytes()[:200_000])
        check_light_verbs(environment)
        steps = check_train(environment)
        check_modules(environment)
        bundled = install_curl.check(work, wheel, environment)
        traced = check_fake_device(environment)
        check_completion(environment)
        check_page(environment)
        check_other_places(work, wheel, environment)
        deb_size = check_debian_package(work, environment)
        hints = check_hints(environment)
        size = wheel.stat().st_size / 1e6
    print(f"tag={tag} wheel_mb={size:.1f} bundled={bundled} installed=1 steps={steps} hints={hints} traced={traced} deb_mb={deb_size:.1f}")


if __name__ == "__main__":
    main()
