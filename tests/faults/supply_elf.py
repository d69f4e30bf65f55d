"""What an ELF file of octavo must show, as built and after the steps that the wheel and the Debian package share."""
import pathlib
import re

import bundle
import common

LANDING = bytes.fromhex("f30f1efa")  # endbr64, at the start of what may be jumped to
WITH_CONTAINERS = {"liboctavo_light.so", "liboctavo_core.so"}  # libstdc++'s, in code of every room
WITHOUT_CODE = {"libcuda.so.1"}  # a name and a dependency


def own_files(folder):
    return [folder / name for name in bundle.OWN]


def search_paths(dynamic):
    return [path for line in re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", dynamic) for path in line.split(":")]


def reaches_fake_device(file):
    """A search path of the file that leads to a driver of ours: only who is started on the fake device may meet it."""
    for path in search_paths(bundle.output("readelf", "-dW", file)):
        folder = pathlib.Path(path.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", str(file.parent)))
        if file.parent.name != "fake_cuda" and (folder / "libcuda.so.1").exists():
            yield f"the fake libcuda.so.1 is on its search path, in {path}"


def complaints(file):
    """What a file does not show."""
    header, dynamic = bundle.output("readelf", "-hlW", file), bundle.output("readelf", "-dW", file)
    symbols = bundle.output("readelf", "--dyn-syms", "-W", file)
    flags = " ".join(re.findall(r"\(FLAGS(?:_1)?\)\s+(.*)", dynamic))
    if not re.search(r"Type:\s+DYN", header) or (file.name == "octavo" and "PIE" not in flags):
        yield "not position-independent"
    if "GNU_RELRO" not in header or not re.search(r"\b(BIND_)?NOW\b", flags):
        yield "relocations are not read-only before the program starts"
    stack = re.search(r"GNU_STACK(?:\s+0x\w+){5}\s+(\S+)", header)
    if not stack or "E" in stack[1]:
        yield "an executable stack"
    if re.search(r"LOAD(?:\s+0x\w+){5}\s+\S*WE", header):
        yield "memory that is written to and executed"
    if file.name not in WITHOUT_CODE:
        if "__stack_chk_fail" not in symbols:
            yield "no stack canaries"
        if LANDING not in file.read_bytes():
            yield "no landing marks for indirect jumps"
    if file.name == "liboctavo_light.so" and not re.search(r"__\w+_chk@", symbols.replace("__stack_chk", "")):
        yield "no checked memcpy and its kin"
    if file.name in WITH_CONTAINERS and not re.search(r"\bUND _ZSt\d+__glibcxx_assert_fail", symbols):
        yield "no assertions of libstdc++"
    yield from reaches_fake_device(file)
    for path in search_paths(dynamic):
        if not path.startswith("$ORIGIN"):
            yield f"a search path that is not its own folder's: '{path}'"


def check(checks, folder):
    """Returns how many files are hardened."""
    bundle.install(common.BUILD, folder)
    installed = own_files(folder)
    hardened = 0
    for file in [*own_files(common.BUILD), *installed]:
        found = list(complaints(file))
        if file in installed:
            content = file.read_bytes()
            found += [f"a folder of the build is in it: {place}" for place in (str(common.ROOT), str(common.BUILD))
                      if place.encode() in content]
            found += [f"a search path of the build tree: {path}"
                      for path in search_paths(bundle.output("readelf", "-dW", file)) if ".deps" in path]
            hardened += not found
        checks.check(not found, f"{file.name}: {'; '.join(found)}")
    return hardened
