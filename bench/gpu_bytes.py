#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# bench:
"""Bytes that a training step moves outside GEMMs and attention, per token and layer of Llama 8B: every operation on the fake CUDA
device (src/fake_cuda) with the tensors that it reads and writes, each once. octavo in BF16 and FP8 (delayed, Transformer Engine),
PyTorch eager (BF16 by autocast, fused AdamW; bench/pytorch_llama_operations.py), and IDEAL below, a list of fused operations.

A step of two and of three layers and of 2048 and 4096 tokens gives what a token costs in a layer, a token outside the layers, and what
a step costs whatever its tokens are (weights and optimizer), without guessing which operation is which. The targets are of the
first two. What a kernel reads twice, a cache that saves a read, and launches that are too short to fill a GPU are not in it: the
times at the end are bytes by the data sheet's bandwidth, no measurement.

usage: gpu_bytes.py [--operations]    --operations: all of PyTorch's operations too
"""
import collections
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))
import fake_cuda

BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release"))
LAYERS, TOKENS = 32, 8192  # of the step whose time is shown
SMALL_LAYERS, LENGTH, BATCHES = (2, 3), 2048, (1, 2)
TARGET_EAGER, TARGET_IDEAL = 0.40, 1.25
BANDWIDTH = {"H100": 3.35e12, "B200": 7.67e12}  # as src/plan/gpu.cpp has them

CONFIG = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32,
          "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256, "max_position_embeddings": 131072,
          "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu", "tie_word_embeddings": False,
          "attention_bias": False, "mlp_bias": False}
C, F, V = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["vocab_size"]
QK = (CONFIG["num_attention_heads"] + CONFIG["num_key_value_heads"]) * CONFIG["head_dim"]
QKV = QK + CONFIG["num_key_value_heads"] * CONFIG["head_dim"]

GEMMS = {"mm", "addmm", "bmm", "baddbmm", "_scaled_mm", "_scaled_mm_v2", "_scaled_addmm_", "nvte_cublas_gemm_v2"}
# Of the argument `self` (or `weight`) they touch as much as they return, or are given.
GATHERS = {"gather", "index_select", "embedding", "index", "nll_loss_forward", "nll_loss_backward"}
SCATTERS = {"index_copy_": False, "_index_put_impl_": False, "scatter_": True}  # True: adds to what is there
OVERWRITES = {"copy_", "fill_", "zero_", "_foreach_copy_", "_foreach_zero_"}

# The fewest bytes that one would write by hand: what a token costs, in bytes read and written, where the operations are fused as far
# as kernels of the field are. On a GPU that wants transposed codes for weight gradients (Hopper): a second byte for each number.
# name: (bytes in BF16, bytes in FP8, per "layer" or "model", octavo's operations that are this)
IDEAL = {
    # x, delta in; their sum and its norm out (in FP8 two copies of its codes)
    "residual add and norm, two": (2 * (2 + 2 + 2 + 2) * C, 2 * (2 + 2 + 2 + 1 + 1) * C, "layer",
                                   {"add", "nvte_rmsnorm_fwd", "octavo_norm", "octavo_norm_quantize"}),
    "RoPE in place": (2 * 2 * QK, 2 * 2 * QK, "layer", {"nvte_fused_rope_forward", "octavo_rope"}),
    "quantize attention's result": (0, (2 + 1 + 1) * C, "layer", {"nvte_quantize_v2", "octavo_quantize", "octavo_quantize_sum"}),
    "SwiGLU": ((4 + 2) * F, (4 + 1 + 1) * F, "layer", {"nvte_swiglu"}),
    "SwiGLU's gradient": ((2 + 4 + 4) * F, (2 + 4 + 2 + 2) * F, "layer", {"nvte_dswiglu", "nvte_dswiglu_cast_transpose"}),
    # gradient of the norm, its input, the gradient that passes it by in; their sum out (in FP8 with its codes for the layer before)
    "norm's gradient, two": (2 * (2 + 2 + 2 + 2) * C, 2 * (2 + 2 + 2 + 2 + 1 + 1) * C, "layer",
                             {"nvte_rmsnorm_bwd_add", "octavo_norm_backward"}),
    # In FP8 the rotated gradient is written as codes alone, with those of v.
    "RoPE backwards": (2 * 2 * QK, (2 + 1 + 1) * QKV, "layer", {"nvte_fused_rope_backward", "octavo_rope_pack"}),
    # Logits are read for their sum, and again where they become their gradient.
    "cross-entropy": ((2 + 2 + 2) * V, (2 + 2 + 2) * V, "model", {"octavo_cross_entropy", "copy_", "_log_softmax", "exp_", "mul", "gather"}),
    "last norm": ((2 + 2 + 2) * C + (2 + 2 + 2) * C, (2 + 2 + 2) * C + (2 + 2 + 2) * C, "model",
                  {"nvte_rmsnorm_fwd", "nvte_rmsnorm_bwd", "octavo_norm", "octavo_norm_backward"}),
    "embedding": ((2 + 2) * C + (2 + 4 + 4) * C, (2 + 2) * C + (2 + 4 + 4) * C, "model",
                  {"embedding", "embedding_dense_backward", "index_select", "_index_put_impl_", "add_", "zero_"}),
}


