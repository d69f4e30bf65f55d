#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate="--short" night=""
"""octavo plan --dry_run for the shapes that people train, in BF16 and FP8, full and LoRA: exact memory of the real allocator on
a fake CUDA device. Each within two minutes and 8 GiB of host memory. Beside it the same step of PyTorch, where
PyTorch can say it: BF16 weights, gradients and moments, AdamW, recompute. With --short: GPT-2, one Llama and one LoRA."""
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import fake_cuda
from common import OCTAVO, require_files

SECONDS, HOST_BYTES = 120, 8 << 30


def llama(width, layers, heads, kv_heads, mlp, vocab, tied, kind="llama", head_dim=None):
    return {"model_type": kind, "hidden_size": width, "intermediate_size": mlp, "num_hidden_layers": layers,
            "num_attention_heads": heads, "num_key_value_heads": kv_heads, "vocab_size": vocab,
            "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
            "tie_word_embeddings": tied} | ({"head_dim": head_dim} if head_dim else {})


MODELS = {"llama-3.2-1b": llama(2048, 16, 32, 8, 8192, 128256, True, head_dim=64),
          "llama-3.2-3b": llama(3072, 28, 24, 8, 8192, 128256, True, head_dim=128),
          "llama-3.1-8b": llama(4096, 32, 32, 8, 14336, 128256, False, head_dim=128),
          "qwen2.5-14b": llama(5120, 48, 40, 8, 13824, 152064, False, "qwen2")}
LOW = ["--master_dtype", "bf16", "--moment_dtype", "bf16", "--gradient_dtype", "bf16"]
SHAPE = ["--batch_size", "2", "--max_seq_length", "1024", "--gradient_checkpointing"]
# A PyTorch user's step of the same shape: transformers is not needed for memory.
PYTORCH = r"""
import json, sys, torch, torch.nn as nn, torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
torch.backends.cuda.enable_cudnn_sdp(False)
c = json.loads(sys.argv[1])
D, H, K, FF, L, V = (c[k] for k in ("hidden_size", "num_attention_heads", "num_key_value_heads", "intermediate_size",
                                    "num_hidden_layers", "vocab_size"))
E, bias = c.get("head_dim", D // H), c["model_type"] == "qwen2"

class Block(nn.Module):
    def __init__(s):
        super().__init__()
        s.q, s.k, s.v = nn.Linear(D, H * E, bias), nn.Linear(D, K * E, bias), nn.Linear(D, K * E, bias)
        s.o = nn.Linear(H * E, D, False)
        s.g, s.u, s.d = nn.Linear(D, FF, False), nn.Linear(D, FF, False), nn.Linear(FF, D, False)
        s.n1, s.n2 = nn.RMSNorm(D), nn.RMSNorm(D)
    def forward(s, x):
        b, t, _ = x.shape
        h = s.n1(x)
        q, k, v = (f(h).view(b, t, n, E).transpose(1, 2) for f, n in ((s.q, H), (s.k, K), (s.v, K)))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + s.o(a.transpose(1, 2).reshape(b, t, H * E))
        h = s.n2(x)
        return x + s.d(F.silu(s.g(h)) * s.u(h))

torch.set_default_dtype(torch.bfloat16)
with torch.device("cuda"):
    e, blocks, n = nn.Embedding(V, D), nn.ModuleList([Block() for _ in range(L)]), nn.RMSNorm(D)
    head = nn.Linear(D, V, bias=False)
if c["tie_word_embeddings"]:
    head.weight = e.weight
parameters = list({id(p): p for m in (e, blocks, n, head) for p in m.parameters()}.values())
optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=True)
ids = torch.zeros((2, 1024), dtype=torch.long, device="cuda")
for _ in range(3):
    x = e(ids)
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False)
    F.cross_entropy(head(n(x)).float().view(-1, V), ids.view(-1)).backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(torch.cuda.max_memory_allocated())
"""


def dry_run(work, *flags):
    """The report, seconds, and the largest host memory of all runs so far."""
    begin = time.monotonic()
    done = subprocess.run([OCTAVO, "plan", "--dry_run", "--json", *map(str, flags)], cwd=work, text=True, capture_output=True)
    seconds = time.monotonic() - begin
    if done.returncode != 0:
        return None, seconds, done.stderr.strip()[-300:]
    return json.loads(done.stdout[done.stdout.index("{"):]), seconds, ""


