"""Makes an installed octavo independent of the machine that it was built on.

Libraries of the distribution (spdlog, curl, …) are copied beside the program under names of their own, as auditwheel does, so
that they never meet other versions of themselves in one process; the search paths become relative to site-packages.
"""
import functools
import hashlib
import pathlib
import re
import shutil
import subprocess
import sys

# The program, in a build folder and where it is installed.
OWN = ["bin/octavo", *(f"lib/liboctavo_{part}.so" for part in ("light", "core", "cuda", "arrow", "s3")),
       "lib/fake_cuda/liboctavo_fake_cuda.so", "lib/fake_cuda/libcuda.so.1"]
# Never copied: the C and C++ runtime of the machine that runs it, and what comes in wheels of its own.
RUNTIME = re.compile(r"(libc|libm|libdl|libpthread|librt|libresolv|libutil|libgcc_s|libstdc\+\+|ld-linux-[\w-]+)\.so\.\d+")
WHEELS = re.compile(r"(libtorch_cpu|libtorch_cuda|libc10|libc10_cuda)\.so|libdnnl\.so\.3|libgomp\.so\.1|libcudart\.so\.\d+"
                    r"|(libarrow|libarrow_s3|libparquet)\.so\.\d+|libcuda\.so\.1")
BUNDLE = "bundled"  # a folder in lib/
CURL = "libcurl.so.4"
# From octavo/lib: beside us, then the wheels of the same site-packages, then lib/ of the environment (oneDNN's wheel), which
# is four folders up, or two when all was installed with pip's --target.
# CUDA's wheels have one folder since 13, and one for each part before.
SEARCH_PATH = ["$ORIGIN", f"$ORIGIN/{BUNDLE}", "$ORIGIN/../../torch/lib", "$ORIGIN/../../nvidia/cu13/lib",
               "$ORIGIN/../../nvidia/cuda_runtime/lib", "$ORIGIN/../../pyarrow", "$ORIGIN/../../../..", "$ORIGIN/../../lib"]


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def debian_architecture():
    """amd64 or arm64."""
    return output("dpkg", "--print-architecture").strip()


def patch(file, *options):
    subprocess.run(["patchelf", *options, file], check=True)


def needed(file):
    """Names of libraries. patchelf says them too, but reads all of a file."""
    return re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "--dynamic", "--wide", file))


# The oldest C library beside a libstdc++ with GLIBCXX_3.4.N, as auditwheel's policies pair them; its `show` checks the result
# (tests/integration/install.py).
GLIBC_OF_GLIBCXX = {24: (2, 28), 28: (2, 31), 29: (2, 34), 30: (2, 35), 33: (2, 39)}


def oldest_glibc(folder):
    """The oldest C library that all ELF files below the folder run with, as (2, 35): by the symbols that they ask for."""
    wanted = {(2, 28)}  # torch's own wheel
    for file in folder.rglob("*"):
        if file.is_symlink() or not file.is_file() or file.open("rb").read(4) != b"\x7fELF":
            continue
        asked = output("readelf", "--version-info", "--wide", file)
        wanted |= {(2, int(minor)) for minor in re.findall(r"\bGLIBC_2\.(\d+)", asked)}
        newest = max(map(int, re.findall(r"\bGLIBCXX_3\.4\.(\d+)", asked)), default=0)
        if newest > max(GLIBC_OF_GLIBCXX):
            sys.exit(f"wheel: {file.name} asks for GLIBCXX_3.4.{newest}; wanted a row for it in GLIBC_OF_GLIBCXX")
        wanted.add(min((glibc for number, glibc in GLIBC_OF_GLIBCXX.items() if number >= newest)))
    return max(wanted)


def install(build_dir, folder):
    """The built program in bin/ and lib/, stripped and without the search paths of the build tree. Returns it and its libraries."""
    subprocess.run(["cmake", "--install", build_dir, "--component", "octavo", "--prefix", folder], check=True,
                   stdout=subprocess.DEVNULL)
    program, libraries = folder / "bin" / "octavo", sorted((folder / "lib").glob("*.so"))
    for name in OWN:
        subprocess.run(["strip", "--strip-unneeded", folder / name], check=True)
    for file in libraries:
        patch(file, "--remove-rpath")
    return program, libraries


