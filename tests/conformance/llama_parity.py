#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 gate="" measures="src/models src/nn src/engine"
"""Llama of octavo against transformers: random models with every option, and a real one of 260,000 weights against the
reference that was computed in FP64."""
import json

import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM

from llama_family import LLAMA3, run_family
from model_parity import DATA, LOGIT_DIFF, require, save_batch, tool

STORIES = DATA / "data" / "models" / "stories260K"
GREEDY = 200

# Keys shared by none, some and all queries; heads of another size than width / heads; vocabularies that are no multiple
# of 64. Biases are on all four matrices of attention here, unlike Qwen2's.
SIZES = dict(num_hidden_layers=2, max_position_embeddings=256)
CASES = {
    "plain": dict(config=SIZES | dict(
        hidden_size=64, intermediate_size=172, num_attention_heads=4, num_key_value_heads=4, vocab_size=257)),
    "grouped": dict(config=SIZES | dict(
        hidden_size=96, intermediate_size=160, num_attention_heads=6, num_key_value_heads=2, head_dim=24,
        vocab_size=331, tie_word_embeddings=True, rms_norm_eps=1e-5,
        rope_parameters=LLAMA3 | dict(rope_theta=500000.0)), dtype="bf16", max_shard_size="60KB"),
    "one_key": dict(config=SIZES | dict(
        hidden_size=96, intermediate_size=144, num_attention_heads=4, num_key_value_heads=1, head_dim=16,
        vocab_size=500, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-3,
        rope_parameters=dict(rope_type="default", rope_theta=1e6)), max_shard_size="100KB"),
    "deep": dict(config=SIZES | dict(
        num_hidden_layers=5, hidden_size=128, intermediate_size=192, num_attention_heads=2, num_key_value_heads=2,
        vocab_size=449, attention_bias=True, tie_word_embeddings=True, rms_norm_eps=1e-5,
        rope_parameters=LLAMA3 | dict(rope_theta=10000.0, factor=32.0)), dtype="bf16"),
    "ffn_bias": dict(config=SIZES | dict(
        hidden_size=64, intermediate_size=96, num_attention_heads=8, num_key_value_heads=4, vocab_size=129,
        mlp_bias=True)),
}


def check_stories(work):
    """The pretrained model: logits and losses of a story, and its greedy text with and without a key-value cache."""
    reference = json.loads((STORIES / "reference.json").read_text())
    story = reference["story0"]
    ids = torch.tensor([story["ids"]])
    out = work / "stories"
    out.mkdir()
    save_batch(out / "batch.safetensors", ids, torch.cat([ids[:, 1:], torch.tensor([[-1]])], 1))
    tool("check", STORIES, out / "batch.safetensors", out)
    logits = load_file(out / "logits.safetensors")["logits"]
    losses = -logits[:-1].log_softmax(1).gather(1, ids[0, 1:, None]).flatten()
    with torch.no_grad():
        theirs = LlamaForCausalLM.from_pretrained(STORIES).eval()(ids).logits[0]
    diff = max((found - torch.as_tensor(wanted)).abs().max().item() for found, wanted in (
        (logits[0, :16], story["logits_pos0_first16"]), (logits[-2, :16], story["logits_last_first16"]),
        (losses[:8], story["nll_first8"]), (logits, theirs)))
    loss = abs(losses.double().mean().item() - story["nll_mean"])

    wanted = reference["greedy_from_bos_ids"]
    assert len(wanted) == GREEDY + 1
    equal = []
    for mode in ("cached", "whole"):
        new = json.loads(tool("greedy", STORIES, mode, GREEDY, wanted[0])[0])["new"]
        equal.append(sum(a == b for a, b in zip(new, wanted[1:])) if len(new) == GREEDY else 0)
    words = f" stories_diff={diff:.2e} stories_loss_diff={loss:.2e} greedy_cached={equal[0]} greedy_whole={equal[1]}"
    return words, diff <= LOGIT_DIFF and loss <= LOGIT_DIFF and equal == [GREEDY, GREEDY]


if __name__ == "__main__":
    require(STORIES)
    run_family(LlamaConfig, LlamaForCausalLM, CASES, [], check_stories)
