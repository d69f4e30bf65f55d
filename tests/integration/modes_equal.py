#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=1800 night="" alone
"""The same training by 1, 2, 3, 4 and 8 ranks over Gloo, in every mode and precision, on the same global batches.

In FP32 the loss of every step is within 1e-5 of one rank's (with a learning rate at which rounding does not grow: at 3e-3
four ranks are 3e-5 away after 50 steps, at 1e-3 2e-8). ddp, zero1, zero2 and fsdp_full give the same bits, since they
sum the same numbers in the same order; hybrid sums inside nodes first. Two runs of one layout give the same bits. In
BF16 and FP8 the distance to one rank is that of the precision's rounding: bounded by MOST_LOW.

usage: modes_equal.py [--short] [PRECISION…]      --short: fewer ranks and precisions, for CI
"""
import pathlib
import sys
import tempfile

import ranks
from ranks import GLOBAL_BATCH, Job

MODES = ("ddp", "zero1", "zero2", "fsdp_full", "hybrid")
SAME_SUMS = ("zero1", "zero2", "fsdp_full")  # as ddp
RECIPES = ("delayed", "current", "rowwise", "blockwise", "mxfp8", "nvfp4")
MOST_FP32, MOST_LOW = 1e-5, 0.03
SHORT = "--short" in sys.argv
ONLY = [word for word in sys.argv[1:] if not word.startswith("-")]  # precisions; none: all


def precisions():
    yield "fp32", {"mixed_precision": "fp32"}
    yield "bf16", {"mixed_precision": "bf16"}
    for recipe in RECIPES:
        yield recipe, {"mixed_precision": "fp8", "fp8_recipe": recipe, "fp8_amax_history": 16, "fp8_stats_freq": 20}


def distance(losses, wanted):
    return max(abs(a - b) / abs(b) for a, b in zip(losses, wanted, strict=True))


class Matrix:
    def __init__(self, work):
        self.work, self.model, self.runs, self.problems = work, ranks.prepared(work), 0, []
        self.worst = {"fp32": 0.0, "low": 0.0}

    def losses(self, name, count, keys, nodes=1):
        self.runs += 1
        job = Job(self.work / name, self.model, batch_size=GLOBAL_BATCH // count, **keys)
        return job.finish(count, nodes).losses()

    def check(self, condition, text):
        if not condition:
            self.problems.append(text)
            print("FAILED", text, flush=True)

    def run(self, precision, keys, count, alone):
        found = {}
        for mode in MODES:
            nodes = 2 if mode == "hybrid" and count >= 4 else 1
            found[mode] = self.losses(f"{precision}-{count}-{mode}", count, keys | {"sharding_mode": mode}, nodes)
            far = distance(found[mode], alone)
            kind = "fp32" if precision == "fp32" else "low"
            self.worst[kind] = max(self.worst[kind], far)
            self.check(far <= (MOST_FP32 if kind == "fp32" else MOST_LOW),
                       f"{precision}, {count} ranks, {mode}: {far:.2e} from one rank")
        for mode in SAME_SUMS:
            self.check(found[mode] == found["ddp"], f"{precision}, {count} ranks: {mode} differs from ddp by "
                       f"{distance(found[mode], found['ddp']):.2e}")
        again = "fsdp_full" if count != 4 else "hybrid"
        nodes = 2 if again == "hybrid" else 1
        twice = self.losses(f"{precision}-{count}-{again}-again", count, keys | {"sharding_mode": again}, nodes)
        self.check(twice == found[again], f"{precision}, {count} ranks, {again}: two runs differ")
        print(f"{precision}, {count} ranks: " + ", ".join(f"{m} {distance(l, alone):.1e}" for m, l in found.items()),
              flush=True)

    def options(self, alone):
        """What may not change a bit, or little: accumulation, checkpointing, BF16 gathers, BF16 reductions."""
        base = {"mixed_precision": "fp8", "fp8_recipe": "rowwise", "sharding_mode": "fsdp_full"}
        keys = {"gathered": base, "plain": base | {"fp8_all_gather": False},
                "recomputed": base | {"gradient_checkpointing": True}}
        found = {name: self.losses("option-" + name, 2, k) for name, k in keys.items()}
        for name in ("plain", "recomputed"):
            self.check(found[name] == found["gathered"], f"rowwise, 2 ranks: {name} differs from the FP8 gather")
        fp32 = {"mixed_precision": "fp32", "sharding_mode": "zero2", "gradient_accumulation_steps": 2}
        job = Job(self.work / "option-accumulated", self.model, batch_size=GLOBAL_BATCH // 4, **fp32)
        far = distance(job.finish(2).losses(), alone)
        self.check(far <= MOST_FP32, f"fp32, zero2, two micro-batches: {far:.2e} from one rank")
        self.adapters()
        low = self.losses("option-bf16-reduction", 3, fp32 | {"gradient_accumulation_steps": 1,
                                                              "grad_reduce_dtype": "bf16"})
        far = distance(low, alone)
        self.check(far <= MOST_LOW, f"fp32 with gradients reduced in bf16: {far:.2e} from one rank")
        self.runs += 1

    def adapters(self):
        """LoRA: what is trained is whole on every rank, and what is frozen comes and goes. Every token drops its own."""
        keys = {"mixed_precision": "fp32", "lora_rank": 4, "lora_dropout": 0.2}
        jobs = {mode: Job(self.work / f"lora-{mode}", self.model, steps=8, batch_size=GLOBAL_BATCH // count,
                          sharding_mode=mode, **keys).finish(count)
                for mode, count in (("none", 1), ("ddp", 2), ("fsdp_full", 2))}
        self.runs += 3
        for mode in ("ddp", "fsdp_full"):
            far = max(distance(jobs[mode].losses(), jobs["none"].losses()),
                      distance(jobs[mode].norms(), jobs["none"].norms()))
            self.check(far <= MOST_FP32, f"fp32, LoRA, 2 ranks, {mode}: {far:.2e} from one rank")


def main():
    with tempfile.TemporaryDirectory() as folder:
        matrix = Matrix(pathlib.Path(folder))
        for precision, keys in precisions():
            if precision not in ONLY if ONLY else SHORT and precision not in ("fp32", "delayed", "mxfp8"):
                continue
            alone = matrix.losses(precision + "-alone", 1, keys)
            for count in ((3,) if SHORT and precision != "fp32" else (2, 4) if SHORT else (2, 3, 4, 8)):
                matrix.run(precision, keys, count, alone)
            if precision == "fp32":
                matrix.options(alone)
        print(f"runs={matrix.runs} failed={len(matrix.problems)} fp32_distance={matrix.worst['fp32']:.2e} "
              f"low_distance={matrix.worst['low']:.2e}")
        sys.exit(1 if matrix.problems else 0)


if __name__ == "__main__":
    main()
