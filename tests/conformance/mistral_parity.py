#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=1200 night="" measures="src/model_config src/models src/nn src/engine"
"""Mistral of octavo against transformers: windows shorter and longer than the sequence, and none."""
from transformers import MistralConfig, MistralForCausalLM

from llama_family import DAMAGED, LLAMA3, run_whole_family, setting

SIZES = dict(num_hidden_layers=2, max_position_embeddings=256)
CASES = {
    "whole": dict(config=SIZES | dict(
        hidden_size=64, intermediate_size=172, num_attention_heads=4, num_key_value_heads=4, vocab_size=257,
        sliding_window=None)),
    "trained": dict(config=SIZES | dict(
        hidden_size=64, intermediate_size=160, num_attention_heads=4, num_key_value_heads=2, vocab_size=272,
        sliding_window=32)),
    "narrow": dict(config=SIZES | dict(
        hidden_size=96, intermediate_size=144, num_attention_heads=6, num_key_value_heads=6, head_dim=24, vocab_size=331,
        sliding_window=1, rope_parameters=dict(rope_type="default", rope_theta=1e6)), dtype="bf16"),
    "stretched": dict(config=SIZES | dict(
        hidden_size=96, intermediate_size=144, num_attention_heads=4, num_key_value_heads=1, head_dim=16, vocab_size=500,
        sliding_window=100, rms_norm_eps=1e-3, tie_word_embeddings=True,
        rope_parameters=LLAMA3 | dict(rope_theta=1e6)), dtype="bf16", max_shard_size="60KB"),
}
REFUSALS = [
    setting("attention_bias", True),
    setting("mlp_bias", True),
    setting("layer_types", ["full_attention", "sliding_attention"]),
    setting("sliding_window", 0, DAMAGED),
]

if __name__ == "__main__":
    run_whole_family(MistralConfig, MistralForCausalLM, CASES, REFUSALS)
