#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# bench:
"""The bytes that a rank sends in a step, counted by the collectives themselves (receipt.json), against the formula
(src/plan/traffic.cpp, as `octavo plan --json` gives it): within 1% for every mode, with accumulation, with gradients that
travel in BF16 and weights that travel as FP8 codes. FP8 codes are at most 0.55 of the BF16 gather.

Four ranks over Gloo; hybrid: two nodes of two. blockwise has a scale for 128 rows, which a rank must own: a wider model on
two ranks.

Last line: cases=N worst_percent=X fp8_share=X failed=0
"""
import json
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/integration"))
import ranks  # noqa: E402
from common import OCTAVO  # noqa: E402

STEPS, MORE_STEPS = 2, 4
MOST_ERROR, MOST_SHARE = 0.01, 0.55
BLOCKS = 16  # of one block in few the last, which stays, would count too much
WIDE = {"hidden_size": 256, "intermediate_size": 256, "num_key_value_heads": 4}
FULL, FP8 = {"sharding_mode": "fsdp_full"}, {"mixed_precision": "fp8", "fp8_stats_freq": 0}


def cases():
    """(name, keys, ranks, model)"""
    for mode in ("ddp", "zero1", "zero2", "fsdp_full", "hybrid"):
        yield mode, {"sharding_mode": mode}, 4, "deep"
    for mode in ("zero1", "zero2", "fsdp_full"):
        yield f"{mode}, two micro-batches", {"sharding_mode": mode, "gradient_accumulation_steps": 2}, 4, "deep"
    for mode in ("ddp", "fsdp_full"):
        yield f"{mode}, BF16 gradients", {"sharding_mode": mode, "grad_reduce_dtype": "bf16"}, 4, "deep"
    yield "fsdp_full, recomputed", FULL | {"gradient_checkpointing": True}, 4, "deep"
    for recipe in ("delayed", "current", "rowwise", "mxfp8"):
        yield f"fsdp_full, {recipe}", FULL | FP8 | {"fp8_recipe": recipe}, 4, "deep"
    for mode in ("ddp", "zero2", "fsdp_full", "hybrid"):
        yield f"{mode}, LoRA", {"sharding_mode": mode, "lora_rank": 8}, 4, "deep"
    yield "wide fsdp_full", FULL, 2, "wide"
    yield "wide fsdp_full, blockwise", FULL | FP8 | {"fp8_recipe": "blockwise"}, 2, "wide"


def counted(job):
    sent = {name: it["bytes_sent"] for name, it in job.receipt()["ranks"]["collectives"].items()}
    return {"gathered": sent["weights gathered"],
            "reduced": sent["gradients reduce-scattered"] + sent["gradients all-reduced"],
            "between_copies": sent["gradients between nodes"]}


def measured(work, name, keys, count, model):
    """Bytes by kind of one step of the first rank."""
    nodes = 2 if keys["sharding_mode"] == "hybrid" else 1
    # zero1 and zero2 gather once before the first step: there, what the steps of a longer run add.
    lengths = (STEPS, MORE_STEPS) if keys["sharding_mode"].startswith("zero") else (STEPS,)
    runs = []
    for steps in lengths:
        folder = work / f"{name.replace(', ', '-').replace(' ', '_')}-{steps}"
        job = ranks.Job(folder, work / model, steps=steps, batch_size=1, **keys)
        runs.append(counted(job.finish(count, nodes)))
    if len(runs) == 1:
        return {kind: sent / STEPS for kind, sent in runs[0].items()}
    return {kind: (runs[1][kind] - runs[0][kind]) / (MORE_STEPS - STEPS) for kind in runs[0]}


def forecast(work, keys, count, model):
    # A GPU of which a node has two, as the nodes of the hybrid run.
    gpu = "h100_nvl" if keys["sharding_mode"] == "hybrid" else "b200"
    flags = [word for key, value in keys.items() if not key.startswith("fp8_stats")
             for word in ("--" + key, str(value).lower())]
    done = subprocess.run([OCTAVO, "plan", "--model_name", work / model, "--num_gpus", str(count), "--gpu", gpu, "--json",
                           *flags], cwd=work, text=True, capture_output=True, check=False)
    if done.returncode != 0:
        sys.exit(f"octavo plan ended with {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)["traffic"]


def main():
    total, worst, failed, gathers = 0, 0.0, 0, {}
    print(f"{'bytes a rank sends in a step':34}{'gathered':>12}{'formula':>12}{'reduced':>12}{'formula':>12}"
          f"{'nodes':>10}{'formula':>10}{'error':>8}")
    with tempfile.TemporaryDirectory(prefix="octavo-bytes-") as folder:
        work = pathlib.Path(folder)
        ranks.prepared(work)
        ranks.write_model(work / "deep", num_hidden_layers=BLOCKS)
        ranks.write_model(work / "wide", num_hidden_layers=BLOCKS, **WIDE)
        for name, chosen, count, model in cases():
            keys = {"mixed_precision": "bf16"} | chosen
            found, wanted = measured(work, name, keys, count, model), forecast(work, keys, count, model)
            error = max(abs(found[kind] - wanted[kind]) / max(wanted[kind], 1) for kind in found)
            total, worst, gathers[name] = total + 1, max(worst, error), found["gathered"]
            failed += error > MOST_ERROR
            print(f"{name:34}{found['gathered']:12.0f}{wanted['gathered']:12.0f}{found['reduced']:12.0f}"
                  f"{wanted['reduced']:12.0f}{found['between_copies']:10.0f}{wanted['between_copies']:10.0f}"
                  f"{100 * error:7.2f}%", flush=True)
    shares = {name: gathers[name] / gathers[name.split(", ")[0]] for name, keys, _, _ in cases() if "fp8_recipe" in keys}
    for name, share in shares.items():
        print(f"{name}: {share:.3f} of the BF16 gather")
    failed += sum(share > MOST_SHARE for share in shares.values())
    print(f"cases={total} worst_percent={100 * worst:.2f} fp8_share={max(shares.values()):.3f} failed={failed}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
