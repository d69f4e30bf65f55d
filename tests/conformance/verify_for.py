#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 gate="" measures="src/python_env src/verify src/cli"
"""octavo verify --for te|torchao|megatron against Python's own reading of the same environments.

1. Versions, their order, specifiers and markers against `packaging`; names and versions of packages against
   importlib.metadata, in this Python's real environment and in made-up ones.
2. Every row of the known-bad table: an example of verify_for_rows.py makes its line appear with its source, and each change
   that should make it go away does. A GPU's compute capability comes from an NVML of a few lines of C.
3. What the real environment's metadata require, judged by `packaging`, and by octavo.
4. Hostile metadata: bounded, refused or said; nothing is run, imported, or printed raw.
"""
import importlib.metadata
import itertools
import json
import os
import pathlib
import platform
import random
import re
import stat
import subprocess
import sys
import tempfile
import time

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from verify_for_rows import ENVIRONMENT, ROWS

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release"))
OCTAVO, TOOL = BUILD / "bin" / "octavo", BUILD / "bin" / "python_env_tool"
VENV = pathlib.Path(sys.prefix)
USAGE, ENVIRONMENT_CODE = 2, 3
SECONDS_ALLOWED = 2.0  # for the real environment; it is read without Python

NVML = """
#include <stdlib.h>
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char* out, unsigned n) { strncpy(out, "580.65.06", n); return 0; }
int nvmlDeviceGetCount_v2(unsigned* n) { *n = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** d) { *d = (void*)1; return 0; }
int nvmlDeviceGetName(void* d, char* out, unsigned n) { strncpy(out, "a card", n); return 0; }
int nvmlDeviceGetCudaComputeCapability(void* d, int* major, int* minor) {
  *major = atoi(getenv("FAKE_CAPABILITY")); *minor = atoi(strchr(getenv("FAKE_CAPABILITY"), '.') + 1); return 0; }
"""


class Claims:
    def __init__(self):
        self.count, self.failed = 0, 0

    def claim(self, name, good, said=""):
        self.count += 1
        if not good:
            self.failed += 1
            print(f"FAILED {name}: {said}")

    def same(self, name, found, wanted):
        differ = [(f, w) for f, w in itertools.zip_longest(found, wanted) if f != w]
        self.claim(f"{name}: {len(wanted)} compared", not differ, differ[:5])


def tool(task, *arguments, lines=()):
    done = subprocess.run([TOOL, task, *map(str, arguments)], input="".join(line + "\n" for line in lines), text=True,
                          capture_output=True, check=True)
    return done.stdout.splitlines()


def try_version(text):
    try:
        return Version(text)
    except InvalidVersion:
        return None


def made_versions(count):
    """Texts of versions: real ones in every spelling that PEP 440 allows, and nonsense."""
    draw = random.Random(7)
    pick, number = draw.choice, lambda: draw.choice(("0", "1", "2", "3", "10", "07", "2024", "20250901"))
    out = []
    for _ in range(count):
        text = pick(("", "", "", "v", "1!")) + ".".join(number() for _ in range(draw.randint(1, 4)))
        text += pick(("", "", "", "a1", "-alpha.2", "b", "RC1", ".rc2", "_pre3", "preview4", "c5"))
        text += pick(("", "", "", ".post1", "-1", "post", ".r2", "-rev3"))
        text += pick(("", "", "", ".dev0", "dev", "-dev-4", ".dev20250708"))
        text += pick(("", "", "", "+cu128", "+cpu", "+5228986c39.nv25.06", "+Ubuntu-1", "+007", "+abc.5.def"))
        out.append(text + pick(("", "", "", "", "", "", "", ".", "x", "+", "!", " ", "-")))
    return out


