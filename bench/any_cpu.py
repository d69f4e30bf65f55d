#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# bench: measures="src/engine src/nn src/models src/optim src/train"
"""GPT-2 124M, a training step in FP32, BF16 and FP8 (rehearsal, mxfp8) and PyTorch's BF16 autocast, as on CPUs of other
instruction sets: AVX2, AVX-512, AVX-512 with BF16 units, AMX.

Every library that multiplies is kept within the set by its own variable: octavo's kernels (OCTAVO_CPU_ISA), oneDNN, ATen and
MKL. Sets that this CPU does not have are listed as unrun. Every side lives in a process of its own that sleeps until its turn;
a turn is a few steps, the order is turned round after each, and a ratio is the median of those within a turn.
BF16 and FP8 are over octavo's own FP32 step (time, less is better); over_pytorch is PyTorch's step over octavo's BF16 step.

usage: any_cpu.py [SET]… [--turns N] [--no-pytorch] [--short]
       any_cpu.py --profile [SET]…    where the time of a step goes, a table for each set
--short: the best set alone, two turns of one step, without PyTorch.
"""
import argparse
import os
import re
import statistics
import subprocess
import sys
import time

import step_process
from gpt2_vs_pytorch import PYTORCH_WORKER
from step_process import BATCH, LENGTH, STEP_BENCH, THREADS, StepProcess

STEPS, WARM_UP, PROFILE_STEPS = 2, 2, 3
GB_PER_WORKER = 3.6
LONGEST_PYTORCH_STEP = 60  # seconds; a set on which it takes longer gets a single step of it
VARIABLES = ("OCTAVO_CPU_ISA", "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS")
# The values of the variables, and the least of what oneDNN then says it uses. octavo's kernels have nothing for AMX.
SETS = {"avx2": (("AVX2", "AVX2", "avx2", "AVX2"), "AVX2"),
        "avx512": (("AVX512_CORE", "AVX512_CORE", "avx512", "AVX512"), "AVX512_CORE"),
        "avx512_bf16": (("AVX512_CORE_BF16", "AVX512_CORE_BF16", "avx512", "AVX512"), "AVX512_CORE_BF16"),
        "amx": ((None, "AVX512_CORE_AMX", None, None), "AVX512_CORE_AMX")}
SIDES = {"fp32": ("--precision", "fp32"), "bf16": ("--precision", "bf16"), "fp8": ("--recipe", "mxfp8")}
# At most, over FP32: BF16 and FP8. With AVX-512's BF16 units there is no target.
WITHOUT_UNITS = ("avx2", "avx512")
TARGET_BF16, TARGET_FP8, TARGET_AMX_BF16, TARGET_AMX_FP8 = 1.15, 1.30, 0.5, 0.55
TARGETS = {name: (TARGET_BF16, TARGET_FP8) for name in WITHOUT_UNITS} | {"amx": (TARGET_AMX_BF16, TARGET_AMX_FP8)}
TARGET_PYTORCH = 3.0  # at least, without BF16 units


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(SETS)} [all that this CPU has]")
    parser.add_argument("--turns", type=int, default=5, help="at least 5 for a result that counts [5]")
    parser.add_argument("--no-pytorch", action="store_true", help="leave PyTorch out")
    parser.add_argument("--short", action="store_true", help="the best set alone, two turns of one step, without PyTorch")
    parser.add_argument("--profile", action="store_true", help="print where the time of a step goes, and no ratios")
    options = parser.parse_args()
    unknown = sorted(set(options.sets) - set(SETS))
    if unknown or options.turns < 1:
        parser.error(f"wanted sets of {', '.join(SETS)} and turns >= 1, found {', '.join(unknown) or options.turns}")
    return options


def environment_of(name):
    """The variables that keep every library within the set, and none that came from outside."""
    kept = {key: value for key, value in os.environ.items() if key not in VARIABLES}
    values = {key: value for key, value in zip(VARIABLES, SETS[name][0]) if value}
    return kept | values | {"OMP_NUM_THREADS": str(THREADS)}


def is_here(name):
    """Whether this CPU has the set: oneDNN uses no less when it is allowed no more."""
    said = subprocess.run([STEP_BENCH, "--instruction-sets"], env=environment_of(name), text=True, check=True,
                          capture_output=True).stdout
    used = dict(re.findall(r"(\w+)=(\S+)", said))
    if "gemms" not in used:
        sys.exit(f"wanted gemms= from {STEP_BENCH.name} --instruction-sets, found '{said}'; build it from this tree")
    return used["gemms"] == SETS[name][1]


def started(side, set_name):
    command = step_process.octavo(*SIDES[side]) if side in SIDES else step_process.pytorch(PYTORCH_WORKER, "eager")
    return StepProcess(side, command, environment_of(set_name))


