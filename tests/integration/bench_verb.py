#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate=""
"""Runs `octavo bench` on a small model and a Llama with adapters: is the table complete, does the JSON agree with itself, are
the pictures and the page drawn, and does it say that a CPU's results are the rehearsal's. --keep FOLDER keeps the page and
PNGs of it.
"""
import json
import math
import pathlib
import shutil
import subprocess
import sys
import tempfile

import browser
import common
from common import octavo

SIZES = ("--model_name", "custom", "--n_layer", "2", "--n_head", "4", "--n_embd", "256", "--vocab_size", "2048",
         "--max_seq_length", "128", "--batch_size", "4", "--bench_seconds", "3", "--bench_steps", "3")
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 512, "hidden_size": 128,
         "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
         "tie_word_embeddings": True}
GEMMS = ["forward", "input gradient", "weight gradient"]


def check_json(found, shapes, gemms):
    """Every shape with every GEMM; medians inside their quartiles; rates and ratios follow from times."""
    sizes = [(s["outputs"], s["inputs"]) for s in found["shapes"]]
    if sizes != shapes:
        sys.exit(f"wanted the shapes {shapes}, found {sizes}")
    for shape in found["shapes"]:
        if [p["product"] for p in shape["products"]] != gemms or shape["rounds"] < 5:
            sys.exit(f"wanted {gemms}, five rounds or more; found {shape}")
        for p in shape["products"]:
            times = [p["bf16_seconds"], p["fp8_seconds"], p["quantize_seconds"], p["ratio"]]
            if not all(0 < t["low"] <= t["median"] <= t["high"] for t in times):
                sys.exit(f"times out of order: {shape['name']} {p}")
            flops = 2 * shape["tokens"] * shape["outputs"] * shape["inputs"]
            rate = flops / p["bf16_seconds"]["median"] / 1e9
            alone = p["bf16_seconds"]["median"] / p["fp8_seconds"]["median"]
            if p["flops"] != flops or not math.isclose(rate, p["bf16_gflops"], rel_tol=1e-9) or \
                    not math.isclose(alone, p["ratio_alone"], rel_tol=1e-9):
                sys.exit(f"results do not follow from the times: {p}")
    tokens = [p["tokens"] for p in found["sweep"]]
    if len(tokens) < 3 or tokens != [128 << i for i in range(len(tokens))]:
        sys.exit(f"wanted three numbers of tokens or more, found {tokens}")
    if found["pays_from_tokens"] is not None:
        sys.exit(f"a rehearsal cannot pay, found that it does from {found['pays_from_tokens']} tokens on")
    if not found["rehearsal"] or "No speed of a GPU follows" not in found["note"]:
        sys.exit(f"a CPU's results must be called the rehearsal's, found {found['note']}")
    if found["step"]["ratio"]["median"] <= 0 or found["step"]["precision"] != "FP8 rehearsal":
        sys.exit(f"wanted whole steps, found {found['step']}")


def render(folder, page):
    """Pictures of the SVG files and of the page, in a browser; the number of them."""
    files = [*sorted(folder.glob("*.svg")), page]
    for file in files:
        browser.draw(file, file.with_suffix(".png"))
    return len(files)


def main():
    common.require_files()
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        found = json.loads(octavo(work, "bench", *SIZES, "--json", "--output", work / "bench.html").stdout)
        check_json(found, [(768, 256), (256, 256), (1024, 256), (256, 1024), (2048, 256)], GEMMS)
        if not found["shapes"][-1]["stays_in_bf16"] or found["shapes"][0]["stays_in_bf16"]:
            sys.exit("wanted the head, and it alone, marked as staying in BF16")
        html = browser.self_contained(work / "bench.html")
        missing = [w for w in ("<svg", "REHEARSAL", "weight gradient", "FP8 starts to pay") if w not in html]
        if missing:
            sys.exit(f"the page lacks {missing}")
        pictures = render(work, work / "bench.html")
        if pictures != 3:
            sys.exit(f"wanted two pictures and the page drawn, found {pictures}")
        if "--keep" in sys.argv:
            shutil.copytree(work, sys.argv[sys.argv.index("--keep") + 1], dirs_exist_ok=True)
        (work / "llama").mkdir()
        (work / "llama/config.json").write_text(json.dumps(LLAMA))
        llama = json.loads(octavo(work, "bench", "--model_name", work / "llama", "--lora_rank", 4, "--fp8_recipe", "current",
                                  "--max_seq_length", 64, "--batch_size", 4, "--bench_seconds", 1, "--bench_steps", 2,
                                  "--json").stdout)
        check_json(llama, [(256, 128), (128, 128), (512, 128), (128, 256)], GEMMS[:2])
        commands = common.page_commands("how-to/bench.md", "bench_verb")
        for command in commands:
            done = subprocess.run(command, shell=True, cwd=work, env=common.page_environment(), capture_output=True, text=True)
            if done.returncode != 0 or "REHEARSAL" not in done.stdout:
                sys.exit(f"{command}: exit code {done.returncode}\n{done.stdout[-1000:]}{done.stderr[-2000:]}")
    ratios = [p["ratio"]["median"] for s in found["shapes"] for p in s["products"]]
    print(f"shapes={len(found['shapes'])} products={len(ratios)} least_ratio={min(ratios):.2f} most_ratio={max(ratios):.2f} "
          f"step_ratio={found['step']['ratio']['median']:.2f} points={len(found['sweep'])} pictures={pictures} "
          f"commands={len(commands)}")


if __name__ == "__main__":
    main()