def bytes_of(tensor):
    """Without the dimensions along which the same number is read again."""
    count = tensor["item"]
    for size, stride in zip(tensor["sizes"], tensor["strides"]):
        count *= 1 if stride == 0 and size > 1 else size
    return count


def short(name):
    return name.split("::")[-1].split(".")[0]


def elements(tensors, names):
    found = [t for t in tensors if t["argument"] in names]
    return bytes_of(found[0]) // found[0]["item"] if found else 0


def traffic(operation):
    """Bytes read and written."""
    name, tensors, total = short(operation["name"]), operation["tensors"], 0
    scales_gradients = any(t["argument"] == "grad_scale" for t in tensors)
    for t in tensors:
        size, role = bytes_of(t), t["role"]
        if name in GATHERS and t["argument"] in ("self", "weight"):
            size = min(size, t["item"] * (elements(tensors, ("target",)) if "nll" in name else elements(tensors, ("result", "out"))))
        if name in SCATTERS and t["argument"] == "self":
            size = t["item"] * (elements(tensors, ("source", "src", "values")) or elements(tensors, ("index",)))
            role = "rw" if SCATTERS[name] else "w"
        if name in OVERWRITES and t["argument"] == "self":
            role = "w"
        if name == "_fused_adamw_" and t["argument"] == "grads" and not scales_gradients:
            role = "r"
        total += size * len(role)
    return total


def is_counted(operation):
    names = [short(name) for name in (operation["name"], *operation["inside"])]
    return not any(name in GEMMS or "attention" in name for name in names)


