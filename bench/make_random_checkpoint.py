#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# bench:
"""A sharded BF16 checkpoint of random weights in the shape of a real model, written tensor by tensor.

    bench/make_random_checkpoint.py OUT llama-3.1-8b
    bench/make_random_checkpoint.py OUT qwen2.5-14b --headers-only

--headers-only: the files have their full size and their headers, and the data is a hole in the file system (zeros that
take no space): enough to open, verify and plan with, not to compute with."""
import argparse
import json
import pathlib
import struct

import numpy as np

BLOCK = 1 << 22  # numbers drawn at a time
DEVIATION = 0.02
LLAMA3_ROPE = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192}
CONFIGS = {
    "llama-3.1-8b": dict(
        model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=4096, intermediate_size=14336,
        num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, vocab_size=128256,
        max_position_embeddings=131072, rms_norm_eps=1e-5, rope_theta=500000.0, rope_scaling=LLAMA3_ROPE,
        tie_word_embeddings=False, hidden_act="silu", attention_bias=False, mlp_bias=False,
        bos_token_id=128000, eos_token_id=128001, torch_dtype="bfloat16"),
    "qwen2.5-14b": dict(
        model_type="qwen2", architectures=["Qwen2ForCausalLM"], hidden_size=5120, intermediate_size=13824,
        num_hidden_layers=48, num_attention_heads=40, num_key_value_heads=8, vocab_size=152064,
        max_position_embeddings=131072, rms_norm_eps=1e-5, rope_theta=1000000.0, tie_word_embeddings=False,
        hidden_act="silu", use_sliding_window=False, sliding_window=131072, max_window_layers=48,
        bos_token_id=151643, eos_token_id=151643, torch_dtype="bfloat16"),
}


def tensors_of(config):
    """[(name, shape)] in the order of the model."""
    c, mlp, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    kv = c // heads * config["num_key_value_heads"]
    shapes = [("model.embed_tokens.weight", (config["vocab_size"], c))]
    for i in range(config["num_hidden_layers"]):
        layer = f"model.layers.{i}."
        shapes.append((layer + "input_layernorm.weight", (c,)))
        for name, rows in (("q_proj", c), ("k_proj", kv), ("v_proj", kv)):
            shapes.append((f"{layer}self_attn.{name}.weight", (rows, c)))
            if config["model_type"] == "qwen2":
                shapes.append((f"{layer}self_attn.{name}.bias", (rows,)))
        shapes += [(layer + "self_attn.o_proj.weight", (c, c)), (layer + "post_attention_layernorm.weight", (c,)),
                   (layer + "mlp.gate_proj.weight", (mlp, c)), (layer + "mlp.up_proj.weight", (mlp, c)),
                   (layer + "mlp.down_proj.weight", (c, mlp))]
    return shapes + [("model.norm.weight", (c,)), ("lm_head.weight", (config["vocab_size"], c))]


def size_of(shape):
    return 2 * int(np.prod(shape))


def cut(shapes, count):
    """`count` shards of about the same size."""
    total, shards, filled = sum(size_of(s) for _, s in shapes), [[]], 0
    for name, shape in shapes:
        if filled >= total * len(shards) / count:
            shards.append([])
        shards[-1].append((name, shape))
        filled += size_of(shape)
    return shards


def bf16(values):
    """Round to nearest even; values are finite."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def numbers(name, shape, generator):
    """Blocks of BF16 bits: norms are 1, the rest is random."""
    left = int(np.prod(shape))
    while left > 0:
        count = min(left, BLOCK)
        values = generator.standard_normal(count, dtype=np.float32) * np.float32(DEVIATION)
        yield bf16(np.ones(count, np.float32) if "norm" in name else values).tobytes()
        left -= count


def write_shard(path, tensors, generator):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in tensors:
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + size_of(shape)]}
        at += size_of(shape)
    text = json.dumps(header).encode()
    text += b" " * (-(8 + len(text)) % 64)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        if generator is None:
            file.truncate(8 + len(text) + at)
            return
        for name, shape in tensors:
            for block in numbers(name, shape, generator):
                file.write(block)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("config", choices=CONFIGS)
    parser.add_argument("--headers-only", action="store_true")
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--layers", type=int, default=0, help="fewer blocks, for a try")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    config = dict(CONFIGS[options.config])
    if options.layers > 0:
        config["num_hidden_layers"] = options.layers
    options.out.mkdir(parents=True)  # never into a folder that is there already
    shards, weight_map = cut(tensors_of(config), options.shards), {}
    generator = None if options.headers_only else np.random.Generator(np.random.SFC64(options.seed))
    for number, tensors in enumerate(shards, 1):
        name = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        write_shard(options.out / name, tensors, generator)
        weight_map |= {tensor: name for tensor, _ in tensors}
        print(f"{name}: {len(tensors)} tensors, {sum(size_of(s) for _, s in tensors) / 1e9:.2f} GB", flush=True)
    total = sum(size_of(s) for shard in shards for _, s in shard)
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (options.out / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    (options.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    print(f"config={options.config} parameters={total // 2} bytes={total} shards={len(shards)}")


if __name__ == "__main__":
    main()
