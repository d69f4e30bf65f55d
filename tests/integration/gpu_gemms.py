#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate="--short" night=""
"""FP8 GEMMs and the other operations of the CUDA path, on the fake CUDA device.

GEMMs: every recipe that a compute capability has x {forward, input gradient, weight gradient} x backend, odd shapes
included. Matrices are quantized and laid out in the CPU's memory by the backend's own code and copied to the device; the real
libtorch_cuda (or Transformer Engine) makes the call, the host computes what cuBLASLt was told, and the result must be the
reference's up to accumulation, the call the one that was meant. Wrong layouts, unpadded, unswizzled and swapped scales made on
purpose must be caught: refused, or wrong numbers.
operations: every operation of the aten backend once: accepted, and the host never waits. Kernels do not run there.

usage: gpu_gemms.py [--short] [BACKEND …]    --short: one compute capability for each way that GEMMs are called
Last line: cases=N failed=0 caught=M of M
"""
import os
import re
import subprocess
import sys

import fake_cuda
import gpu_cases

TOOL = fake_cuda.LIBRARIES.parent / "bin" / "gpu_gemms_tool"
BACKENDS = ["aten", "te"]
LAST_LINE = re.compile(r"^cases=(\d+) failed=(\d+) caught=(\d+) of (\d+)\s*\Z", re.MULTILINE)


def run(arguments, **options):
    """The four results of one process. A process that ends without its last line is one failed case."""
    base = os.environ | {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "2"}
    done = subprocess.run([TOOL, *arguments], env=fake_cuda.environment(base=base, **options), text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900, check=False)
    found = LAST_LINE.search(done.stdout)
    print(f"{' '.join(arguments)} on {options['capability']}: "
          f"{found.group(0).strip() if found else f'ended with {done.returncode}'}", flush=True)
    if found is None or done.returncode != 0:
        print(done.stdout[-6000:])
    elif arguments[0] == "operations" and os.environ.get("OCTAVO_VERBOSE"):
        print(done.stdout)
    return [int(number) for number in found.groups()] if found else [1, 1, 0, 0]


def main():
    fake_cuda.require_libraries()
    if not TOOL.exists():
        raise SystemExit(f"wanted {TOOL}, found none; ninja gpu_gemms_tool")
    capabilities = gpu_cases.SHORT_CAPABILITIES if "--short" in sys.argv else gpu_cases.CAPABILITIES
    backends = [word for word in sys.argv[1:] if word != "--short"] or BACKENDS
    runs = [(["operations"], dict(capability=capability)) for capability in (80, *capabilities)]
    runs += [([backend, str(capability)], dict(capability=capability, compute=True))
             for backend in backends for capability in capabilities]
    runs.append((["rehearsal", "80"], dict(capability=80, compute=True)))
    totals = [sum(column) for column in zip(*(run(arguments, **options) for arguments, options in runs))]
    cases, failed, caught, mutations = totals
    print(f"cases={cases} failed={failed} caught={caught} of {mutations}")
    sys.exit(1 if failed or caught != mutations or not mutations else 0)


if __name__ == "__main__":
    main()