def pytorch_peak(config):
    done = subprocess.run([sys.executable, "-c", PYTORCH, json.dumps(config)], text=True, capture_output=True,
                          env=fake_cuda.environment(capability=90, memory=400_000_000_000))
    return int(done.stdout.split()[-1]) / 1e9 if done.returncode == 0 else None


def main():
    require_files()
    fake_cuda.require_libraries()
    failed, cases, slowest = [], 0, 0.0
    with tempfile.TemporaryDirectory(prefix="octavo-dry-run-") as folder:
        work = pathlib.Path(folder)
        runs = [("gpt2 124M", ["--model_name", "gpt2", "--batch_size", 8], None)]
        short = "--short" in sys.argv
        for name, config in MODELS.items():
            if short and name != "llama-3.1-8b":
                continue
            (work / name).mkdir()
            (work / name / "config.json").write_text(json.dumps(config))
            gpu = ["--gpu", "b200"] if "14b" in name else []  # 180 GB: its full state does not fit 80
            runs.append((f"{name} full", ["--model_name", work / name, *SHAPE, *LOW, *gpu], config))
        for rank in (8,) if short else (8, 32):
            runs.append((f"llama-3.1-8b LoRA rank {rank}",
                         ["--model_name", work / "llama-3.1-8b", *SHAPE, "--lora_rank", rank], None))
        print("| run | precision | peak GB | must fit GB | kernels | GEMMs | s | PyTorch, BF16, peak GB |\n|---|---|---|---|---|---|---|---|")
        peaks = {}
        for name, flags, config in runs:
            beside = pytorch_peak(config) if config else None
            for precision in ([], ["--use_fp8"]):
                cases += 1
                found, seconds, problem = dry_run(work, *flags, *precision)
                slowest = max(slowest, seconds)
                if found is None or seconds > SECONDS or "fake" not in found["device"]:
                    failed.append(f"{name} {precision}: {seconds:.0f} s {problem}")
                    continue
                peaks[name, bool(precision)] = found["peak_bytes"]
                theirs = f"{beside:.2f}" if beside and not precision else ""
                print(f"| {name} | {found['precision'].split(',')[0]} | {found['peak_bytes'] / 1e9:.2f} | "
                      f"{found['reserved_bytes'] / 1e9:.2f} | {found['launches']} | {found['products']} | {seconds:.1f} | {theirs} |",
                      flush=True)
        # A known name needs neither files nor a network, and is the same model, but for its context.
        cases += 1
        found, _, problem = dry_run(work, "--model_name", "meta-llama/Meta-Llama-3.1-8B", "--offline", *SHAPE, *LOW)
        wanted = peaks.get(("llama-3.1-8b full", False), 0)
        if found is None or abs(found["peak_bytes"] - wanted) > 0.01 * wanted:
            failed.append(f"Meta-Llama-3.1-8B by its name: {found and found['peak_bytes']}, not {peaks} {problem}")
        text = subprocess.run([OCTAVO, "plan", "--dry_run", "--model_name", "gpt2"], cwd=work, text=True, capture_output=True)
        lines = text.stdout.splitlines()
        cases += 1
        if text.returncode != 0 or not lines or not all(line.startswith("dry run |") for line in lines):
            failed.append("every line says dry run")
        # Many set it for their runs; it ended the dry run with a segmentation fault.
        cases += 1
        text = subprocess.run([OCTAVO, "plan", "--dry_run", "--model_name", "gpt2"], cwd=work, text=True, capture_output=True,
                              env=dict(os.environ, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True"))
        if text.returncode != 0 or "PYTORCH_CUDA_ALLOC_CONF is left out" not in text.stderr:
            failed.append(f"expandable segments: exit code {text.returncode}: {text.stderr[-300:]}")
        (work / "graph.yaml").write_text("model_name: custom\nn_layer: 1\nn_head: 1\nn_embd: 64\ncuda_graph: true\n")
        cases += 1
        found, _, problem = dry_run(work, "graph.yaml")
        if found is None:
            failed.append(f"a file with cuda_graph: {problem}")
    host = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    if host > HOST_BYTES:
        failed.append(f"host memory {host / 2**30:.1f} GiB")
    for line in failed:
        print("FAILED", line)
    print(f"cases={cases} failed={len(failed)} slowest_s={slowest:.1f} host_gib={host / 2**30:.2f}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
