#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# bench:
"""GPT-2 124M, a training step in FP8: every recipe, octavo's own BF16 and torchao's emulated FP8, taking turns.

Every side lives in a process of its own that sleeps until its turn; a turn is a few steps. BF16 has a turn before and
after each recipe, because the machine's speed drifts by more within a round than the recipes differ: a recipe's ratio
is to the BF16 steps on either side of it, and the result is the median over rounds. torchao's step is tensorwise with
dynamic scales, which is our recipe `current`; both leave the language-model head in BF16. It takes turns with `current`
once the other recipes are done, because all seven processes at once want 24 GB.
"""
import argparse
import os
import statistics
import subprocess
import sys

import step_process
from gpt2_vs_pytorch import PYTORCH_WORKER
from step_process import BATCH, LENGTH, THREADS, StepProcess

STEPS, WARM_UP = 2, 3
RECIPES = {"delayed": 1.10, "current": 1.10, "rowwise": 1.10, "blockwise": 1.10, "mxfp8": 1.10, "nvfp4": 1.35}  # at most, over BF16
TARGET_TORCHAO, TARGET_SAVED = 4.0, 0.52
GB_PER_WORKER = 3.3
RESULTS = ("loss", "peak_mb", "linear_saved_mb", "saved_mb")

# The PyTorch step of gpt2_vs_pytorch, with the linear layers of the blocks turned into torchao's.
TORCHAO_WORKER = r"""
from torchao.float8 import Float8LinearConfig, convert_to_float8_training

def in_fp8(model):
    return convert_to_float8_training(model, config=Float8LinearConfig(emulate=True),
                                      module_filter_fn=lambda module, name: name != "head")
""" + PYTORCH_WORKER.replace("model = GPT2()", "model = in_fp8(GPT2())")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="at least 5 for a result that counts [7]")
    parser.add_argument("--recipes", default=",".join(RECIPES), help="the recipes to run, with commas [all]")
    parser.add_argument("--no-torchao", action="store_true", help="leave PyTorch out")
    options = parser.parse_args()
    options.recipes = options.recipes.split(",")
    unknown = [name for name in options.recipes if name not in RECIPES]
    if unknown or options.rounds < 1:
        parser.error(f"wanted recipes of {','.join(RECIPES)} and rounds >= 1, found {unknown}, {options.rounds}")
    return options


def octavo_step(name):
    return step_process.octavo(*([] if name == "bf16" else ["--recipe", name]))


def started(names):
    workers = {}
    for name in names:  # one at a time: the start of one would slow the warm-up of another
        is_ours = name != "torchao"
        command = octavo_step(name) if is_ours else step_process.pytorch(TORCHAO_WORKER, "eager")
        workers[name] = StepProcess(name, command, needs=RESULTS if is_ours else ())
        workers[name].turn(WARM_UP)
    return workers


def ratios_in_turns(base, others):
    """One round: the seconds of every turn by name, and each one's ratio to the base's steps just before and after."""
    before = base.turn(STEPS)
    seconds, ratios = {base.name: [statistics.median(before)]}, {}
    for worker in others:
        mine, after = statistics.median(worker.turn(STEPS)), base.turn(STEPS)
        ratios[worker.name] = mine / statistics.median(before + after)
        seconds[worker.name] = [mine]
        seconds[base.name].append(statistics.median(after))
        before = after
    return seconds, ratios


def run_rounds(count, base, others):
    """The median ratio of each to the base, and the seconds of every turn by name; prints every round."""
    rounds, turns = [], {}
    for index in range(count):
        seconds, ratios = ratios_in_turns(base, others)
        rounds.append(ratios)
        print(f"round {index + 1}: " + "  ".join(
            f"{name} {BATCH * LENGTH / statistics.median(values):.0f} tok/s" +
            (f" ({ratios[name]:.3f})" if name in ratios else "") for name, values in seconds.items()), flush=True)
        for name, values in seconds.items():
            turns.setdefault(name, []).extend(values)
    return {worker.name: statistics.median(ratios[worker.name] for ratios in rounds) for worker in others}, turns


def print_memory(workers, recipes):
    """What linear layers keep for backward, what all layers keep, and the peak; returns the worst share of BF16's."""
    bf16, worst = workers["bf16"].results, 0.0
    for name in ["bf16", *recipes]:
        mine = workers[name].results
        share = mine["linear_saved_mb"] / bf16["linear_saved_mb"]
        worst = max(worst, share if name != "bf16" else 0.0)
        print(f"memory {name}: linear layers keep {mine['linear_saved_mb']:.1f} MB ({share:.3f}), "
              f"all layers {mine['saved_mb']:.1f} MB ({mine['saved_mb'] / bf16['saved_mb']:.3f}), "
              f"peak {mine['peak_mb']:.0f} MB, loss {mine['loss']:.4f}")
    return worst


def print_profiles(names):
    for name in names:
        print(f"profile of {name}:", flush=True)
        subprocess.run([*octavo_step(name), "--profile"], env=dict(os.environ, OMP_NUM_THREADS=str(THREADS)))


def main():
    options = arguments()
    wants_torchao = not options.no_torchao and "current" in options.recipes
    if "in_fp8(GPT2())" not in TORCHAO_WORKER:
        sys.exit("wanted 'model = GPT2()' in the worker of gpt2_vs_pytorch.py, found none; follow its change here")
    step_process.check_machine(1 + len(options.recipes), GB_PER_WORKER, "run fewer --recipes at a time")
    workers = started(["bf16", *options.recipes])
    ratio, turns = run_rounds(options.rounds, workers["bf16"], [workers[name] for name in options.recipes])
    saved = print_memory(workers, options.recipes)
    for name, worker in workers.items():
        if name != "current":
            worker.end()
    if wants_torchao:
        torchao = started(["torchao"])["torchao"]
        versus, torchao_turns = run_rounds(options.rounds, workers["current"], [torchao])
        turns["torchao"] = torchao_turns["torchao"]
        torchao.end()
    elif not options.no_torchao:
        print("torchao is left out: it is compared with the recipe current")
    if "current" in workers:
        workers["current"].end()

    short = [name for name in options.recipes if ratio[name] > RECIPES[name]]
    if wants_torchao and versus["torchao"] < TARGET_TORCHAO and "current" not in short:
        short.append("current")
    if short:
        print_profiles(["bf16", *short])
    results = [f"fp8_over_bf16_{name}={ratio[name]:.3f}" for name in options.recipes]
    results += [f"vs_torchao={versus['torchao']:.2f}"] if wants_torchao else []
    results += [f"saved={saved:.3f}"]
    results += [f"{name}_tok_s={BATCH * LENGTH / statistics.median(turns[name]):.0f}" for name in turns]
    # The slowest BF16 turn over the fastest: far from 1, the machine was not quiet and the ratios mean little.
    print(*results, f"bf16_spread={max(turns['bf16']) / min(turns['bf16']):.2f} rounds={options.rounds} "
          f"taken_again={StepProcess.taken_again}")
    return 1 if short or saved > TARGET_SAVED else 0


if __name__ == "__main__":
    sys.exit(main())