def check_versions(claims):
    texts = made_versions(4000)
    parsed = [try_version(text) for text in texts]
    claims.same("normal forms", tool("versions", lines=texts), ["-" if v is None else str(v) for v in parsed])
    good = [(t.strip(), v) for t, v in zip(texts, parsed) if v is not None]
    draw = random.Random(11)
    pairs = [(draw.choice(good), draw.choice(good)) for _ in range(20000)]
    order = ["<" if a < b else "=" if a == b else ">" for (_, a), (_, b) in pairs]
    claims.same("order", tool("order", lines=[f"{a}\t{b}" for (a, _), (b, _) in pairs]), order)
    signs = ("==", "!=", "<", ">", "<=", ">=", "~=", "===")
    cases, wanted = [], []
    for _ in range(8000):
        (text, version), (bound, _) = draw.choice(good), draw.choice(good)
        if draw.random() < 0.4:  # near each other, where the rules differ
            bound = re.match(r"[\d.!v]*", text)[0].rstrip(".") + draw.choice(("", ".post1", "a1", ".dev0", ".*"))
        specifier = draw.choice(signs) + bound
        try:
            result = "1" if SpecifierSet(specifier).contains(version, prereleases=True) else "0"
        except InvalidSpecifier:
            result = "?"
        if specifier.startswith("==="):  # compares texts: only those that are written as they are normalised
            if bound != str(try_version(bound)) or text != str(version):
                continue
        cases.append(f"{text}\t{specifier}")
        wanted.append(result)
    claims.same("specifiers", tool("specifiers", lines=cases), wanted)
    return len(texts), len(pairs), len(cases)


def check_markers(claims):
    version = platform.python_version()
    environment = {"python_version": ".".join(version.split(".")[:2]), "python_full_version": version, "os_name": "posix",
                   "sys_platform": "linux", "platform_system": "Linux", "platform_machine": platform.machine(),
                   "implementation_name": "cpython", "platform_python_implementation": "CPython", "extra": ""}
    markers = set()
    for found in importlib.metadata.distributions():
        for line in found.requires or ():
            marker = Requirement(line).marker
            if marker is not None and not re.search(r"platform_(release|version)|implementation_version|extras|dependency_groups",
                                                    str(marker)):
                markers.add(str(marker))
    markers = sorted(markers)
    wanted = ["1" if Marker(m).evaluate(environment) else "0" for m in markers]
    claims.same("markers of the real environment", tool("markers", version, lines=markers), wanted)
    claims.claim("markers of both kinds", {"0", "1"} <= set(wanted), wanted[:5])
    return len(markers)


def check_packages(claims, site):
    found = dict(line.split("\t") for line in tool("packages", site))
    wanted = {canonicalize_name(d.metadata["Name"]): d.version for d in reversed(list(importlib.metadata.distributions(path=[str(site)])))}
    claims.claim(f"packages of {site.name}: {len(wanted)}", found == wanted, set(found.items()) ^ set(wanted.items()))
    return len(wanted)


