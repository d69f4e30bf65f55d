"""The sound files that hostile ones are made from, and the list of the classes."""
import json
import struct

import numpy
import xxhash

OUTSIDE = "outside"  # a folder beside the case's own that nothing may open
CASES = []  # (name, kind, maker)


def case(kind):
    def add(maker):
        CASES.append((maker.__name__, kind, maker))
        return maker
    return add


def header_of(tensors):
    """{name: (dtype, shape, bytes)} to a safetensors header."""
    header, at = {}, 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    return header


def pack(header, data):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "hidden_size": 32,
          "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 320,
          "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": True,
          "rope_theta": 10000.0, "torch_dtype": "float32"}


def model_tensors():
    layer = "model.layers.0."
    shapes = {"model.embed_tokens.weight": [320, 32], "model.norm.weight": [32], layer + "input_layernorm.weight": [32],
              layer + "post_attention_layernorm.weight": [32], layer + "self_attn.q_proj.weight": [32, 32],
              layer + "self_attn.k_proj.weight": [16, 32], layer + "self_attn.v_proj.weight": [16, 32],
              layer + "self_attn.o_proj.weight": [32, 32], layer + "mlp.gate_proj.weight": [64, 32],
              layer + "mlp.up_proj.weight": [64, 32], layer + "mlp.down_proj.weight": [32, 64]}
    return {name: ("F32", shape, 4 * int(numpy.prod(shape))) for name, shape in shapes.items()}


def sound_weights():
    header = header_of(model_tensors())
    size = max(entry["data_offsets"][1] for entry in header.values())
    return header, numpy.full(size // 4, 0.01, numpy.float32).tobytes()


def sound_model(work):
    folder = work / "model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "model.safetensors").write_bytes(pack(*sound_weights()))


def digest(content):
    return xxhash.xxh3_128_hexdigest(content)


def sealed(value):
    body = json.dumps(value, indent=2) + "\n"
    return '{\n  "manifest_hash": "' + digest(body.encode()) + '",\n' + body[2:]


def manifest_of(folder):
    content = (folder / "model.safetensors").read_bytes()
    begin = 8 + struct.unpack("<Q", content[:8])[0]
    hashes = {name: digest(content[begin + e["data_offsets"][0]:begin + e["data_offsets"][1]])
              for name, e in json.loads(content[8:begin]).items()}
    entry = {"name": "model.safetensors", "size": len(content), "hash": digest(content), "tensors": len(hashes),
             "tensor_hashes": hashes, "header_hash": digest(content[:begin])}
    return {"version": 1, "step": 10, "tokens": 100, "precision": "fp32", "recipe": "", "val_loss": None,
            "created": "2026-01-01T00:00:00Z", "extra": {}, "files": [entry]}


def sound_checkpoint(work):
    folder = work / "checkpoints" / "step-00000010"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(pack({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}, bytes(16)))
    (folder / "manifest.json").write_text(sealed(manifest_of(folder)))
    return folder


TARGETS = {"q_proj": (32, 32), "v_proj": (16, 32)}


def sound_adapter(work, rank=4, named_rank=None, targets=None):
    sound_model(work)
    folder = work / "adapter"
    folder.mkdir()
    tensors = {}
    for module, (out, width) in TARGETS.items():
        prefix = f"base_model.model.model.layers.0.self_attn.{module}."
        tensors[prefix + "lora_A.weight"] = ("F32", [rank, width], 4 * rank * width)
        tensors[prefix + "lora_B.weight"] = ("F32", [out, rank], 4 * rank * out)
    header = header_of(tensors)
    (folder / "adapter_model.safetensors").write_bytes(
        pack(header, bytes(max(e["data_offsets"][1] for e in header.values()))))
    config = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": str(work / "model"),
              "r": rank if named_rank is None else named_rank, "lora_alpha": 8, "bias": "none",
              "target_modules": list(TARGETS) if targets is None else targets}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder, config


def sound_tokenizer():
    alphabet, extra = {}, 0
    for byte in range(256):
        plain = 33 <= byte <= 126 or 161 <= byte <= 172 or 174 <= byte <= 255
        alphabet[chr(byte if plain else 256 + extra)] = byte
        extra += 0 if plain else 1
    split = {"type": "Split", "pattern": {"Regex": "\\s+|\\S+"}, "behavior": "Isolated", "invert": False}
    return {"added_tokens": [added(300, "<|endoftext|>")], "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                split, {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]},
            "post_processor": None, "decoder": {"type": "ByteLevel"},
            "model": {"type": "BPE", "vocab": alphabet | {"ab": 256}, "merges": ["a b"]}}


def added(number, content):
    return {"id": number, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True}
