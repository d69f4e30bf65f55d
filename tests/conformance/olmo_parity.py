#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=1200 night="" measures="src/model_config src/models src/nn src/engine"
"""OLMo 2 and OLMo 3 of octavo against transformers: norms after the branches and of all queries and keys; windows, and
rotary positions of two kinds."""
import sys

from transformers import Olmo2Config, Olmo2ForCausalLM, Olmo3Config, Olmo3ForCausalLM

from llama_family import LLAMA3, check_whole, family_is_good, setting
from model_parity import TOOL, require
from training_parity import TEXT

SIZES = dict(num_hidden_layers=2, max_position_embeddings=256)
OLMO2 = {
    "plain": dict(config=SIZES | dict(
        hidden_size=64, intermediate_size=172, num_attention_heads=4, num_key_value_heads=4, vocab_size=257)),
    "trained": dict(config=SIZES | dict(
        hidden_size=64, intermediate_size=160, num_attention_heads=4, num_key_value_heads=2, vocab_size=272,
        rms_norm_eps=1e-6, rope_parameters=dict(rope_type="default", rope_theta=5e5))),
    "biased": dict(config=SIZES | dict(
        hidden_size=96, intermediate_size=144, num_attention_heads=6, num_key_value_heads=2, vocab_size=500,
        attention_bias=True, tie_word_embeddings=True, rope_parameters=LLAMA3 | dict(rope_theta=5e5)),
        dtype="bf16", max_shard_size="60KB"),
}
DEFAULT = dict(rope_type="default", rope_theta=5e5)
YARN = dict(rope_type="yarn", rope_theta=5e5, factor=8.0, original_max_position_embeddings=32, beta_fast=32.0, beta_slow=1.0,
            attention_factor=1.2079441541679836)
OLMO3 = {
    "three": dict(config=SIZES | dict(
        num_hidden_layers=4, hidden_size=64, intermediate_size=172, num_attention_heads=4, num_key_value_heads=4,
        vocab_size=257, sliding_window=20)),
    "trained": dict(config=SIZES | dict(
        num_hidden_layers=4, hidden_size=64, intermediate_size=160, num_attention_heads=4, num_key_value_heads=2,
        vocab_size=272, sliding_window=32, rms_norm_eps=1e-6,
        rope_parameters=dict(full_attention=YARN, sliding_attention=DEFAULT))),
    "mixed": dict(config=SIZES | dict(
        hidden_size=96, intermediate_size=144, num_attention_heads=6, num_key_value_heads=2, vocab_size=500,
        sliding_window=50, layer_types=["full_attention", "sliding_attention"], attention_bias=True,
        rope_parameters=dict(full_attention=YARN | dict(factor=2.0), sliding_attention=DEFAULT)), dtype="bf16",
        max_shard_size="60KB"),
}
REFUSALS2 = [setting("clip_qkv", 8.0), setting("sliding_window", 32)]
REFUSALS3 = [setting("layer_types", ["full_attention"]), setting("layer_types", ["chunked_attention"] * 4)]

if __name__ == "__main__":
    require(TOOL, TEXT)
    good = True
    for config_class, model_class, cases, refusals in ((Olmo2Config, Olmo2ForCausalLM, OLMO2, REFUSALS2),
                                                       (Olmo3Config, Olmo3ForCausalLM, OLMO3, REFUSALS3)):
        good &= family_is_good(config_class, model_class, cases, refusals, lambda work: check_whole(
            work, "trained", config_class, model_class, cases["trained"]))
    sys.exit(0 if good else 1)