def install(site, name, version, requires=(), files=()):
    """As pip leaves a package."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    lines = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", "Summary: a package", *(f"Requires-Dist: {r}" for r in requires)]
    (info / "METADATA").write_text("\n".join(lines) + "\n\n# Description\n\nVersion: 0.0\n")
    (info / "INSTALLER").write_text("pip\n")
    (info / "WHEEL").write_text("Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    listed = [f"{info.name}/METADATA,,", *(f"{f},sha256=abc,1" for f in files), "../../../bin/tool,,"]
    (info / "RECORD").write_text("\n".join(listed) + "\n")
    return info


class Made:
    """A virtual environment of packages that are not there, and octavo's report on it."""

    def __init__(self, folder, nvml):
        self.root, self.nvml = folder, nvml
        self.site = folder / "lib" / "python3.12" / "site-packages"
        self.site.mkdir(parents=True)
        (folder / "bin").mkdir()
        (folder / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\nversion = 3.12.3\n")
        python = folder / "bin" / "python"
        python.write_text(f"#!/bin/sh\ntouch {folder}/was_run\n")
        python.chmod(python.stat().st_mode | stat.S_IXUSR)

    def run(self, trainer, *flags, variables=None, capability=None):
        clean = {"PATH": f"{self.root}/bin:/usr/bin:/bin", "HOME": str(self.root), "VIRTUAL_ENV": str(self.root)}
        if capability:
            clean |= {"LD_LIBRARY_PATH": str(self.nvml), "FAKE_CAPABILITY": capability}
        return subprocess.run([OCTAVO, "verify", "--for", trainer, *flags], text=True, capture_output=True, timeout=60,
                              errors="replace", env=clean | (variables or {}))

    def findings(self, trainer, **more):
        done = self.run(trainer, "--json", **more)
        report = json.loads(done.stdout)
        return {f["id"]: f for f in report["findings"]}, done.returncode


def report_of(work, nvml, number, trainer, settings):
    made = Made(work / f"env{next(number)}", nvml)
    for name, version in settings.items():
        if version is not None and not name.startswith("$") and name != "capability":
            install(made.site, name, version)
    variables = {name[1:]: value for name, value in settings.items() if name.startswith("$") and value is not None}
    return made.findings(trainer, variables=variables, capability=settings.get("capability"))


def check_rows(claims, work, nvml):
    number = itertools.count()
    table = [line.split("\t") for line in tool("rules")]
    claims.claim("every row has an example, and every example a row", {row[0] for row in table} == set(ROWS),
                 {row[0] for row in table} ^ set(ROWS))
    for trainer, settings in ENVIRONMENT.items():
        found, code = report_of(work, nvml, number, trainer, settings)
        bad = [f for f in found.values() if f["status"] in ("warn", "fail")]
        claims.claim(f"a good environment for {trainer}", code == 0 and not bad, bad)
    runs = 0
    for identity, status, source in table:
        if ROWS.get(identity) is None:
            continue
        trainer, wrong, changes, where = ROWS[identity]
        bad = ENVIRONMENT[trainer] | wrong
        found, code = report_of(work, nvml, number, trainer, bad)
        line = found.get(identity, {})
        claims.claim(f"{identity}: {wrong}", line.get("status") == status and where in line.get("found", "") and line.get("fix"), line)
        claims.claim(f"{identity}: exit code", code == ENVIRONMENT_CODE or status != "fail", code)
        claims.claim(f"{identity}: names its source", where in source and source in line.get("found", ""), source)
        for change in changes:
            found, _ = report_of(work, nvml, number, trainer, bad | change)
            claims.claim(f"{identity}: not with {change}", identity not in found, found.get(identity))
            runs += 1
        if "capability" in str([wrong, *changes]):
            found, _ = report_of(work, nvml, number, trainer, bad | {"capability": None})
            line = found.get(identity, {})
            claims.claim(f"{identity}: without a driver not checked",
                         line.get("status") == "not checked" and "compute capability" in line["found"], line)
    return len(table)


def check_real(claims):
    """What octavo says of this Python's environment, against packaging's judgement of the same metadata."""
    start = time.monotonic()
    done = subprocess.run([OCTAVO, "verify", "--for", "torchao", "--python", sys.executable, "--json"], text=True, capture_output=True)
    seconds = time.monotonic() - start
    found = {f["id"]: f for f in json.loads(done.stdout)["findings"]}
    claims.claim("the real environment in time", seconds < SECONDS_ALLOWED, seconds)
    for identity, package in (("torch", "torch"), ("NumPy", "numpy"), ("cuDNN", "nvidia-cudnn-cu13"), ("NCCL", "nvidia-nccl-cu13"),
                              ("CUDA runtime", "nvidia-cuda-runtime"), ("cuBLAS", "nvidia-cublas"), ("torchao", "torchao")):
        claims.claim(f"real {identity}", found[identity]["found"].startswith(str(Version(importlib.metadata.version(package)))),
                     found[identity])
    version = platform.python_version()
    claims.claim("real Python", found["Python"]["found"].startswith(version.rsplit(".", 1)[0]), found["Python"])
    unmet = set()
    for line in importlib.metadata.requires("torch"):
        wanted = Requirement(line)
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        try:
            good = wanted.specifier.contains(importlib.metadata.version(wanted.name), prereleases=True)
        except importlib.metadata.PackageNotFoundError:
            good = False
        if not good:
            unmet.add(f"torch and {canonicalize_name(wanted.name)}")
    said = {i for i, f in found.items() if i.startswith("torch and ") and f["status"] == "warn"}
    claims.claim("requirements of the real torch", said == unmet, said ^ unmet)
    done = subprocess.run([OCTAVO, "verify", "--for", "megatron", "--python", sys.executable, "--json"], text=True, capture_output=True)
    found = {f["id"]: f for f in json.loads(done.stdout)["findings"]}
    claims.claim("Megatron is not here: exit code 3", done.returncode == ENVIRONMENT_CODE and found["Megatron Core"]["status"] == "fail",
                 found["Megatron Core"])
    return seconds


def check_fit(claims, work, nvml):
    number = itertools.count(10000)
    base = ENVIRONMENT["te"]
    found, _ = report_of(work, nvml, number, "te", base | {"transformer-engine-torch": "2.17.0"})
    claims.claim("Transformer Engine's packages differ", found["Transformer Engine's packages"]["status"] == "fail")
    found, _ = report_of(work, nvml, number, "te", base | {"transformer-engine-cu13": None, "transformer-engine-cu12": "2.18.0"})
    claims.claim("a Transformer Engine for another CUDA", "2040" in found["Transformer Engine and CUDA"]["fix"])
    found, _ = report_of(work, nvml, number, "te", base | {"capability": "8.0"})
    claims.claim("a GPU without FP8", found["gpu 0"]["status"] == "fail", found["gpu 0"])
    found, _ = report_of(work, nvml, number, "te", base | {"capability": None})
    claims.claim("no driver: not checked", found["driver"]["status"] == found["compute capability"]["status"] == "not checked")
    found, _ = report_of(work, nvml, number, "te", base | {"nvidia-cudnn-cu13": None})
    claims.claim("cuDNN from elsewhere: not checked", found["cuDNN"]["status"] == "not checked", found["cuDNN"])
    found, _ = report_of(work, nvml, number, "te", base | {"nvidia-cudnn-cu13": None, "$CUDNN_VERSION": "9.1.0.70"})
    claims.claim("cuDNN of a container", found["cuDNN before 9.3"]["status"] == "warn", found.get("cuDNN"))
    found, _ = report_of(work, nvml, number, "te", base | {"$NVTE_FLASH_ATN": "1"})
    claims.claim("a misspelt variable", "NVTE_FLASH_ATTN" in found["NVTE_FLASH_ATN"]["fix"])
    made = Made(work / "fit", nvml)
    install(made.site, "torch", "2.9.1", ["nvidia-cudnn-cu12==9.10.2.21; platform_system == \"Linux\"", "sympy>=1.13.3", "opt-einsum; extra == \"x\""])
    install(made.site, "nvidia-cudnn-cu12", "9.15.1.9", files=["nvidia/cudnn/lib/libcudnn.so.9"])
    install(made.site, "torchao", "0.15.0", files=["torchao/_C.abi3.so"])
    found, _ = made.findings("torchao")
    claims.claim("a pinned cuDNN", found["torch and nvidia-cudnn-cu12"]["found"] == "9.15.1.9", found.get("torch and nvidia-cudnn-cu12"))
    claims.claim("a missing requirement", found["torch and sympy"]["found"] == "not installed")
    claims.claim("an optional one is not asked for", "torch and opt-einsum" not in found)
    claims.claim("a library of RECORD that is gone", found["torchao, files"]["status"] == "fail", found.get("torchao, files"))
    claims.claim("versions as importlib reads them", check_packages(claims, made.site) == 3)


def check_hostile(claims, work, nvml):
    def hostile(name, spoil):
        made = Made(work / f"hostile_{name}", nvml)
        install(made.site, "torch", "2.14.1+cu130")
        spoil(made, install(made.site, "torchao", "0.18.0"))
        start = time.monotonic()
        done = made.run("torchao", "--verbose")
        claims.claim(f"hostile {name}: answered", done.returncode in (0, ENVIRONMENT_CODE) and "verify: " in done.stdout,
                     (done.returncode, done.stderr[-300:]))
        claims.claim(f"hostile {name}: in time", time.monotonic() - start < 10)
        claims.claim(f"hostile {name}: no control characters", not re.search(r"[\x00-\x08\x0b-\x1f\x7f]", done.stdout), done.stdout[-300:])
        claims.claim(f"hostile {name}: nothing was run", not (made.root / "was_run").exists())
        return done.stdout

    def replace(path, make):
        path.unlink()
        make(path)

    text = hostile("huge", lambda m, i: (i / "METADATA").write_bytes(b"Version: 1\n" * (1 << 20)))
    claims.claim("a huge METADATA is said", "not checked torchao" in text, text)
    text = hostile("pipe", lambda m, i: replace(i / "METADATA", os.mkfifo))
    claims.claim("a pipe is said", "not checked torchao" in text, text)
    hostile("endless", lambda m, i: replace(i / "METADATA", lambda p: p.symlink_to("/dev/zero")))
    text = hostile("escape", lambda m, i: (i / "METADATA").write_text("Name: torchao\nVersion: 1.0\x1b[2J\x07\n\n"))
    claims.claim("a version with an escape sequence is said", "none that PEP 440 knows" in re.sub(r"\s+", " ", text), text)
    hostile("deep", lambda m, i: (i / "METADATA").write_text("Name: torchao\nVersion: 0.18.0\nRequires-Dist: a; " + "(" * 100000 + "\n\n"))
    hostile("many", lambda m, i: (i / "METADATA").write_text("Name: torchao\nVersion: 0.18.0\n" + "".join(
        f"Requires-Dist: p{k}\n" for k in range(100000))))
    secret = work / "secret.so"
    hostile("record", lambda m, i: (i / "RECORD").write_text(f"../../../../../{secret},,\n{secret},,\na/../../../x.so,,\n" * 1000))
    hostile("pyvenv", lambda m, i: (m.root / "pyvenv.cfg").write_bytes(os.urandom(1 << 20)))
    hostile("names", lambda m, i: [(m.site / f"x{k}-1.dist-info").mkdir() for k in range(2000)])
    hostile("binary", lambda m, i: (i / "METADATA").write_bytes(os.urandom(1 << 16)))


def check_command(claims, work, nvml):
    made = Made(work / "command", nvml)
    for name, version in ENVIRONMENT["torchao"].items():
        if name != "capability":
            install(made.site, name, version)
    done = made.run("torchao", "--output", str(work / "report.json"), capability="9.0")
    claims.claim("text and exit code 0", done.returncode == 0 and done.stdout.splitlines()[-1].startswith("verify: nothing failed"),
                 done.stdout + done.stderr)
    claims.claim("--output", json.loads((work / "report.json").read_text())["exit_code"] == 0)
    loaded = subprocess.run([OCTAVO, "verify", "--for", "torchao", "--python", made.root], capture_output=True, text=True,
                            env=os.environ | {"LD_DEBUG": "files"})
    claims.claim("libtorch is not loaded", "liboctavo_light" in loaded.stderr and "libtorch" not in loaded.stderr)
    for flags, part in ((("--for", "nemo"), "te, torchao or megatron"), (("--for",), "wanted te|torchao|megatron behind it"),
                        (("--python", "x"), "beside --python"), (("--for", "te", "--python", "/no/such"), "which python"),
                        (("--for", "te", "--fp8_recipe", "current"), "does not read fp8_recipe")):
        done = subprocess.run([OCTAVO, "verify", *flags], capture_output=True, text=True)
        claims.claim(f"refused: {flags}", done.returncode == USAGE and part in done.stderr, done.stderr)
    done = made.run("te", "--require_gpu")
    claims.claim("--require_gpu without one", done.returncode == ENVIRONMENT_CODE and "FAIL        compute capability" in done.stdout,
                 done.stdout)
    for given in (made.root, made.root / "bin" / "python", made.site):
        done = subprocess.run([OCTAVO, "verify", "--for=torchao", f"--python={given}", "--json"], capture_output=True, text=True)
        found = {f["id"]: f for f in json.loads(done.stdout)["findings"]}
        claims.claim(f"--python {given.name}", found["torchao"]["found"].startswith("0.18.0"), found.get("torchao"))
    claims.claim("python was never run", not (made.root / "was_run").exists())


def main():
    claims = Claims()
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        nvml = work / "nvml"
        nvml.mkdir()
        (nvml / "nvml.c").write_text(NVML)
        subprocess.run(["clang", "-shared", "-fPIC", "-w", "-o", nvml / "libnvidia-ml.so.1", nvml / "nvml.c"], check=True)
        versions, orders, specifiers = check_versions(claims)
        markers = check_markers(claims)
        site = next(p for p in map(pathlib.Path, sys.path) if p.name == "site-packages" and VENV in p.parents)
        packages = check_packages(claims, site)
        rows = check_rows(claims, work, nvml)
        seconds = check_real(claims)
        check_fit(claims, work, nvml)
        check_hostile(claims, work, nvml)
        check_command(claims, work, nvml)
    print(f"claims={claims.count} failed={claims.failed} rows={rows} versions={versions} orders={orders} specifiers={specifiers} "
          f"markers={markers} packages={packages} seconds={seconds:.2f}")
    sys.exit(1 if claims.failed else 0)


if __name__ == "__main__":
    main()
