#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=900 night="" measures="src/kernels"
"""Our CUDA kernels as nvcc compiles them, for every architecture: what can be known of them without a GPU.

usage: kernels_sass.py [--nvcc FILE] [--architectures sm_89,sm_90a,...]

- ptxas -v: no register is spilled, and no array of a thread is in (slow) local memory;
- SASS (nvdisasm): every kernel that streams tensors has 128-bit loads and, where it writes any, 128-bit stores;
- PTX: AdamW and RoPE have as many fused multiply-adds as their text says (std::fma) and nothing approximate or flushed to
  zero, so that a device gives the host's bits.
"""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
ARCHITECTURES = ["sm_89", "sm_90a", "sm_100f", "sm_103", "sm_120"]
FLAGS = ["-std=c++20", "-O3", "-fmad=false", "--expt-relaxed-constexpr", "-ccbin", "clang++", f"-I{ROOT / 'src'}"]
SOURCE = ROOT / "src" / "kernels" / "launches.cu"
KERNELS = 37
# These read a few numbers of every block, or write none.
NARROW_LOADS = ("SumLossesKernel", "JoinFp8StatsKernel")
NO_WIDE_STORES = NARROW_LOADS + ("Fp8StatsKernel",)
LANE = 8
# std::fma in the text, for each of the eight elements of a thread.
FUSED = {"AdamWKernel": 2 * LANE, "RopeKernel": 2 * LANE}


def tool(name, given=None):
    """nvcc and its companions: those given, of the environment of ./bootstrap, or on the path."""
    places = [pathlib.Path(given).parent] if given else []
    places += sorted(ROOT.glob(".deps/venv/lib/python3*/site-packages/nvidia/cu13/bin"))
    for place in places:
        if (place / name).is_file():
            return str(place / name)
    return shutil.which(name)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"kernels_sass: {' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr


def kernel_of(mangled):
    """NAME<arguments as they are mangled>"""
    return re.sub(r".*on_deviceINS0_\d+(\w+?Kernel)", r"\1 ", mangled)[:60]


def check_registers(log, say):
    rows = re.findall(r"Function properties for (\S+)\n\s+(\d+) bytes stack frame, (\d+) bytes spill stores, "
                      r"(\d+) bytes spill loads\n.*?Used (\d+) registers", log)
    if len(rows) != KERNELS:
        say(f"wanted {KERNELS} kernels in ptxas's output, found {len(rows)}")
    for mangled, stack, stores, loads, _ in rows:
        if (int(stack), int(stores), int(loads)) != (0, 0, 0):
            say(f"{kernel_of(mangled)}: {stack} bytes of stack, {stores} and {loads} bytes spilled")
    return len(rows), max((int(row[4]) for row in rows), default=0)


def check_sass(text, say):
    """How many 128-bit loads and stores there are in all."""
    loads = stores = 0
    for mangled, body in re.findall(r"^\.text\.(_ZN6octavo\S+):\n(.*?)(?=^\.text\.|\Z)", text, re.M | re.S):
        wide_loads, wide_stores = len(re.findall(r"LDG\.E\.128", body)), len(re.findall(r"STG\.E\.128", body))
        if wide_loads == 0 and not any(name in mangled for name in NARROW_LOADS):
            say(f"{kernel_of(mangled)}: no 128-bit load")
        if wide_stores == 0 and not any(name in mangled for name in NO_WIDE_STORES):
            say(f"{kernel_of(mangled)}: no 128-bit store")
        loads, stores = loads + wide_loads, stores + wide_stores
    return loads, stores


def check_ptx(text, say):
    for mangled, body in re.findall(r"\.entry (_ZN6octavo\S+?)\((.*?)(?=\.entry|\Z)", text, re.S):
        for name, wanted in FUSED.items():
            if name not in mangled:
                continue
            fused = len(re.findall(r"\bfma\.rn\.f32", body))
            if fused == 0 or fused % wanted != 0:
                say(f"{kernel_of(mangled)}: wanted a multiple of {wanted} fma.rn.f32, found {fused}")
            for word in ("approx", ".ftz", "mad.f32"):
                if word in body:
                    say(f"{kernel_of(mangled)}: {word} in its PTX")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--nvcc")
    parser.add_argument("--architectures", default=",".join(ARCHITECTURES))
    given = parser.parse_args()
    nvcc, nvdisasm = tool("nvcc", given.nvcc), tool("nvdisasm", given.nvcc)
    if nvcc is None or nvdisasm is None:
        print("nvcc or nvdisasm not found: run ./bootstrap, or give --nvcc; nothing was checked")
        print("skipped=1")
        sys.exit(1 if os.environ.get("CI") == "true" else 0)
    problems, kernels, registers, loads, stores = [], 0, 0, 0, 0
    architectures = given.architectures.split(",")
    with tempfile.TemporaryDirectory() as folder:
        for architecture in architectures:
            def say(text, architecture=architecture):
                problems.append(f"{architecture}: {text}")
            made = pathlib.Path(folder) / architecture
            made.mkdir()
            log = run(nvcc, *FLAGS, f"-arch={architecture}", "--resource-usage", "--keep", "--keep-dir", made, "-cubin", "-o", made / "k.cubin", SOURCE)
            count, most = check_registers(log, say)
            wide_loads, wide_stores = check_sass(run(nvdisasm, "-c", made / "k.cubin"), say)
            check_ptx(next(made.glob("launches*.ptx")).read_text(), say)
            kernels, registers = kernels + count, max(registers, most)
            loads, stores = loads + wide_loads, stores + wide_stores
            print(f"{architecture}: {count} kernels, at most {most} registers, {wide_loads} 128-bit loads, {wide_stores} stores")
    print("\n".join(problems))
    print(f"architectures={len(architectures)} kernels={kernels} most_registers={registers} loads128={loads} stores128={stores} "
          f"problems={len(problems)}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
