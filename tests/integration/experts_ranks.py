#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=900 gate="--short" night="" alone
"""A model with experts by 1, 2 and 4 ranks over Gloo, on the same micro-batches: the loss that balances experts is of one
micro-batch, so that their number is the same, and ranks share them. Some experts get no row of some micro-batches.

In FP32 losses and gradient norms are within 1e-5 of one rank's. Modes give the same bits where a rank has one micro-batch;
with more, ddp adds up a rank's own before it sums over ranks, and fsdp_full after it. In FP8 the distance is that of rounding,
and of delayed factors, which every micro-batch of a rank renews. The load of the experts is the same on any number of ranks.

usage: experts_ranks.py [--short]      --short: fewer modes and precisions
"""
import json
import pathlib
import sys
import tempfile

import ranks
from modes_equal import MOST_FP32, MOST_LOW, RECIPES, distance
from ranks import Job

SHORT = "--short" in sys.argv
MICRO_BATCHES, SAMPLES, STEPS = 4, 2, 30
QWEN3_MOE = {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "head_dim": 32, "num_experts": 16,
             "num_experts_per_tok": 2, "moe_intermediate_size": 128, "norm_topk_prob": True, "mlp_only_layers": [1],
             "output_router_logits": True, "router_aux_loss_coef": 0.01}
LOAD = ("moe/balance_loss", "moe/z_loss", "moe/busiest_share", "moe/largest_load", "moe/fullest_share",
        "moe/emptiest_share", "moe/idle_experts")


class Runs:
    def __init__(self, work):
        self.work, self.problems, self.count, self.worst = work, [], 0, {"fp32": 0.0, "low": 0.0}
        ranks.prepared(work)
        self.model = ranks.write_model(work / "moe", **QWEN3_MOE)

    def run(self, name, count, keys):
        self.count += 1
        return Job(self.work / f"{name}-{count}", self.model, steps=STEPS, batch_size=SAMPLES,
                   gradient_accumulation_steps=MICRO_BATCHES // count, **keys).finish(count)

    def check(self, condition, text):
        if not condition:
            self.problems.append(text)
            print("FAILED", text, flush=True)

    def compare(self, precision, keys, counts, modes):
        alone = self.run(f"{precision}-alone", 1, keys)
        kind = "fp32" if precision == "fp32" else "low"
        for count in counts:
            found = {mode: self.run(f"{precision}-{mode}", count, keys | {"sharding_mode": mode}) for mode in modes}
            for mode, job in found.items():
                far = distance(job.losses(), alone.losses())
                if kind == "fp32":
                    far = max(far, distance(job.norms(), alone.norms()))
                self.worst[kind] = max(self.worst[kind], far)
                self.check(far <= (MOST_FP32 if kind == "fp32" else MOST_LOW),
                           f"{precision}, {count} ranks, {mode}: {far:.2e} from one rank")
                if count == MICRO_BATCHES:
                    self.check(job.losses() == found[modes[0]].losses(), f"{precision}, {count} ranks: {mode} differs from "
                               f"{modes[0]}")
                if kind == "fp32":
                    self.loads(alone, job, f"{count} ranks, {mode}")
            print(f"{precision}, {count} ranks: " + ", ".join(
                f"{mode} {distance(job.losses(), alone.losses()):.1e}" for mode, job in found.items()), flush=True)

    def loads(self, alone, job, name):
        def first(of):
            lines = (of.path / "runs" / "run" / "metrics.jsonl").read_text().splitlines()
            return next(r for r in map(json.loads, lines) if "train/loss" in r)
        wanted, found = first(alone), first(job)
        for metric in LOAD:
            self.check(abs(wanted[metric] - found[metric]) <= 1e-5 * abs(wanted[metric]),
                       f"{name}: {metric}: wanted {wanted[metric]}, found {found[metric]}")
        self.check(wanted["moe/balance_loss"] >= 2, "an even load has a balance loss of num_experts_per_tok, others more")


def main():
    with tempfile.TemporaryDirectory() as folder:
        runs = Runs(pathlib.Path(folder))
        modes, counts = ("ddp", "fsdp_full") if SHORT else ("ddp", "zero1", "zero2", "fsdp_full"), (4,) if SHORT else (2, 4)
        runs.compare("fp32", {"mixed_precision": "fp32"}, (2, 4), modes)
        for recipe in RECIPES[:1] if SHORT else RECIPES:
            runs.compare(recipe, {"mixed_precision": "fp8", "fp8_recipe": recipe, "fp8_amax_history": 16,
                                  "fp8_stats_freq": 5}, counts, ("ddp", "fsdp_full"))
        print(f"runs={runs.count} failed={len(runs.problems)} fp32_distance={runs.worst['fp32']:.2e} "
              f"low_distance={runs.worst['low']:.2e}")
        sys.exit(1 if runs.problems else 0)


if __name__ == "__main__":
    main()
