#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=1200 gate="--short" night="" measures="src/model_config src/models src/nn src/engine"
"""Gemma 3 of octavo against transformers: four norms a block whose scale is 1 + weight, norms of the heads of queries and
keys, GeGLU, scaled embeddings, windows, and rotary positions of two kinds."""
from transformers import Gemma3ForCausalLM, Gemma3TextConfig

from llama_family import DAMAGED, run_whole_family, setting

SIZES = dict(num_hidden_layers=2, max_position_embeddings=256)
GLOBAL, LOCAL = dict(rope_type="default", rope_theta=1e6), dict(rope_type="default", rope_theta=1e4)
CASES = {
    "six": dict(config=SIZES | dict(
        num_hidden_layers=6, hidden_size=64, intermediate_size=172, num_attention_heads=4, num_key_value_heads=4,
        head_dim=16, vocab_size=257, sliding_window=20, query_pre_attn_scalar=16)),
    "trained": dict(config=SIZES | dict(
        num_hidden_layers=3, hidden_size=64, intermediate_size=160, num_attention_heads=4, num_key_value_heads=2,
        head_dim=32, vocab_size=272, sliding_window=32, query_pre_attn_scalar=24,
        layer_types=["sliding_attention", "sliding_attention", "full_attention"],
        rope_parameters=dict(full_attention=GLOBAL | dict(rope_type="linear", factor=8.0), sliding_attention=LOCAL))),
    "biased": dict(config=SIZES | dict(
        hidden_size=96, intermediate_size=144, num_attention_heads=6, num_key_value_heads=2, head_dim=24, vocab_size=500,
        sliding_window=50, query_pre_attn_scalar=100, attention_bias=True, tie_word_embeddings=False, rms_norm_eps=1e-3,
        layer_types=["full_attention", "sliding_attention"],
        rope_parameters=dict(full_attention=GLOBAL, sliding_attention=LOCAL | dict(rope_theta=5e3))), dtype="bf16",
        max_shard_size="60KB"),
}
REFUSALS = [
    setting("use_bidirectional_attention", True),
    setting("query_pre_attn_scalar", 0, DAMAGED),
    setting("layer_types", ["full_attention"]),
    setting("model_type", "gemma3"),
]

if __name__ == "__main__":
    run_whole_family(Gemma3TextConfig, Gemma3ForCausalLM, CASES, REFUSALS)
