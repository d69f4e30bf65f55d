"""`octavo data prepare` run from Python, and its shards read by other code than octavo's own."""
import json
import os
import pathlib
import subprocess
import sys

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT.parent / "shared")) / "data"
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release")) / "bin" / "octavo"
IN_LOSS, START, ID = 1 << 31, 1 << 30, (1 << 30) - 1
HEADER_BYTES = 4096


def need(*paths):
    for path in paths:
        if not path.exists():
            print(f"missing {path}")
            sys.exit(1 if os.environ.get("CI") == "true" else 0)


def command(inputs, output, options):
    flags = [f"--{key}={str(value).lower() if isinstance(value, bool) else value}" for key, value in options.items()]
    return [OCTAVO, "data", "prepare", *map(str, inputs), "--output", output, *flags]


def popen(inputs, output, **options):
    return subprocess.Popen(command(inputs, output, options), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def run(inputs, output, env=None, **options):
    """The finished process of one preparation."""
    return subprocess.run(command(inputs, output, options), capture_output=True, text=True, timeout=120,
                          env=None if env is None else os.environ | env)


def prepare(inputs, output, env=None, **options):
    done = run(inputs, output, env, **options)
    if done.returncode != 0:
        sys.exit(f"data prepare {inputs} {options}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def shards(folder):
    """{name: bytes} of the token shards."""
    return {path.name: path.read_bytes() for path in sorted(pathlib.Path(folder).glob("*.tok"))}


def words(folder, split="train"):
    """All tokens of a split, with flags and all when they are packed."""
    index = json.loads((pathlib.Path(folder) / "dataset.json").read_text())
    small = "sample_length" not in index and index["tokenizer"]["vocab_size"] <= 1 << 16
    parts = []
    for shard in index["splits"][split]["shards"]:
        raw = (pathlib.Path(folder) / shard["name"]).read_bytes()
        parts.append(np.frombuffer(raw, "<u2" if small else "<u4", shard["tokens"], HEADER_BYTES))
    return np.concatenate(parts), index


def documents(folder, padding, split="train"):
    """[(ids, in_loss)] of the documents in a packed split, without padding, in no special order."""
    tokens, index = words(folder, split)
    length = index["sample_length"]
    if len(tokens) % length:
        sys.exit(f"{folder}: {len(tokens)} tokens are no whole samples of {length}")
    found = []
    for sample in tokens.reshape(-1, length):
        starts = np.flatnonzero(sample & START)
        if not len(starts) or starts[0] != 0:
            sys.exit(f"{folder}: a sample that does not begin with a document")
        for begin, end in zip(starts, [*starts[1:], length]):
            part = sample[begin:end]
            ids, in_loss = (part & ID).tolist(), (part >> 31).tolist()
            if any(in_loss):
                found.append((tuple(ids), tuple(in_loss)))
            elif set(ids) != {padding}:
                sys.exit(f"{folder}: a document without loss tokens")
    return found
