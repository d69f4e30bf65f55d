"""The build backend of pyproject.toml (PEP 517): builds the program with CMake and packs it into a wheel.

pip install .                                  builds from scratch, in build/wheel
pip install . -C build-dir=build/release       packs what that folder holds; OCTAVO_BUILD_DIR says the same
pip install . -C curl=distribution             with the distribution's libcurl, or that of a folder of minimal_curl.py
The libraries to build against are those of .deps/venv (./bootstrap) or, without it, of pip's own build environment.
"""
import base64
import csv
import hashlib
import io
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile

import bundle
import minimal_curl

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOOTSTRAPPED = ROOT / ".deps" / "venv"
# Beside the run-time wheels, to compile: oneDNN's and Transformer Engine's headers, CUDA's that torch does not bring, and nvcc.
BUILD_WHEELS = ["onednn-devel-cpu-gomp", "transformer_engine_cu13", "nvidia-cuda-crt", "nvidia-cuda-cccl", "nvidia-cuda-nvcc", "nvidia-nvvm"]
EARLIEST = (1980, 1, 1, 0, 0, 0)  # that a zip file can say


def settings():
    with open(ROOT / "pyproject.toml", "rb") as file:
        return tomllib.load(file)


def pinned(names, extra=None):
    """What a package's metadata asks for: the versions of the lock, with its markers and the extra's."""
    lock = (ROOT / "packaging" / "requirements.lock").read_text()
    found = {name: rest for name, *rest in re.findall(r"^([\w.-]+)(==\S+)(?: ; (.*?))?(?= --hash)", lock, re.M)}

    def row(name):
        version, marker = found[name]
        markers = [each for each in (marker, extra and f'extra == "{extra}"') if each]
        return name + version + (f"; {' and '.join(markers)}" if markers else "")

    return [row(name) for name in names]


