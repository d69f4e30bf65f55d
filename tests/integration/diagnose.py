#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate=""
"""Runs `octavo diagnose` on configs and checkpoints, healthy and sick, and recomputes its numbers with PyTorch from the
captured tensors: signal to noise of every tensor by four recipes, and the error of the forward GEMMs.
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file

import common
from bench_verb import LLAMA
from common import octavo

SICK = 4  # exit code
SIZES = ("--model_name", "custom", "--n_layer", "2", "--n_head", "4", "--n_embd", "128", "--max_seq_length", "64",
         "--batch_size", "4", "--tokenizer", "bytes", "--seed", "3")
ROWS, COLUMNS = 0, 1  # which copy


def diagnose(folder, *flags, expect=0):
    return json.loads(octavo(folder, "diagnose", *SIZES, *flags, "--json", code=expect).stdout)


def block_amax(x, block):
    """The largest magnitude of every block, at every element of it."""
    rows, columns = x.shape
    down, across = min(block[0], rows), min(block[1], columns)
    blocks = x.abs().reshape(rows // down, down, columns // across, across).amax((1, 3), keepdim=True)
    return blocks.expand(-1, down, -1, across).reshape(rows, columns)


def scales_of(recipe, x, copy, role):
    """The factor that every element is multiplied with before it is rounded to E4M3."""
    whole = x.shape[1] if copy == ROWS else x.shape[0]
    length = {"current e4m3": 0, "rowwise": whole, "blockwise": 128, "mxfp8": 32}[recipe]
    if length == 0:
        return 448 / x.abs().max()
    block = (1, length) if copy == ROWS else (length, 1)
    if recipe == "blockwise" and role == "weight":
        block = (128, 128)
    amax = block_amax(x, block)
    if recipe == "mxfp8":
        return torch.exp2(-torch.ceil(torch.log2(amax.double() / 448))).float()
    return torch.exp2(torch.floor(torch.log2((448 / amax).double()))).float()


def quantized(recipe, x, copy, role):
    x = x.float()
    factor = scales_of(recipe, x, copy, role)
    return (x * factor).clamp(-448, 448).to(torch.float8_e4m3fn).float() / factor


def db(x, y):
    return 10 * math.log10((x.double() ** 2).sum() / ((x.double() - y.double()) ** 2).sum())


def check_stats(report, tensors):
    """Every tensor by every recipe that is recomputed here, and forward GEMMs. Returns how many were compared."""
    compared = gemms = 0
    worst = 0.0
    for layer in report["what_if"]["layers"]:
        for variant in layer["variants"]:
            if variant["variant"] not in ("current e4m3", "rowwise", "blockwise", "mxfp8"):
                continue
            made = {}
            for stats in variant["tensors"]:
                copy = ROWS if stats["copy"] == "rows" else COLUMNS
                x = tensors[f"{layer['layer']}.{stats['tensor']}"].float()
                y = made[stats["tensor"], copy] = quantized(variant["variant"], x, copy, stats["tensor"])
                worst = max(worst, abs(db(x, y) - stats["sqnr_db"]))
                compared += 1
            x, w = (tensors[f"{layer['layer']}.{name}"].float() for name in ("input", "weight"))
            exact = x @ w.T
            off = made["input", ROWS] @ made["weight", ROWS].T - exact
            error = (off.square().sum(1) / exact.square().sum(1)).mean().sqrt().item()  # each token counts the same
            if not math.isclose(error, variant["products"]["forward"], rel_tol=0.03):
                sys.exit(f"{layer['layer']} {variant['variant']}: forward error {variant['products']['forward']}, wanted {error}")
            gemms += 1
    if worst > 0.01 or compared < 100:
        sys.exit(f"signal to noise is up to {worst} dB from what PyTorch gives ({compared} compared)")
    return compared, gemms, worst


def check_in_use(report):
    """What ran and the what-if of the same recipe are the same numbers."""
    by_layer = {layer["layer"]: layer["variants"][0] for layer in report["what_if"]["layers"]}
    for line in report["health"]:
        copy = "columns" if line["tensor"].endswith("(columns)") else "rows"
        stats, = [t for t in by_layer[line["layer"]]["tensors"]
                   if t["tensor"] == line["tensor"].split()[0] and t["copy"] == copy]
        if stats["sqnr_db"] != line["sqnr_db"] or stats["scale"] != line["scale"]:
            sys.exit(f"{line['layer']} {line['tensor']}: ran with {line}, what-if says {stats}")
    return len(report["health"])


def check_sick(work):
    """A margin that is wrong on purpose: the layer, the tensor and the remedy; with the remedy it is well."""
    flags = ("--dataset", work / "data", "--use_fp8")
    report = diagnose(work, *flags, "--fp8_margin", 16, expect=SICK)
    advice = report["advice"][0]
    worst = report["health"][0]
    if report["verdict"] != "sick" or not advice["needed"] or advice["what"] != "fp8_margin 0":
        sys.exit(f"wanted the remedy fp8_margin 0, found {report['advice']}")
    if worst["layer"] not in report["sick_layers"] or "underflowed" not in worst["trouble"]:
        sys.exit(f"wanted the worst tensor named, found {worst}")
    text = octavo(work, "diagnose", *SIZES, *flags, "--fp8_margin", 16, code=SICK).stdout
    if worst["layer"] not in text or "NEEDED: fp8_margin 0" not in text or "verdict: SICK" not in text:
        sys.exit(f"the text names no remedy:\n{text}")
    check_in_use(report)
    return len(report["sick_layers"])


def check_checkpoint(work):
    """A checkpoint brings its own settings, weights and scales."""
    octavo(work, "train", *SIZES, "--dataset", work / "data", "--use_fp8", "--max_steps", 30, "--eval_freq", 0,
           "--run_name", "run", "--learning_rate", "3e-3")
    report = json.loads(octavo(work, "diagnose", "--checkpoint", "checkpoints_fp8/run/step-00000030", "--json").stdout)
    if not report["weights"].endswith("step-00000030") or report["data"] == "random tokens":
        sys.exit(f"wanted the checkpoint's weights and data, found {report['weights']}, {report['data']}")
    if report["coverage"]["flops_share"] < 0.5 or report["verdict"] != "healthy":
        sys.exit(f"wanted a healthy run in FP8, found {report['coverage']['flops_share']}, {report['verdict']}")
    check_in_use(report)


def check_llama(work):
    """Llama with adapters and no data: random tokens, and no weight gradients."""
    folder = work / "llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    report = json.loads(octavo(work, "diagnose", "--model_name", folder, "--init_from", "random", "--lora_rank", 4,
                               "--use_fp8", "--fp8_recipe", "mxfp8", "--max_seq_length", 64, "--batch_size", 2,
                               "--json").stdout)
    variant = report["what_if"]["layers"][0]["variants"][0]
    if report["data"] != "random tokens" or set(variant["products"]) != {"forward", "input gradient"}:
        sys.exit(f"wanted random tokens and two GEMMs, found {report['data']}, {variant['products']}")


def main():
    common.require_files()
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        common.prepare_data(work)
        healthy = diagnose(work, "--dataset", work / "data", "--use_fp8", "--capture", "captured.safetensors")
        if healthy["verdict"] != "healthy" or any(a["needed"] for a in healthy["advice"]):
            sys.exit(f"wanted a healthy run, found {healthy['verdict']}, {healthy['advice']}")
        same = check_in_use(healthy)
        compared, gemms, worst = check_stats(healthy, load_file(work / "captured.safetensors"))
        sick = check_sick(work)
        check_checkpoint(work)
        check_llama(work)
        environment = common.page_environment()
        commands = common.page_commands("how-to/diagnose.md", "diagnose")
        for command in commands:
            done = subprocess.run(command, shell=True, cwd=work, env=environment, capture_output=True, text=True)
            wanted = SICK if "--fp8_margin" in command else 0
            if done.returncode != wanted:
                sys.exit(f"{command}: exit code {done.returncode}, wanted {wanted}\n{done.stderr[-2000:]}")
    print(f"sick_layers={sick} in_use_equal={same} recomputed={compared} products={gemms} worst_db={worst:.5f} "
          f"commands={len(commands)}")


if __name__ == "__main__":
    main()
