#!/usr/bin/env python3
# test: label=integration timeout=600 gate="--short" night="" alone=night
"""Unit tests, FP8 conformance and the quick start as on CPUs of other instruction sets.

Every library that multiplies is kept within the set by its own variable: octavo's kernels (OCTAVO_CPU_ISA), oneDNN, ATen and
MKL. What this machine's CPU does not have is named as not exercised; at least SSE41 and AVX2 must be. For each set:
  unit         test_engine, test_fp8, test_nn and test_train;
  conformance  fp8_formats, fp8_recipes and fp8_gemm of tests/conformance;
  quickstart   the quick start of README.md trains and generates (fewer steps where there is no AVX-512).

With --short: on SSE41 and AVX2 the tests of GEMMs, attention and the tables, and a short training of BF16 and of FP8.
Arguments: names of sets (all when none is given), --part unit|conformance|quickstart, --short.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

from common import BUILD, OCTAVO, ROOT, require_files

# Names as oneDNN has them; what ATen and MKL call the same.
SETS = {"SSE41": ("default", "SSE4_2"), "AVX2": ("avx2", "AVX2"), "AVX512_CORE": ("avx512", "AVX512"),
        "AVX512_CORE_BF16": ("avx512", "AVX512"), "native": None}
# What Highway calls what our kernels then use: for SSE41 its baseline, since the build leaves SSE4 out.
KERNELS = {"SSE41": ("EMU128", "SSE2"), "AVX2": ("AVX2",), "AVX512_CORE": ("AVX3",)}
UNIT = ("test_engine", "test_fp8", "test_nn", "test_train")
CONFORMANCE = ("fp8_formats", "fp8_recipes", "fp8_gemm")
SHORT_FILTER = "*Matmul*:*Attention*:*Fp8Linear*:Gemm*:InstructionSet*-*reference*:*aten*"
# All 800 steps take longer than ten minutes on two cores without AVX-512.
QUICKSTART = {"SSE41": ("--max_steps", "100"), "AVX2": ("--max_steps", "200")}
SHORT_RUN = ("--max_steps", "4", "--warmup_steps", "1", "--n_layer", "2", "--eval_batches", "1", "--log_freq", "1")



def environment_of(name):
    """The variables that keep every library within the set; for native none of them, wherever they come from."""
    result = {k: v for k, v in os.environ.items()
              if k not in ("OCTAVO_CPU_ISA", "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS")}
    result["OMP_WAIT_POLICY"] = "passive"
    if SETS[name]:
        aten, mkl = SETS[name]
        result |= {"OCTAVO_CPU_ISA": name, "ONEDNN_MAX_CPU_ISA": name, "ATEN_CPU_CAPABILITY": aten,
                   "MKL_ENABLE_INSTRUCTIONS": mkl}
    return result


def sets_in_use(environment):
    """What test_engine says it runs on: {"kernels": …, "gemms": …}."""
    said = subprocess.run([BUILD / "bin" / "test_engine", "--instruction-sets"], env=environment, text=True, check=True,
                          capture_output=True).stdout
    return dict(re.findall(r"(\w+)=(\S+)", said))


def run(name, what, command, environment, cwd=None):
    """True when the command ends well; otherwise its last lines are printed."""
    start = time.monotonic()
    done = subprocess.run(command, env=environment, cwd=cwd, text=True, errors="replace",
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(f"{name}: {what} {'ok' if done.returncode == 0 else f'FAILED with {done.returncode}'}, "
          f"{time.monotonic() - start:.0f} s", flush=True)
    if done.returncode != 0:
        print(done.stdout[-6000:])
    return done.returncode == 0


def train_shortly(name, environment, used):
    """A few steps of the quick start's model in BF16 and in FP8, and a text; the receipt must name the sets in use."""
    good = True
    for precision in ("bf16", "fp8"):
        with tempfile.TemporaryDirectory() as folder:
            good &= run(name, f"train {precision}",
                        [OCTAVO, "train", ROOT / "configs" / "quickstart.yaml", "--dataset", ROOT / "docs", *SHORT_RUN,
                         "--mixed_precision", precision], environment, folder)
            good &= run(name, f"generate after {precision}",
                        [OCTAVO, "generate", "--prompt", "namespace octavo", "--max_new_tokens", "20",
                         "--mixed_precision", precision], environment, folder)
            receipts = list(pathlib.Path(folder).glob("runs/*/receipt.json"))
            found = json.loads(receipts[0].read_text()).get("instruction_sets") if receipts else None
            if found != used:
                print(f"{name}: receipt: wanted {used}, found {found}")
                good = False
    return good


def test_set(name, environment, used, part, short):
    good = True
    if part in (None, "unit"):
        programs = ("test_engine",) if short else UNIT
        flags = [f"--gtest_filter={SHORT_FILTER}"] if short else []
        for program in programs:
            good &= run(name, program, [BUILD / "bin" / program, "--gtest_brief=1", *flags], environment)
    if part in (None, "conformance") and not short:
        for script in CONFORMANCE:
            good &= run(name, script, [ROOT / "tests" / "conformance" / f"{script}.py"], environment)
    if part in (None, "quickstart"):
        if short:
            good &= train_shortly(name, environment, used)
        else:
            good &= run(name, "quickstart", [ROOT / "tests" / "integration" / "quickstart.py", *QUICKSTART.get(name, ())],
                        environment)
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("sets", nargs="*", metavar="SET", help=", ".join(SETS))
    parser.add_argument("--part", choices=("unit", "conformance", "quickstart"))
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args()
    unknown = set(options.sets) - set(SETS)
    if unknown:
        sys.exit(f"wanted sets of {', '.join(SETS)}, found {', '.join(sorted(unknown))}")
    require_files()
    wanted = options.sets or (["SSE41", "AVX2"] if options.short else list(SETS))
    exercised, failed, absent = [], [], []
    for name in wanted:
        environment = environment_of(name)
        used = sets_in_use(environment)
        here = name == "native" or used["gemms"] == name and used["kernels"] in KERNELS.get(name, (used["kernels"],))
        if not here:
            print(f"{name}: not exercised, this CPU has no more than {used['gemms']} (kernels: {used['kernels']})")
            absent.append(name)
            continue
        print(f"{name}: kernels {used['kernels']}, GEMMs {used['gemms']}", flush=True)
        exercised.append(name)
        if not test_set(name, environment, used, options.part, options.short):
            failed.append(name)
    print(f"exercised={','.join(exercised)} absent={','.join(absent) or 'none'} failed={','.join(failed) or 'none'}")
    sys.exit(1 if failed or {"SSE41", "AVX2"} & set(absent) else 0)


if __name__ == "__main__":
    main()