def measure(set_name, options):
    """{side: seconds of a step in each turn} of one set."""
    sides = [*SIDES] + ([] if options.no_pytorch else ["pytorch"])
    step_process.check_machine(len(sides), GB_PER_WORKER, "try --no-pytorch")
    steps = 1 if options.short else STEPS
    workers, turns = {}, {side: [] for side in sides}
    for side in sides:  # one at a time: the start of one would slow the warm-up of another
        workers[side] = started(side, set_name)
        first = workers[side].turn(1)[0]
        if side == "pytorch" and first > LONGEST_PYTORCH_STEP:
            print(f"{set_name}: a step of PyTorch takes {first:.0f} s: only this one counts", flush=True)
            turns[side] = [first] * options.turns
            workers.pop(side).end()
        elif not options.short:
            workers[side].turn(WARM_UP - 1)
    for index in range(options.turns):
        for side in list(workers) if index % 2 == 0 else reversed(list(workers)):
            turns[side].append(statistics.median(workers[side].turn(1 if side == "pytorch" else steps)))
        print(f"{set_name} turn {index + 1}: " + "  ".join(
            f"{side} {BATCH * LENGTH / turns[side][index]:.0f} tok/s" for side in sides), flush=True)
    for worker in workers.values():
        worker.end()
    return turns


def ratios_of(turns):
    def median(above, below):
        return statistics.median(x / y for x, y in zip(turns[above], turns[below]))

    found = {"bf16_over_fp32": median("bf16", "fp32"), "fp8_over_fp32": median("fp8", "fp32")}
    if "pytorch" in turns:
        found["over_pytorch"] = median("pytorch", "bf16")
    return found


def missed(set_name, ratios):
    """The names of the ratios that miss their targets."""
    result = [key for key, most in zip(("bf16_over_fp32", "fp8_over_fp32"), TARGETS.get(set_name, ())) if ratios[key] > most]
    if set_name in WITHOUT_UNITS and ratios.get("over_pytorch", TARGET_PYTORCH) < TARGET_PYTORCH:
        result.append("over_pytorch")
    return result


def worst(found):
    """Over the sets without BF16 units, under the names that the targets have."""
    mine = [ratios for name, ratios in found.items() if name in WITHOUT_UNITS]
    for key, choose in (("bf16_over_fp32", max), ("fp8_over_fp32", max), ("over_pytorch", min)):
        values = [ratios[key] for ratios in mine if key in ratios]
        if values:
            yield f"{key}={choose(values):.3f}"


def rows_of_profile(set_name, side):
    """{part: ms of a step} as step_bench prints it."""
    said = subprocess.run([STEP_BENCH, str(BATCH), str(LENGTH), "--profile", "--steps", str(PROFILE_STEPS), *SIDES[side]],
                          env=environment_of(set_name), text=True, check=True, capture_output=True).stdout
    return {part: float(ms) for part, ms in re.findall(r"^\| (.+?) \| ([\d.]+) \| [\d.]+% \|$", said, re.M)}


def print_profile(set_name):
    columns = {side: rows_of_profile(set_name, side) for side in SIDES}
    parts = sorted(set().union(*columns.values()), key=lambda part: (
        part == "step", -max(rows.get(part, 0) for rows in columns.values())))
    print(f"\n{set_name}: ms per step\n\n| part | {' | '.join(SIDES)} |\n|---|{'---|' * len(SIDES)}")
    for part in parts:
        print(f"| {part} | " + " | ".join(f"{rows[part]:.1f}" if part in rows else "" for rows in columns.values()) + " |")
    sys.stdout.flush()


def main():
    options = arguments()
    step_process.check_machine(1, GB_PER_WORKER, "stop other programs")
    here = [name for name in SETS if is_here(name)]
    wanted = [name for name in options.sets or SETS if name in here]
    unrun = [name for name in options.sets or SETS if name not in here]
    for name in unrun:
        print(f"{name}: not run, this CPU does not have it")
    if options.short:
        options.turns, options.no_pytorch, wanted = 2, True, wanted[-1:]
    if options.profile:
        for name in wanted:
            print_profile(name)
        return 0
    start, found, short = time.monotonic(), {}, []
    for name in wanted:
        turns = measure(name, options)
        found[name] = ratios_of(turns)
        short += [f"{name}:{key}" for key in missed(name, found[name])]
        print(f"{name}: " + " ".join(f"{key}={value:.3f}" for key, value in found[name].items()) + " " + " ".join(
            f"{side}_tok_s={BATCH * LENGTH / statistics.median(seconds):.0f}" for side, seconds in turns.items()), flush=True)
    each = [f"{name}_{key}={value:.3f}" for name, ratios in found.items() for key, value in ratios.items()]
    print(*worst(found), *each, f"unrun={','.join(unrun) or 'none'} missed={','.join(short) or 'none'} "
          f"turns={options.turns} taken_again={StepProcess.taken_again} minutes={(time.monotonic() - start) / 60:.0f}")
    return 1 if short or not found else 0


if __name__ == "__main__":
    sys.exit(main())
