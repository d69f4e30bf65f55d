"""What the scripts for aarch64 share: a sysroot of Debian's arm64 packages, the wheels for that processor, and QEMU's user mode.

Under QEMU a program reads this machine's /proc and /sys, and what libtorch's libraries look for there on Arm it would not find (one
of them, cpuinfo, then writes through a null pointer). QEMU takes files of the sysroot before the machine's own, so that those few
that differ lie there: they describe two cores of a Neoverse N1.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

from common import BUILD, ROOT

FOLDER = BUILD.parent / "aarch64"
SYSROOT, VENV = FOLDER / "sysroot", FOLDER / "venv"
PYTHON = "3.11"  # whose wheels are taken; nothing of Python runs
PACKAGES = VENV / "lib" / f"python{PYTHON}" / "site-packages"
TOOLS = ("apt-get", "clang++", "cmake", "dpkg-deb", "ld.lld", "ninja", "pkg-config", "qemu-aarch64")
# For a compiler from scratch, beside the libraries of packaging/debian-packages.txt.
COMPILERS = ("libc6-dev", "libstdc++-12-dev")
NOT_NEEDED = ("dpkg-dev", "libclang-rt-14-dev")  # of packages, and the sanitizers'
GLIBCS = range(17, 37)  # of the wheels, which are for 2.N or later
CORES = 2
CPUINFO = """\
processor	: {core}
BogoMIPS	: 243.75
Features	: fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp ssbs
CPU implementer	: 0x41
CPU architecture: 8
CPU variant	: 0x3
CPU part	: 0xd0c
CPU revision	: 1

"""
MIDR = "0x00000000413fd0c1\n"  # the register that says the same


def fail(text):
    print(f"{pathlib.Path(sys.argv[0]).stem}: {text}")
    print("cross_built=0 tests=0 failed=0")
    sys.exit(1)


def run(what, command, **more):
    """Its output. Ends the script when it fails."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **more)
    if done.returncode != 0:
        print(done.stdout[-6000:])
        fail(f"{what} ended with {done.returncode}")
    return done.stdout


def require_tools():
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        fail(f"wanted {' '.join(missing)}, found none; run ./bootstrap")
    FOLDER.mkdir(parents=True, exist_ok=True)


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
    describe_processor()
    made.write_text(wanted)
    print(f"sysroot: {len(packages)} packages", flush=True)


def describe_processor():
    (SYSROOT / "proc").mkdir()
    (SYSROOT / "proc" / "cpuinfo").write_text("".join(CPUINFO.format(core=core) for core in range(CORES)))
    for core in range(CORES):
        folder = SYSROOT / "sys" / "devices" / "system" / "cpu" / f"cpu{core}" / "regs" / "identification"
        folder.mkdir(parents=True)
        (folder / "midr_el1").write_text(MIDR)


def locked_for_arm():
    """The rows of the lock's set build that are for aarch64 too, without their markers: pip would ask this machine for those."""
    rows = [row for row in (ROOT / "packaging" / "requirements.lock").read_text().splitlines() if row.endswith(" # build")]
    return [re.sub(r" ; .*?(?= --hash)", "", row) for row in rows if '"x86_64"' not in row]


def make_environment():
    """What ./bootstrap build would install on aarch64, checked by the lock's hashes."""
    wanted, made = "\n".join(locked_for_arm()) + "\n", VENV / "wanted.lock"
    if made.exists() and made.read_text() == wanted:
        print(f"wheels: {VENV} is there already")
        return
    shutil.rmtree(VENV, ignore_errors=True)
    VENV.mkdir(parents=True)
    (VENV / "names.txt").write_text(wanted)
    platforms = [word for minor in GLIBCS for word in ("--platform", f"manylinux_2_{minor}_aarch64")]
    run("pip install", [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--no-compile",
                        "--require-hashes", "--only-binary=:all:", "--implementation", "cp", "--python-version", PYTHON, *platforms,
                        "--platform", "manylinux2014_aarch64", "--target", PACKAGES, "-r", VENV / "names.txt"])
    made.write_text(wanted)
    print(f"wheels: {len(wanted.splitlines())}", flush=True)


def build(folder, jobs, targets, *definitions):
    run("cmake", ["cmake", "-S", ROOT, "-B", folder, "-G", "Ninja", f"-DOCTAVO_SYSROOT={SYSROOT}",
                  f"-DCMAKE_TOOLCHAIN_FILE={ROOT}/cmake/aarch64.cmake", "-DCMAKE_BUILD_TYPE=Release",
                  "-DCMAKE_UNITY_BUILD=ON", "-DOCTAVO_WERROR=ON", *definitions])
    run("the build", ["ninja", "-C", folder, "-j", str(jobs), *targets])
    machine = (folder / "bin" / "octavo").read_bytes()[18:20]
    if machine != b"\xb7\x00":  # EM_AARCH64
        fail(f"wanted a program for aarch64, found machine {machine.hex()} in its header")


def emulated(program, processor="max"):
    """The command for a built program on one of QEMU's processors; `max` has all instruction sets that QEMU knows."""
    return ["qemu-aarch64", "-cpu", processor, "-L", SYSROOT, program]
