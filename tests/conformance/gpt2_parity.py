#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 gate="--short" night="" measures="src/models src/nn src/engine"
"""GPT-2 of octavo against transformers: the same random weights give the same logits and gradients, survive a round
trip bit for bit, and take the same 200 training steps as a PyTorch loop on the same batches.
With --short 60 steps."""
import pathlib
import sys
import tempfile

import torch
from transformers import GPT2Config, GPT2LMHeadModel

from model_parity import TOOL, Agreement, check_gradients, randomize, require
from training_parity import BF16_REL, FP32_REL, TEXT, check_training

STEPS = 60 if "--short" in sys.argv else 200

# Vocabularies that are no multiple of 64 (ours are padded), samples shorter than the context, accumulation, a penalty.
CASES = {
    "plain": dict(
        model=dict(n_layer=2, n_head=4, n_embd=64, vocab_size=257, n_positions=64),
        train=dict(max_seq_length=64, batch_size=8)),
    "deep": dict(
        model=dict(n_layer=4, n_head=6, n_embd=96, vocab_size=331, n_positions=64),
        train=dict(max_seq_length=48, batch_size=5, gradient_accumulation_steps=2, penalty_weight=1e-3)),
}
def random_model(sizes, folder):
    no_dropout = dict(attn_pdrop=0, embd_pdrop=0, resid_pdrop=0)
    model = GPT2LMHeadModel(GPT2Config(**sizes, **no_dropout, bos_token_id=0, eos_token_id=0))
    randomize(model, sizes["n_layer"]).save_pretrained(folder)
    return model


def main():
    require(TOOL, TEXT)
    torch.set_num_threads(1)  # the models are small: a second thread only waits
    worst, losses = Agreement(), {"fp32": 0.0, "bf16": 0.0}
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        for name, case in CASES.items():
            folder = work / name
            model = random_model(case["model"], folder)
            for options in ((64,), (37,), (1,), (37, "checkpointing")):
                found = check_gradients(folder, model, *options)
                print(name, *options, found, f"logit_std={found.logit_std:.2f}", flush=True)
                worst.add(found)
            for precision in losses:
                losses[precision] = max(losses[precision], check_training(folder, work, name, STEPS, case["train"], precision))
    print(f"{worst} fp32_rel={losses['fp32']:.2e} bf16_rel={losses['bf16']:.2e} steps={STEPS}")
    sys.exit(0 if worst.good() and losses["fp32"] <= FP32_REL and losses["bf16"] <= BF16_REL else 1)


if __name__ == "__main__":
    main()
