#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=1200 gate="--short" night="" measures="src/model_config src/models src/nn src/engine"
"""Qwen3 of octavo against transformers: norms of the heads of queries and keys, windows in the last layers."""
from transformers import Qwen3Config, Qwen3ForCausalLM

from llama_family import LLAMA3, REFUSED, run_whole_family, setting

SIZES = dict(num_hidden_layers=2, max_position_embeddings=256)
THETA = dict(rope_type="default", rope_theta=1e6)
CASES = {
    "plain": dict(config=SIZES | dict(
        hidden_size=64, intermediate_size=172, num_attention_heads=4, num_key_value_heads=4, head_dim=16, vocab_size=257,
        rope_parameters=THETA)),
    "trained": dict(config=SIZES | dict(
        num_hidden_layers=3, hidden_size=64, intermediate_size=160, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, vocab_size=272, tie_word_embeddings=True, rope_parameters=THETA, use_sliding_window=True,
        sliding_window=24, max_window_layers=1)),
    "one_key": dict(config=SIZES | dict(
        hidden_size=96, intermediate_size=144, num_attention_heads=4, num_key_value_heads=1, head_dim=16,
        vocab_size=500, rms_norm_eps=1e-3, attention_bias=True, rope_parameters=THETA | dict(
            rope_type="yarn", factor=4.0, original_max_position_embeddings=64)), dtype="bf16", max_shard_size="60KB"),
    "stretched": dict(config=SIZES | dict(
        hidden_size=96, intermediate_size=144, num_attention_heads=4, num_key_value_heads=2, head_dim=16, vocab_size=331,
        rope_parameters=LLAMA3 | dict(rope_theta=1e6)), dtype="bf16"),
}


def without_length(config):
    config |= {"use_sliding_window": True, "sliding_window": None, "layer_types": None, "max_window_layers": 0}


REFUSALS = [
    ("sliding_window", without_length, REFUSED),
    setting("layer_types", ["full_attention", "chunked_attention"]),
    setting("layer_types", ["full_attention"]),
    setting("num_experts", 8),
]

if __name__ == "__main__":
    run_whole_family(Qwen3Config, Qwen3ForCausalLM, CASES, REFUSALS)
