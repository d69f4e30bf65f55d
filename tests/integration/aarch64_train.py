#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=7200 night="" alone=night measures="src cmake packaging/requirements.lock"
"""The whole program for aarch64: built by clang against libtorch's wheel for that processor, it trains under QEMU.

Not among it are octavo's own CUDA kernels, whose compiler runs on the machine that it is for, and the SBOM.

oneDNN has no build for aarch64 that is in reach, so that libtorch's BLAS (NVIDIA's NVPL) multiplies, in FP32 over BF16 values. Each
run is made by this machine's program too. The sums of a GEMM come in another order there: the losses must agree to a tolerance that
is far below what a wrong scale, layout or rounding makes of them, and what ran must be said: no kernel but `cpu/blas_fp32` and those
of the rehearsal. The unit tests of src/engine run as well, where the GEMMs and quantizers meet the plain ones bit by bit.

usage: aarch64_train.py [--jobs N] [--tests FILTER]
The last line is cross_built=1 trained=… worst_loss_difference=… tests=… failed=0.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from aarch64_tools import FOLDER, VENV, build, emulated, fail, make_environment, make_sysroot, require_tools, run
from common import OCTAVO, TEXT, require_files

PROGRAMS = FOLDER / "whole" / "bin"
TARGETS = ["octavo", "octavo_light", "octavo_core", "octavo_arrow", "octavo_s3", "octavo_cuda", "octavo_fake_cuda", "octavo_fake_cuda_driver", "test_engine"]
STEPS = 20
RUN = ["--model_name", "custom", "--n_layer", "2", "--n_head", "2", "--n_embd", "64", "--max_seq_length", "64", "--batch_size", "1",
       "--eval_freq", "0", "--sample_freq", "0", "--checkpoint_freq", "0", "--seed", "7", "--max_steps", str(STEPS), "--num_threads", "1"]
KINDS = {"fp32": ["--mixed_precision", "fp32"], "bf16": ["--mixed_precision", "bf16"],
         **{recipe: ["--use_fp8", "--fp8_recipe", recipe] for recipe in ("delayed", "current", "rowwise", "mxfp8", "nvfp4")}}
# Of test_engine: GEMMs, quantizers and linear layers in FP8. All would take QEMU hours.
TESTS = "Gemm.*:InstructionSet.*:Fp8Kernels.*:Engine/Matmul*:Engine/Fp8Quantize*:Engine/Fp8LinearValues*:Engine/Fp4Linear*"
# Relative, over 20 steps. FP32: rounding of sums of 64 to 256 terms, grown by the steps. Else BF16 results of sums in another
# order, of which some round to the other neighbour (2^-9); a scale that is off by a power of two moves a loss by percents.
MOST = {"fp32": 1e-5}
MOST_ELSE = 2e-3
RAN = {"fp32": {"matmul": "aten"}, "bf16": {"matmul": "cpu/blas_fp32"}}
RAN_ELSE = {"matmul": "cpu/blas_fp32", "fp8_linear": "cpu/rehearsal_fp32"}
# Of QEMU's: `max` has all instruction sets that it knows, SVE2 and BF16 among them, the other NEON alone, as Graviton 2 and Altra.
PROCESSORS = {"max": list(KINDS), "neoverse-n1": ["fp32", "bf16", "delayed"]}


def train(program, folder, kind):
    """The losses of all steps, and {operation: implementation} of the receipt."""
    folder.mkdir()
    (folder / "text.txt").write_bytes(TEXT.read_bytes()[:200_000])
    run(f"train, {folder.name}", [*program, "train", *RUN, *KINDS[kind], "--dataset", "text.txt", "--run_name", "first"], cwd=folder,
        env=os.environ | {"OMP_WAIT_POLICY": "passive"})  # without it the program starts itself again, which QEMU cannot do
    made = folder / "runs" / "first"
    records = map(json.loads, (made / "metrics.jsonl").read_text().splitlines())
    operations = json.loads((made / "receipt.json").read_text())["operations"]
    return [record["train/loss"] for record in records if "train/loss" in record], {each["op"]: each["ran"] for each in operations}


def compare(kind, here, there, ran):
    """The largest relative difference of the losses, and what is wrong."""
    wanted = RAN.get(kind, RAN_ELSE)
    if not wanted.items() <= ran.items():
        return 0.0, [f"wanted {wanted} of the receipt, found {ran}"]
    if len(here) != STEPS or len(there) != STEPS or there[-1] >= there[0]:
        return 0.0, [f"wanted {STEPS} losses that fall, found {there} (here {here})"]
    worst, most = max(abs(b / a - 1) for a, b in zip(here, there)), MOST.get(kind, MOST_ELSE)
    return worst, [f"losses differ by {worst:.1e}, wanted at most {most:.0e}"] if worst > most else []


def trained(folder, kind, processor):
    """The difference of the losses to this machine's, what is wrong, and a line about both."""
    here, _ = train([OCTAVO], folder / f"{kind}-{processor}-here", kind)
    there, ran = train(emulated(PROGRAMS / "octavo", processor), folder / f"{kind}-{processor}", kind)
    difference, wrong = compare(kind, here, there, ran)
    line = f"{kind} on {processor}: last loss {there[-1]:.6f}, here {here[-1]:.6f}, at most {difference:.1e} apart"
    return difference, wrong, "; ".join([line, *wrong])


def unit_tests(names, folder):
    """(tests, failed) of test_engine; what skips itself, as without oneDNN, does not count."""
    report = folder / "engine.json"
    done = subprocess.run([*emulated(PROGRAMS / "test_engine"), f"--gtest_output=json:{report}", f"--gtest_filter={names}"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors="replace", env=os.environ | {"TMPDIR": str(folder)})
    counts = json.loads(report.read_text()) if report.exists() else {"testsuites": [], "failures": 1}
    completed = sum(test["result"] == "COMPLETED" for suite in counts["testsuites"] for test in suite["testsuite"])
    if done.returncode != 0:
        print("\n".join([line for line in done.stdout.splitlines() if "[       OK ]" not in line and "[ RUN      ]" not in line][-80:]))
    return completed, max(counts["failures"], done.returncode != 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--tests", default=TESTS, help="of test_engine, as --gtest_filter takes them")
    given = parser.parse_args()
    require_files()
    require_tools()
    make_sysroot()
    make_environment()
    build(FOLDER / "whole", given.jobs, TARGETS, f"-DOCTAVO_VENV={VENV}")
    runs = [(kind, processor) for processor, kinds in PROCESSORS.items() for kind in kinds]
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(given.jobs) as pool:
        folder, worst, failed = pathlib.Path(name), 0.0, 0
        longest = pool.submit(unit_tests, given.tests, folder)
        for difference, wrong, line in pool.map(lambda each: trained(folder, *each), runs):
            worst, failed = max(worst, difference), failed + bool(wrong)
            print(line, flush=True)
        tests, tests_failed = longest.result()
    print(f"cross_built=1 trained={len(runs) - failed} worst_loss_difference={worst:.1e} tests={tests} failed={failed + tests_failed}")
    sys.exit(1 if failed or tests_failed or tests == 0 else 0)


if __name__ == "__main__":
    main()
