#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 gate=""
"""Files of Python's safetensors and transformers read by octavo, and octavo's read by Python, bit for bit."""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import safetensors.numpy
import safetensors.torch
import torch
from safetensors import safe_open

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release"))
TOOL = BUILD / "bin" / "safetensors_tool"

NAMES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8",
    torch.bool: "BOOL", torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2",
    torch.float8_e8m0fnu: "F8_E8M0",
}


def tool(*arguments):
    done = subprocess.run([TOOL, *map(str, arguments)], stdout=subprocess.PIPE, check=True)
    return done.stdout.decode().splitlines()


def raw(tensor):
    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes() if tensor.numel() else b""


def described(lines):
    """{name: (dtype, shape, bytes)} and the last line."""
    entries = [json.loads(line) for line in lines]
    return {e["name"]: (e["dtype"], e["shape"], bytes.fromhex(e["bytes"])) for e in entries[:-1]}, entries[-1]


def expected(tensors):
    return {name: (NAMES[t.dtype], list(t.shape), raw(t)) for name, t in tensors.items()}


def patterned(dtype, shape, generator):
    """Any bit pattern the dtype has, NaN payloads included."""
    size = torch.empty(0, dtype=dtype).element_size()
    count = 1
    for n in shape:
        count *= n
    high = 2 if dtype == torch.bool else 256
    data = torch.randint(0, high, (count * size,), dtype=torch.uint8, generator=generator)
    return data.view(dtype).reshape(shape)


def sample():
    generator = torch.Generator().manual_seed(1)
    tensors = {}
    for dtype in NAMES:
        for i, shape in enumerate([(), (1,), (3, 5), (2, 0, 3), (64, 8), (1, 1, 1, 7)]):
            tensors[f"{NAMES[dtype]}.{i}"] = patterned(dtype, shape, generator)
    for i in range(500):
        tensors[f"model.layers.{i}.größe/重み \"{i}\""] = patterned(torch.bfloat16, (i % 7, 3), generator)
    return tensors


def python_to_octavo(folder):
    tensors, metadata = sample(), {"format": "pt", "größe": "\"quoted\"\n"}
    path = folder / "python.safetensors"
    safetensors.torch.save_file(tensors, path, metadata=metadata)
    found, last = described(tool("describe", path))
    assert found == expected(tensors), "octavo read a Python file differently"
    assert last["metadata"] == metadata

    arrays = {"a": patterned(torch.float32, (5, 3), None).numpy(), "b": torch.arange(7).numpy()}
    safetensors.numpy.save_file(arrays, path)
    found, _ = described(tool("describe", path))
    assert {n: f[2] for n, f in found.items()} == {n: a.tobytes() for n, a in arrays.items()}
    return len(tensors) + len(arrays)


def octavo_to_python(folder):
    path = folder / "octavo.safetensors"
    tool("make", path)
    tensors = safetensors.torch.load_file(path)
    for name, tensor in tensors.items():
        dtype, _, count, salt = name.split(".")
        assert NAMES[tensor.dtype] == dtype and tensor.numel() == int(count), name
        mask = 1 if dtype == "BOOL" else 255
        wanted = bytes((i * 37 + i // 251 + int(salt)) & mask for i in range(tensor.nbytes))
        assert raw(tensor) == wanted, f"Python read {name} of an octavo file differently"
    with safe_open(path, "pt") as file:
        assert file.metadata() == {"format": "pt", "größe": "\"quoted\"\n\u2028"}
        assert file.get_slice("BF16.2.512." + next(
            n.split(".")[3] for n in file.keys() if n.startswith("BF16.2.512")))[1:3].shape == (2, 8)
    assert len(tensors) == len(NAMES) * 5
    return len(tensors)


def through_both(folder):
    tensors = sample()
    tensors["large"] = patterned(torch.float32, (1 << 24,), torch.Generator().manual_seed(2))
    safetensors.torch.save_file(tensors, folder / "a.safetensors", metadata={"x": "y"})
    tool("copy", folder / "a.safetensors", folder / "b.safetensors")
    again = safetensors.torch.load_file(folder / "b.safetensors")
    assert expected(again) == expected(tensors), "Python -> octavo -> Python changed bits"
    with safe_open(folder / "b.safetensors", "pt") as file:
        assert file.metadata() == {"x": "y"}
    return len(tensors)


def hugging_face(folder):
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(3)
    model = GPT2LMHeadModel(GPT2Config(n_layer=3, n_head=2, n_embd=64, vocab_size=500, n_positions=32))
    counts = []
    for shard_size in ("5GB", "200KB"):
        target = folder / f"hf-{shard_size}"
        model.save_pretrained(target, max_shard_size=shard_size)
        found, last = described(tool("describe_hf", target))
        wanted = expected(model.state_dict())
        tied = set(wanted) - set(found)
        assert tied <= {"lm_head.weight"}, f"not found: {tied}"
        assert all(found[name] == wanted[name] for name in found), "octavo read a transformers model differently"
        counts.append(last["shards"])
    assert counts[0] == 1 and counts[1] > 2, counts
    return counts[1]


def what_python_refuses(folder):
    """Mutated files: whatever Python's reader refuses, ours must refuse."""
    base = safetensors.torch.save(
        {"weight": torch.ones(4, 3), "bias": torch.ones(5, dtype=torch.bfloat16), "n": torch.tensor(3)}, {"a": "b"})
    header = 8 + int.from_bytes(base[:8], "little")
    chance, paths, refused = random.Random(4), [], []
    for i in range(1500):
        data = bytearray(base)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(header)
            kind = chance.randrange(4)
            if kind == 0:
                data[at] = chance.randrange(256)
            elif kind == 1:
                data[at] ^= 1 << chance.randrange(8)
            elif kind == 2:
                data[at] = ord(chance.choice('0123456789[]{},:"- \0'))
            else:
                del data[at]
                data[0] = (data[0] - 1) % 256  # keep the header length right
        paths.append(folder / f"mutant-{i}")
        paths[-1].write_bytes(data)
        try:
            safetensors.torch.load_file(paths[-1])
            refused.append(False)
        except Exception:
            refused.append(True)
    ours = [line == "refused" for line in tool("check", *paths)]
    assert len(ours) == len(paths)
    worse = [p for p, theirs, mine in zip(paths, refused, ours) if theirs and not mine]
    for path in worse[:5]:
        print(f"accepted here, refused by Python: {path.read_bytes()[:header]!r}")
    assert not worse, f"{len(worse)} files accepted here that Python refuses"
    return sum(refused), sum(mine and not theirs for theirs, mine in zip(refused, ours))


def main():
    if not TOOL.exists():
        sys.exit(f"wanted {TOOL}, found none; build it: ninja -C {BUILD} safetensors_tool")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        read = python_to_octavo(folder)
        written = octavo_to_python(folder)
        both = through_both(folder)
        shards = hugging_face(folder)
        refused, stricter = what_python_refuses(folder)
    print(f"read={read} written={written} both={both} hf_shards={shards} mutants_refused={refused} "
          f"stricter={stricter} differences=0")


if __name__ == "__main__":
    main()
