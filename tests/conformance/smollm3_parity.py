#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=1200 night="" measures="src/model_config src/models src/nn src/engine"
"""SmolLM3 of octavo against transformers: layers without positions, with windows and without."""
from transformers import SmolLM3Config, SmolLM3ForCausalLM

from llama_family import LLAMA3, run_whole_family, setting

SIZES = dict(num_hidden_layers=4, max_position_embeddings=256)
THETA = dict(rope_type="default", rope_theta=5e6)
CASES = {
    "plain": dict(config=SIZES | dict(
        hidden_size=64, intermediate_size=172, num_attention_heads=4, num_key_value_heads=4, vocab_size=257,
        rope_parameters=THETA)),
    "trained": dict(config=SIZES | dict(
        hidden_size=64, intermediate_size=160, num_attention_heads=4, num_key_value_heads=2, vocab_size=272,
        no_rope_layers=[1, 0, 1, 0], use_sliding_window=True, sliding_window=24, rope_parameters=THETA)),
    "interval": dict(config=SIZES | dict(
        hidden_size=96, intermediate_size=144, num_attention_heads=4, num_key_value_heads=1, vocab_size=500,
        no_rope_layer_interval=2, attention_bias=True, mlp_bias=True, tie_word_embeddings=False,
        rope_parameters=LLAMA3 | dict(rope_theta=1e6)), dtype="bf16", max_shard_size="60KB"),
}
REFUSALS = [
    setting("no_rope_layers", [1, 0]),
    setting("no_rope_layers", [1, 2, 1, 0]),
    setting("layer_types", ["chunked_attention"] * 4),
]

if __name__ == "__main__":
    run_whole_family(SmolLM3Config, SmolLM3ForCausalLM, CASES, REFUSALS)
