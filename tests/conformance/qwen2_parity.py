#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 gate="" measures="src/models src/nn src/engine"
"""Qwen2 of octavo against transformers: random models with every option."""
from transformers import Qwen2Config, Qwen2ForCausalLM

from llama_family import LLAMA3, REFUSED, run_family, setting

# As the published sizes: bias on queries, keys and values only, a large base, a tied head below 7B.
SIZES = dict(num_hidden_layers=2, max_position_embeddings=256)
THETA = 1e6
CASES = {
    "plain": dict(config=SIZES | dict(
        hidden_size=64, intermediate_size=172, num_attention_heads=4, num_key_value_heads=4, vocab_size=257,
        rope_parameters=dict(rope_type="default", rope_theta=THETA))),
    "grouped": dict(config=SIZES | dict(
        hidden_size=112, intermediate_size=160, num_attention_heads=14, num_key_value_heads=2, vocab_size=331,
        tie_word_embeddings=True, rms_norm_eps=1e-5,
        rope_parameters=dict(rope_type="default", rope_theta=THETA)), dtype="bf16", max_shard_size="60KB"),
    "one_key": dict(config=SIZES | dict(
        hidden_size=96, intermediate_size=144, num_attention_heads=4, num_key_value_heads=1, head_dim=16,
        vocab_size=500, rms_norm_eps=1e-3), max_shard_size="100KB"),
    "deep": dict(config=SIZES | dict(
        num_hidden_layers=5, hidden_size=128, intermediate_size=192, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=449, tie_word_embeddings=True, rope_parameters=LLAMA3 | dict(rope_theta=THETA)), dtype="bf16"),
}


def window_in_use(config):
    config |= {"use_sliding_window": True, "sliding_window": 32, "max_window_layers": 0}
    del config["layer_types"]


REFUSALS = [
    ("use_sliding_window", window_in_use, REFUSED),
    setting("layer_types", ["full_attention", "sliding_attention"]),
]

if __name__ == "__main__":
    run_family(Qwen2Config, Qwen2ForCausalLM, CASES, REFUSALS)
