#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate="--short" night=""
"""What src/engine/te asks of Transformer Engine, twice.

accept: the real library, on the fake CUDA device of each compute capability that has FP8: it accepts each of our quantize, norm,
activation, swizzle, rotary, update and GEMM calls, the recorded GEMMs are the ones that were meant, and wrong uses are
refused by our own checks. Kernels do not run there, but NVRTC compiles the norms, while CUDA_HOME names headers of no use.
steps: a stand-in for the library in the CPU's memory (te_double/), with the same layouts: whole training steps of a small
GPT-2, Llama and Qwen2.5 by every recipe, of all weights, of adapters and recomputed, in every bit the same as the rehearsal on the CPU.
library: what is said of a library that is missing, not one, or of another version.

usage: te_calls.py [--short]    --short: one compute capability for each set of kernels, each model in one way
Last line: cases=N failed=0
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import fake_cuda
import gpu_cases

BUILD = fake_cuda.LIBRARIES.parent
TOOL = BUILD / "bin" / "te_calls_tool"
DOUBLE = BUILD / "lib" / "libte_double.so"


def run(name, arguments, variables):
    """Cases and failures of one process. A process that ends without its last line is one failed case."""
    done = subprocess.run([TOOL, *arguments], env=variables | {"OMP_WAIT_POLICY": "passive"}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=500, check=False)
    found = re.search(r"^cases=(\d+) failed=(\d+)\s*\Z", done.stdout, re.MULTILINE)
    print(f"{name}: {found.group(0).strip() if found else f'ended with {done.returncode}'}")
    if found is None or done.returncode != 0:
        print(done.stdout)
    return (int(found.group(1)), int(found.group(2))) if found else (1, 1)


def check_library(plain):
    """Cases and failures of looking for the library."""
    cases = failed = 0

    def check(path, wanted):
        nonlocal cases, failed
        said = subprocess.run([TOOL, "library"], env=plain | {"OCTAVO_TE_LIBRARY": str(path)}, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100, check=False).stdout
        cases += 1
        if not all(part in said for part in wanted):
            failed += 1
            print(f"FAILED library {path}: wanted {wanted} in: {said}")

    check("/nowhere/libtransformer_engine.so", ["/nowhere/", "no such file", "OCTAVO_TE_LIBRARY"])
    check(BUILD / "lib" / "liboctavo_light.so", ["lacks nvte_create_tensor", "2.18"])
    with tempfile.TemporaryDirectory() as folder:
        for version, wanted in (("2.18", ["2.18"]), ("2.19.1", ["2.19.1"]), ("2.30.0", ["2.30.0"]),
                                ("2.17.1", ["2.17.1", "wanted 2.18"]), ("1.20.0", ["1.20.0", "wanted 2.18"]),
                                ("3.0.0", ["3.0.0", "wanted 2.18"])):
            packages = pathlib.Path(folder) / version
            library = packages / "transformer_engine" / "wheel_lib" / "libtransformer_engine.so"
            library.parent.mkdir(parents=True)
            (packages / f"transformer_engine_cu13-{version}.dist-info").mkdir()
            shutil.copy(DOUBLE, library)
            check(library, wanted)
    print(f"library: cases={cases} failed={failed}")
    return cases, failed


def main():
    fake_cuda.require_libraries()
    for path in (TOOL, DOUBLE):
        if not path.exists():
            raise SystemExit(f"wanted {path}, found none; ninja te_calls_tool")
    plain = {key: value for key, value in os.environ.items() if key not in ("OCTAVO_TE_LIBRARY", "NVTE_CUDA_INCLUDE_DIR")}
    cases, failed = check_library(plain)
    with tempfile.TemporaryDirectory() as cuda_home:
        headers = pathlib.Path(cuda_home) / "include" / "cuda_runtime.h"  # of a CUDA that does not fit the wheel's NVRTC
        headers.parent.mkdir()
        headers.write_text("#error another CUDA\n")
        short = "--short" in sys.argv
        for capability in gpu_cases.SHORT_CAPABILITIES if short else gpu_cases.CAPABILITIES:
            double = plain | {"OCTAVO_TE_LIBRARY": str(DOUBLE), "OCTAVO_TE_DOUBLE_CAPABILITY": str(capability)}
            fake = fake_cuda.environment(capability=capability, base=plain | {"CUDA_HOME": cuda_home})
            for name, arguments, variables in (("accept", ["accept", str(capability)], fake), ("steps", ["steps", "usual" if short else "all"], double)):
                found = run(f"{name} {capability}", arguments, variables)
                cases += found[0]
                failed += found[1]
    print(f"cases={cases} failed={failed}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