def version():
    return re.search(r"project\(octavo VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text())[1]


def given_build_dir(config_settings):
    given = (config_settings or {}).get("build-dir") or os.environ.get("OCTAVO_BUILD_DIR")
    if not given:
        return None
    folder = (ROOT / given).resolve()
    if not (folder / "cmake_install.cmake").exists():
        sys.exit(f"octavo: wanted a build folder, found none at {folder}; run cmake --preset release && cmake --build --preset release")
    return folder


def curl_folder(config_settings):
    """Where the libcurl of the wheel is; None: the distribution's."""
    given = (config_settings or {}).get("curl")
    if given == "distribution":
        return None
    if not given:
        return minimal_curl.folder_or_none()
    folder = (ROOT / given).resolve()
    if not (folder / bundle.CURL).exists():
        sys.exit(f"octavo: curl: wanted 'distribution' or a folder with {bundle.CURL}, found {given}")
    return folder


def get_requires_for_build_wheel(config_settings=None):
    if given_build_dir(config_settings) or BOOTSTRAPPED.exists():
        return []
    return pinned(settings()["tool"]["octavo"]["dependencies"] + BUILD_WHEELS)


def get_requires_for_build_sdist(config_settings=None):
    return []


def metadata():
    project, own = settings()["project"], settings()["tool"]["octavo"]
    lines = ["Metadata-Version: 2.4", f"Name: {project['name']}", f"Version: {version()}",
             f"Summary: {project['description']}", f"License-Expression: {project['license']}", "License-File: LICENSE",
             f"Requires-Python: {project['requires-python']}"]
    lines += [f"Requires-Dist: {wheel}" for wheel in pinned(own["dependencies"])]
    for extra, names in own["optional-dependencies"].items():
        lines += [f"Provides-Extra: {extra}"]
        lines += [f"Requires-Dist: {wheel}" for wheel in pinned(names, extra)]
    lines += ["Description-Content-Type: text/markdown", "", (ROOT / project["readme"]).read_text()]
    return "\n".join(lines)


def tag(folder):
    """No part of Python is linked, so any version of it will do; the C library must have what the files ask for."""
    major, minor = bundle.oldest_glibc(folder)
    return f"py3-none-manylinux_{major}_{minor}_{platform.machine()}"


def require_tools(names):
    missing = [name for name in names if not shutil.which(name)]
    if missing:
        sys.exit(f"octavo: wanted {', '.join(missing)}, found none; run ./bootstrap, or install the packages of "
                 "packaging/debian-packages.txt")


def environment_with_torch():
    """What ./bootstrap made; otherwise the one on Python's path, which pip made for this build."""
    packages = [pathlib.Path(folder) for folder in sys.path if (pathlib.Path(folder) / "torch" / "lib").exists()]
    if BOOTSTRAPPED.exists():
        return BOOTSTRAPPED
    if not packages:
        sys.exit("octavo: wanted torch to build against, found none; run ./bootstrap, or leave out --no-build-isolation")
    return packages[0].parents[2]  # of lib/python3.11/site-packages


def build():
    """From scratch, or as far as build/wheel has come; ten minutes on two cores."""
    require_tools(["cmake", "ninja", "clang++", "lld"])
    folder = ROOT / "build" / "wheel"
    subprocess.run(["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                    "-DCMAKE_CXX_COMPILER=clang++", f"-DOCTAVO_VENV={environment_with_torch()}"], check=True)
    subprocess.run(["cmake", "--build", folder, "--target", "octavo_installed"], check=True)
    return folder


def dist_info(folder):
    info = folder / f"octavo-{version()}.dist-info"
    (info / "licenses").mkdir(parents=True)
    shutil.copyfile(ROOT / "LICENSE", info / "licenses" / "LICENSE")
    (info / "METADATA").write_text(metadata())
    scripts = "".join(f"{name} = {target}\n" for name, target in settings()["project"]["scripts"].items())
    (info / "entry_points.txt").write_text("[console_scripts]\n" + scripts)
    return info


def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    return dist_info(pathlib.Path(metadata_directory)).name


def write_sbom(build_dir, curl, file):
    """Again: the build's lists the libraries of the distribution's libcurl."""
    venv = re.search(r"^OCTAVO_VENV:\w+=(.*)$", (build_dir / "CMakeCache.txt").read_text(), re.M)
    packages = list(pathlib.Path(venv[1]).glob("lib/python3*/site-packages")) if venv else []
    if len(packages) != 1:
        sys.exit(f"octavo: wanted the site-packages that {build_dir} was built with, found {packages}; configure it again")
    subprocess.run([sys.executable, ROOT / "packaging" / "sbom", build_dir, packages[0], file, curl], check=True)


def stage(build_dir, folder, curl):
    """Everything that goes into the wheel, under `folder`."""
    require_tools(["cmake", "patchelf", "strip"])
    info = dist_info(folder)
    bundled = bundle.bundle(build_dir, folder / "octavo", info / "licenses" / "bundled", curl)
    (info / "sboms").mkdir()  # where PEP 770 wants it
    sbom = info / "sboms" / "octavo.cdx.json"
    (folder / "octavo" / "share" / "octavo.cdx.json").rename(sbom)
    if curl:
        write_sbom(build_dir, curl, sbom)
    shutil.copytree(ROOT / "packaging" / "python" / "octavo", folder / "octavo", dirs_exist_ok=True,
                    ignore=shutil.ignore_patterns("__pycache__"))
    print(f"octavo: from {build_dir}; bundled {len(bundled)} libraries: {' '.join(bundled)}", file=sys.stderr)
    return info


def pack(folder, info, wheel):
    """A zip file with RECORD last: the hash of every file."""
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        def add(name, content, mode):
            entry = zipfile.ZipInfo(name, EARLIEST)
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, (0o100000 | mode) << 16
            archive.writestr(entry, content)
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            name, content = file.relative_to(folder).as_posix(), file.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.writerow([name, f"sha256={digest}", len(content)])
            add(name, content, 0o755 if os.access(file, os.X_OK) else 0o644)
        rows.writerow([f"{info.name}/RECORD", "", ""])
        add(f"{info.name}/RECORD", record.getvalue(), 0o644)


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    build_dir = given_build_dir(config_settings) or build()
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        info = stage(build_dir, folder, curl_folder(config_settings))
        made_for = tag(folder)
        (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: octavo_build\nRoot-Is-Purelib: false\nTag: {made_for}\n")
        name = f"octavo-{version()}-{made_for}.whl"
        pack(folder, info, pathlib.Path(wheel_directory) / name)
    return name


def build_sdist(sdist_directory, config_settings=None):
    name = f"octavo-{version()}"
    files = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], check=True, capture_output=True).stdout
    with tarfile.open(pathlib.Path(sdist_directory) / f"{name}.tar.gz", "w:gz") as archive:
        for file in filter(None, files.decode().split("\0")):
            archive.add(ROOT / file, f"{name}/{file}", recursive=False)
        content = metadata().encode()
        entry = tarfile.TarInfo(f"{name}/PKG-INFO")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return f"{name}.tar.gz"