def recorded(side, layers, batch, folder):
    """Bytes of one step by operation."""
    config = folder / f"llama-{layers}"
    config.mkdir(exist_ok=True)
    (config / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": layers}))
    if side.startswith("octavo"):
        fp8 = ["--mixed_precision", "fp8", "--fp8_recipe", "delayed", "--fp8_stats_freq", "0"]
        command = [BUILD / "bin" / "step_bench", "operations", "3", "--model_name", config, "--dataset", folder / "text.txt",
                   "--tokenizer", "bytes", "--data_cache", folder / "data", "--batch_size", batch, "--max_seq_length", LENGTH,
                   *(fp8 if side == "octavo_fp8" else [])]
    else:
        command = [sys.executable, ROOT / "bench" / "pytorch_llama_operations.py", side, config / "config.json", batch, LENGTH]
    environment = fake_cuda.environment(capability=90, memory=400 << 30) | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([str(word) for word in command], cwd=folder, env=environment, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(f"{side} ended with exit code {done.returncode}:\n{done.stderr[-3000:]}")
    found = json.loads(done.stdout.splitlines()[-1])
    if found["unattributed"]:
        sys.exit(f"{side}: {found['unattributed']} launches of a step belong to no operation that was seen")
    totals = collections.Counter()
    for operation in found["operations"]:
        if is_counted(operation):
            totals[short(operation["name"])] += traffic(operation)
    return totals


def fitted(side, folder):
    """By operation: bytes per token in a layer, per token outside layers, per step in a layer, per step outside."""
    found = {(layers, batch): recorded(side, layers, batch, folder) for layers in SMALL_LAYERS for batch in BATCHES}
    (few, many), (one, two) = SMALL_LAYERS, (batch * LENGTH for batch in BATCHES)
    parts = {}
    for name in sorted(set().union(*found.values())):
        at = {(layers, batch * LENGTH): totals[name] for (layers, batch), totals in found.items()}
        slopes = {layers: (at[layers, two] - at[layers, one]) / (two - one) for layers in SMALL_LAYERS}
        layer = (slopes[many] - slopes[few]) / (many - few)
        fixed = {layers: at[layers, one] - slopes[layers] * one for layers in SMALL_LAYERS}
        step_layer = (fixed[many] - fixed[few]) / (many - few)
        parts[name] = (layer, slopes[few] - few * layer, step_layer, fixed[few] - few * step_layer)
    return parts


def per_token(parts):
    """Per token and layer, of the model with all its layers."""
    return sum(layer + model / LAYERS for layer, model, _, _ in parts.values())


def per_step(parts):
    return sum(LAYERS * layer + model for _, _, layer, model in parts.values())


def parameters():
    return LAYERS * (QKV * C + C * C + 3 * F * C + 2 * C) + 2 * V * C + C


def ideal_bytes(precision):
    column = 0 if precision == "bf16" else 1
    return sum(row[column] / (1 if row[2] == "layer" else LAYERS) for row in IDEAL.values())


def print_operations(title, parts):
    print(f"\n{title}: KB per token and layer (of what is outside layers its share)\n")
    print("| operation | in a layer | outside | together |\n|---|---|---|---|")
    for name, (layer, model, _, _) in sorted(parts.items(), key=lambda item: -(item[1][0] + item[1][1] / LAYERS)):
        if layer + model / LAYERS >= 100:
            print(f"| {name} | {layer / 1e3:.1f} | {model / LAYERS / 1e3:.1f} | {(layer + model / LAYERS) / 1e3:.1f} |")


def print_ideal():
    print("\nThe ideal list: KB per token and layer\n\n| operation | BF16 | FP8 |\n|---|---|---|")
    for name, (bf16, fp8, per, _) in IDEAL.items():
        share = 1e3 * (1 if per == "layer" else LAYERS)
        print(f"| {name} | {bf16 / share:.1f} | {fp8 / share:.1f} |")
    print(f"| together | {ideal_bytes('bf16') / 1e3:.1f} | {ideal_bytes('fp8') / 1e3:.1f} |")


def print_between(precision, parts):
    """What octavo moves beyond the ideal list: rows of it that cost more, and operations that it does not have."""
    print(f"\nbetween octavo in {precision.upper()} and the ideal list, KB per token and layer:")
    left = {(name, per): size for name, (layer, model, _, _) in parts.items()
            for per, size in (("layer", layer), ("model", model / LAYERS))}
    rows = []
    for name, (bf16, fp8, per, operations) in IDEAL.items():
        ideal = (bf16 if precision == "bf16" else fp8) / (1 if per == "layer" else LAYERS)
        taken = sum(left.pop((operation, per), 0) for operation in operations)
        rows.append((taken - ideal, f"{name}: {', '.join(sorted(operations & set(parts)))}"))
    rows += [(size, f"not in the list: {name}") for (name, _), size in left.items()]
    for size, text in sorted(rows, reverse=True):
        if abs(size) >= 100:
            print(f"{size / 1e3:+8.1f}  {text}")


def main():
    fake_cuda.require_libraries()
    sides = {"octavo_bf16": "octavo, BF16", "octavo_fp8": "octavo, FP8", "eager": "PyTorch eager, autocast",
             "weights": "PyTorch eager, weights in BF16", "transformers": "transformers' Llama, autocast",
             "torchao": "PyTorch eager, torchao's FP8"}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_text("All that is gold does not glitter, not all those who wander are lost. " * 4000)
        parts = {side: fitted(side, folder) for side in sides}
    for side, title in sides.items():
        if side.startswith("octavo") or "--operations" in sys.argv:
            print_operations(title, parts[side])
    print_ideal()
    for precision in ("bf16", "fp8"):
        print_between(precision, parts[f"octavo_{precision}"])

    count = parameters()
    print(f"\n| side | KB per token and layer | of eager | bytes per parameter and step | ms of {TOKENS} tokens: "
          + " | ".join(BANDWIDTH) + " |\n|---|---|---|---|" + "---|" * len(BANDWIDTH))
    rows = {title: (per_token(parts[side]), per_step(parts[side]) / count) for side, title in sides.items()}
    rows |= {f"ideal list, {p.upper()}": (ideal_bytes(p), None) for p in ("bf16", "fp8")}
    eager = per_token(parts["eager"])
    for title, (token, parameter) in rows.items():
        times = " | ".join(f"{1e3 * token * LAYERS * TOKENS / rate:.1f}" for rate in BANDWIDTH.values())
        print(f"| {title} | {token / 1e3:.1f} | {token / eager:.3f} | {'' if parameter is None else f'{parameter:.1f}'} | {times} |")

    results, is_short = [], False
    for precision in ("bf16", "fp8"):
        token = per_token(parts[f"octavo_{precision}"])
        of_eager, of_ideal = token / eager, token / ideal_bytes(precision)
        is_short = is_short or of_eager > TARGET_EAGER or of_ideal > TARGET_IDEAL
        results += [f"{precision}_of_eager={of_eager:.3f}", f"{precision}_of_ideal={of_ideal:.3f}"]
    others = [f"{p}_of_{side}={per_token(parts[f'octavo_{p}']) / per_token(parts[side]):.3f}"
              for p, side in (("bf16", "transformers"), ("bf16", "weights"), ("fp8", "torchao"))]
    print(" ".join([*results, *others, f"ideal_of_eager={ideal_bytes('bf16') / eager:.3f}"]))
    sys.exit(1 if is_short else 0)


if __name__ == "__main__":
    main()
