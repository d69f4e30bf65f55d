#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# bench:
"""A training step of Qwen3-0.6B's shape and one of a tiny Qwen3-MoE in BF16: `octavo train` and a plain transformers + PyTorch
loop take turns, as beside_transformers.py has it, from the same random weights.

Both programs hold the model, its gradients and its optimizer at once, 34 bytes a parameter: of the 28 layers of Qwen3-0.6B
there are as many as fit into the memory that is free (LAYERS=N: so many), which the results name. What is left out makes the
head's share of the work larger than it is in the model.

usage: qwen3_vs_transformers.py [--tiny]      --tiny: small models, to see that it runs; speed is not judged
"""
import os
import pathlib
import subprocess
import sys
import tempfile

from beside_transformers import TARGET_LOSS, Comparison, require
from step_process import ROOT, StepProcess

TEXT = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT.parent / "shared")) / "data/text/tinyshakespeare.txt"
TINY = "--tiny" in sys.argv
TURNS = int(os.environ.get("TURNS", "5"))
GB_BESIDE = 7  # logits of the large vocabulary and libraries, both programs
DENSE = dict(vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
             num_key_value_heads=8, head_dim=128, tie_word_embeddings=True, max_position_embeddings=40960)
EXPERTS = dict(vocab_size=4096, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=8,
               num_key_value_heads=4, head_dim=32, num_experts=32, num_experts_per_tok=4, moe_intermediate_size=128,
               norm_topk_prob=True, max_position_embeddings=4096)
SMALL = dict(vocab_size=512, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
             num_key_value_heads=1, head_dim=32)
# Rows and their length, steps of a turn, and what the speed over transformers is to be.
SIZES = {"dense": (2, 512, 2, 1.5), "experts": (4, 256, 4, 2.0)}


def free_bytes():
    with open("/proc/meminfo") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) * 1024


def layers_that_fit():
    """Of Qwen3-0.6B, by the memory that is free."""
    s = DENSE
    heads = 2 * (s["num_attention_heads"] + s["num_key_value_heads"]) * s["head_dim"]
    layer = s["hidden_size"] * (heads + 3 * s["intermediate_size"])
    fit = ((free_bytes() - GB_BESIDE * 1e9) / 34 - s["vocab_size"] * s["hidden_size"]) // layer
    if fit < 1:
        sys.exit(f"wanted memory for one layer of Qwen3-0.6B in both programs, found {free_bytes() / 1e9:.1f} GB free; stop other programs")
    return min(int(fit), s["num_hidden_layers"])


def make_model(kind, layers, folder):
    """In a process of its own, whose memory is free afterwards."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(7)
    sizes = (DENSE if kind == "dense" else EXPERTS) | dict(num_hidden_layers=int(layers)) | (SMALL if TINY else {})
    make = {"dense": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
            "experts": (transformers.Qwen3MoeConfig, transformers.Qwen3MoeForCausalLM)}[kind]
    make[1](make[0](**sizes, bos_token_id=0, eos_token_id=0)).save_pretrained(folder)


def compare(kind, layers):
    batch, length, steps, target = SIZES[kind]
    print(f"{kind}: {layers} layers, {batch} x {length} tokens", flush=True)
    with tempfile.TemporaryDirectory(prefix="octavo-qwen3-") as temporary:
        work = pathlib.Path(temporary)
        tiny = ["--tiny"] if TINY else []
        subprocess.run([sys.executable, __file__, *tiny, "--make", kind, str(layers), str(work / "model")], check=True)
        found = Comparison(work / "model", dict(tokenizer="bytes", dataset=TEXT), batch, length, steps, TURNS).run(work)
    ours, theirs = found.rates()
    text = (f"{kind}_ratio={found.ratio():.3f} {kind}_octavo_tok_s={ours:.0f} {kind}_transformers_tok_s={theirs:.0f} "
            f"{kind}_loss_rel={found.loss_rel():.2e} {kind}_layers={layers} {kind}_batch={batch}x{length}")
    return text, found.loss_rel() <= TARGET_LOSS and (TINY or found.ratio() >= target)


def main():
    require(TEXT)
    layers = {"dense": int(os.environ.get("LAYERS", "0")) or layers_that_fit(), "experts": EXPERTS["num_hidden_layers"]}
    if TINY:
        layers = dict.fromkeys(layers, SMALL["num_hidden_layers"])
    texts, good = zip(*(compare(kind, count) for kind, count in layers.items()))
    print(*texts, f"turns={TURNS} taken_again={StepProcess.taken_again}{' tiny=1' if TINY else ''}")
    return 0 if all(good) else 1


if __name__ == "__main__":
    if "--make" in sys.argv:
        make_model(*sys.argv[sys.argv.index("--make") + 1:])
        sys.exit(0)
    sys.exit(main())
