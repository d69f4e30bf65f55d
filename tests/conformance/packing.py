#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 gate="" measures="src/models src/nn src/engine"
"""Documents that share a row do not see each other: logits and gradients of a packed batch are those of its documents one by
one, for GPT-2 and Llama, in FP32.

Parts of the documents are masked, one document is masked as a whole, one is a single token, and the last of a row is cut off
by the row's end. The same rows without their documents' starts are the control: they must give something else.
"""
import pathlib
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from llama_family import LLAMA3
from model_parity import NOTHING, TOOL, randomize, require, save_batch, tool

LIMIT, CONTROL = 1e-5, 1e-2
LENGTH = 96
ROWS = ([5, 1, 40, 17, 33], [96], [31, 2, 63])  # lengths of documents
MASKED = 3  # this document

MODELS = {
    "gpt2": lambda: GPT2LMHeadModel(GPT2Config(
        n_layer=2, n_head=4, n_embd=64, vocab_size=257, n_positions=LENGTH, attn_pdrop=0, embd_pdrop=0, resid_pdrop=0,
        bos_token_id=0, eos_token_id=0)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(
        num_hidden_layers=3, hidden_size=96, intermediate_size=160, num_attention_heads=6, num_key_value_heads=2,
        head_dim=24, vocab_size=331, attention_bias=True, max_position_embeddings=LENGTH, bos_token_id=0,
        eos_token_id=0, rope_parameters=LLAMA3 | dict(rope_theta=500000.0, original_max_position_embeddings=32))),
}


def documents(vocab):
    """[(ids, targets)]; a target of -1 is masked, as the first half of each document, like a question."""
    generator = torch.Generator().manual_seed(vocab)
    made = []
    for number, length in enumerate(n for row in ROWS for n in row):
        ids = torch.randint(0, vocab, (length + 1,), generator=generator)
        targets = ids[1:].clone()
        targets[:length // 2] = -1
        if number == MASKED:
            targets[:] = -1
        made.append((ids[:-1], targets))
    return made


def run(folder, out, inputs, targets, starts=None, *options):
    """(logits, gradients of the sum of losses)"""
    out.mkdir()
    save_batch(out / "batch.safetensors", inputs, targets, starts)
    tool("check", folder, out / "batch.safetensors", out, *options)
    gradients = load_file(out / "gradients.safetensors")
    gradients.pop("loss")
    loss_tokens = (targets >= 0).sum().item()  # the tool's gradients are of the mean
    return load_file(out / "logits.safetensors")["logits"], {n: g.double() * loss_tokens for n, g in gradients.items()}


def worst_difference(found, wanted):
    """Norm of the difference over the norm, of the worst parameter; those without a gradient must have none."""
    assert found.keys() == wanted.keys()
    least = NOTHING * max(t.norm().item() for t in wanted.values())
    return max((found[n] - t).norm().item() / max(t.norm().item(), least) for n, t in wanted.items())


def check(name, work):
    model = randomize(MODELS[name](), len(name))
    folder = work / name
    model.save_pretrained(folder)
    parts = documents(model.config.vocab_size)
    inputs, targets = (torch.cat(list(column)).view(len(ROWS), LENGTH) for column in zip(*parts))
    starts = torch.tensor([0, *(len(ids) for ids, _ in parts)]).cumsum(0)[:-1]

    logits, total = [], {}
    for number, (ids, wanted) in enumerate(parts):
        alone_targets = wanted if (wanted >= 0).any() else ids  # the tool requires a loss token; not counted below
        alone, gradients = run(folder, work / f"{name}-{number}", ids[None], alone_targets[None])
        logits.append(alone)
        for key, gradient in gradients.items() if alone_targets is wanted else ():
            total[key] = total.get(key, 0) + gradient
    logits, results = torch.cat(logits), []
    for options in ((), ("checkpointing",)):
        packed, gradients = run(folder, work / "-".join([name, "packed", *options]), inputs, targets, starts, *options)
        results.append(((packed - logits).abs().max().item(), worst_difference(gradients, total)))
        print(f"{name} {' '.join(options) or 'plain'}: {len(parts)} documents in {len(ROWS)} rows, logits within "
              f"{results[-1][0]:.2e}, gradients within {results[-1][1]:.2e} of their norm", flush=True)
    mixed = run(folder, work / f"{name}-mixed", inputs, targets)[1]
    control = worst_difference(mixed, total)
    print(f"{name} without starts: gradients differ by {control:.2e}", flush=True)
    return max(f[0] for f in results), max(f[1] for f in results), control, len(total)


def main():
    require(TOOL)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        found = [check(name, pathlib.Path(temporary)) for name in MODELS]
    logit_diff, gradient, control = max(f[0] for f in found), max(f[1] for f in found), min(f[2] for f in found)
    print(f"logit_diff={logit_diff:.2e} gradient_rel={gradient:.2e} control={control:.2e} models={len(found)} "
          f"parameters={sum(f[3] for f in found)}")
    sys.exit(0 if gradient <= LIMIT and logit_diff <= LIMIT and control >= CONTROL else 1)


if __name__ == "__main__":
    main()