def system_libraries():
    """Path by name, as the loader's own list has it."""
    lines = output("/sbin/ldconfig", "-p").splitlines()
    found = {}
    for line in lines:
        match = re.match(r"\s*(\S+) \(libc6,(?:x86-64|AArch64).*\) => (\S+)", line)
        if match:
            found.setdefault(match[1], pathlib.Path(match[2]).resolve())
    return found


def closure(files, own, replaced):
    """{name: path} of the distribution's libraries that the files need, and those need in turn; `replaced` has others for some."""
    system, found, open_files = system_libraries() | replaced, {}, list(files)
    while open_files:
        for name in needed(open_files.pop()):
            if name in own or name in found or RUNTIME.fullmatch(name) or WHEELS.fullmatch(name):
                continue
            if name not in system:
                sys.exit(f"wheel: wanted {name} on this machine, found none; run ./bootstrap")
            found[name] = system[name]
            open_files.append(system[name])
    return found


def own_name(name, path):
    """libcurl.so.4 becomes libcurl-1a2b3c4d.so.4."""
    stem, rest = name.split(".so", 1)
    return f"{stem}-{hashlib.sha256(path.read_bytes()).hexdigest()[:8]}.so{rest}"


@functools.cache
def owned_libraries():
    """{name: [(package, path)]} of all shared libraries that dpkg knows."""
    found = {}
    for line in output("dpkg-query", "-S", "*.so*").splitlines():
        package, _, file = line.partition(": ")
        found.setdefault(pathlib.PurePath(file).name, []).append((package, file))
    return found


def debian_package_or_none(path):
    """The package that a library came from: its licence is that package's."""
    return next((package.split(":")[0] for package, file in owned_libraries().get(path.name, [])
                 if pathlib.Path(file).resolve() == path), None)


def debian_package(path):
    if package := debian_package_or_none(path):
        return package
    sys.exit(f"wheel: wanted the Debian package of {path}, found none; its licence is not known")


def copy_licence(package, copyright_file, folder):
    """The package's copyright file, and the common licences that it only refers to."""
    text = copyright_file.read_text(errors="replace")
    (folder / f"{package}.txt").write_text(text)
    for common in pathlib.Path("/usr/share/common-licenses").iterdir():
        if re.search(rf"/{common.parent.name}/{re.escape(common.name)}(?![\w-]|\.\d)", text):
            shutil.copyfile(common, folder / f"{common.name}.txt")


def bundle(build_dir, folder, licences, curl=None):
    """Installs the program, and bundles what it needs; the packages' copyright files go to `licences`. `curl`: the folder of
    minimal_curl.py, whose library is taken in place of the distribution's."""
    program, libraries = install(build_dir, folder)
    own = [*libraries, program]
    replaced = {CURL: curl / CURL} if curl else {}
    found = closure(own, {file.name for file in libraries}, replaced)
    names = {name: own_name(name, path) for name, path in found.items()}
    bundled = folder / "lib" / BUNDLE
    bundled.mkdir()
    licences.mkdir(parents=True)
    for name, path in sorted(found.items()):
        copy = bundled / names[name]
        shutil.copyfile(path, copy)
        copy.chmod(0o755)
        patch(copy, "--set-soname", names[name], "--set-rpath", "$ORIGIN")
        rename_needed(copy, names)
        if name in replaced:
            copy_licence("curl", path.with_name("copyright"), licences)
        else:
            package = debian_package(path)
            copy_licence(package, pathlib.Path(f"/usr/share/doc/{package}/copyright"), licences)
    for file in own:
        rename_needed(file, names)
    for file in libraries:
        patch(file, "--set-rpath", ":".join(SEARCH_PATH))
    patch(program, "--set-rpath", f"$ORIGIN/../lib:$ORIGIN/../lib/{BUNDLE}")
    return sorted(names)


def rename_needed(file, names):
    options = [word for name in needed(file) if name in names for word in ("--replace-needed", name, names[name])]
    if options:
        patch(file, *options)
