#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# bench: measures="src/tokenizer"
"""Our tokenizer against the Hugging Face `tokenizers` package.

Three checks and one measurement: llama.cpp's vectors, every file of the text corpus, generated Unicode
lines (all must give the same ids), and the speed of one thread on real text, the two taking turns.
Speed is per second of CPU: on a busy machine the clock runs against whoever takes longer.
GPT-2 decides; Llama-3, Qwen2 and variants of the GPT-2 file that use the other features follow.
"""

import json
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata

import numpy

# The package reads these when it is loaded: one thread, as the other side has.
os.environ.update(RAYON_NUM_THREADS="1", TOKENIZERS_PARALLELISM="false")
from tokenizers import Regex, Tokenizer, normalizers, pre_tokenizers

import tokenizer_lines

ROOT = pathlib.Path(__file__).resolve().parent.parent
DATA = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT.parent / "shared")) / "data"
TOOL = ROOT / "build/release/bin/tokenizer_tool"
VECTORS = {"gpt2": "gpt-2", "llama3": "llama-bpe", "qwen2": "qwen2"}
FUZZ_LINES = 100_000
VARIANT_LINES = 20_000
SPEED_BYTES = 8_000_000
SPEED_DOCUMENT = 2_000  # characters, rounded up to whole lines
ROUNDS = 3
WANTED_RATIO = 2.0
NEUTRAL = "\ue000"  # private use: no letter, no number, no mark, in every version of Unicode


class Ours:
    """A tokenizer.json under tokenizer_tool."""

    def __init__(self, path, work):
        self.path, self.work = path, work

    def encode(self, documents):
        """The ids of each document, and the CPU seconds that encoding took."""
        source, target = self.work / "documents.bin", self.work / "ids.bin"
        with open(source, "wb") as out:
            for document in documents:
                data = document.encode()
                out.write(struct.pack("<Q", len(data)) + data)
        done = subprocess.run([TOOL, self.path, source, target], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"tokenizer_tool failed on {self.path}: {done.stderr.strip()}")
        seconds = float(done.stdout.split("cpu_seconds=")[1])
        data, at, ids = target.read_bytes(), 0, []
        for _ in documents:
            (count,) = struct.unpack_from("<Q", data, at)
            ids.append(numpy.frombuffer(data, numpy.uint32, count, at + 8).tolist())
            at += 8 + 4 * count
        return ids, seconds


class Theirs:
    """The same file under the package."""

    def __init__(self, path):
        self.tokenizer = Tokenizer.from_file(str(path))

    def encode(self, documents):
        return [encoding.ids for encoding in self.tokenizer.encode_batch_fast(documents, add_special_tokens=False)]

    def seconds(self, documents):
        """CPU seconds of the faster of its two calls; neither wins always."""
        taken = []
        for call in (self.tokenizer.encode_batch_fast, self.tokenizer.encode_batch):
            start = time.process_time()
            call(documents, add_special_tokens=False)
            taken.append(time.process_time() - start)
        return min(taken)


def read_text(path):
    return path.read_bytes().decode()


def check_vectors(name, ours):
    folder = DATA / "tokenizers/llama.cpp-vectors"
    stem = f"ggml-vocab-{VECTORS[name]}.gguf"
    texts = read_text(folder / f"{stem}.inp").split("\n__ggml_vocab_test__\n")
    wanted = [[int(word) for word in line.split()] for line in read_text(folder / f"{stem}.out").split("\n")]
    if len(texts) != len(wanted):
        sys.exit(f"{stem}: {len(texts)} texts and {len(wanted)} lines of ids")
    found, _ = ours.encode(texts)
    for text, want, got in zip(texts, wanted, found):
        if want != got:
            print(f"{name}: vector {text!r}: wanted {want}, found {got}")
    return sum(want == got for want, got in zip(wanted, found)), len(texts)


def differing(documents, ours, theirs):
    found, _ = ours.encode(documents)
    wanted = theirs.encode(documents)
    return [i for i in range(len(documents)) if found[i] != wanted[i]]


def check_corpus(name, ours, theirs, files):
    bad = differing([read_text(file) for file in files], ours, theirs)
    for i in bad:
        print(f"{name}: corpus file {files[i].name} differs")
    return len(bad)


def version_reasons(lines, ours, theirs):
    """Code points of the lines that one side knows and the other, with older tables, takes as unassigned.

    Two proofs count. The package knows a letter, mark, number or capital that Python's tables leave unassigned.
    Or the two sides differ on a combining mark in isolation and the package's NFC does not order it: the
    class of an assigned mark never changes, so the package's NFC tables predate the mark.
    """
    nfc, known = normalizers.NFC(), pre_tokenizers.Split(Regex(r"[\p{L}\p{M}\p{N}]"), "removed")
    number, lower = pre_tokenizers.Digits(), normalizers.Lowercase()
    is_known = lambda char: (not known.pre_tokenize_str(char) or len(number.pre_tokenize_str("a" + char)) == 2
                             or lower.normalize_str(char) != char)
    chars = sorted(set("".join(lines)))
    ordered = [f"a\u0315{char}\u0316" for char in chars]
    unlike = set(differing(ordered, ours, theirs))
    reasons = {}
    for i, char in enumerate(chars):
        if unicodedata.category(char) == "Cn" and is_known(char):
            reasons[char] = f"new since Unicode {unicodedata.unidata_version}"
        elif i in unlike and unicodedata.combining(char) and nfc.normalize_str(ordered[i]) == ordered[i]:
            reasons[char] = "a mark that the package's NFC tables do not have"
    return reasons


def check_lines(name, lines, ours, theirs):
    """Number of unexplained differences, and of those that a Unicode version explains."""
    bad = differing(lines, ours, theirs)
    if not bad:
        return 0, 0
    reasons = version_reasons([lines[i] for i in bad], ours, theirs)
    neutral = str.maketrans(dict.fromkeys(reasons, NEUTRAL))
    still = {bad[i] for i in differing([lines[i].translate(neutral) for i in bad], ours, theirs)}
    for i in bad:
        points = " ".join(f"U+{ord(char):04X}" for char in sorted(set(lines[i]) & set(reasons)))
        print(f"{name}: line {i} differs" + (f": {lines[i]!r}" if i in still else f" by Unicode version: {points}"))
    for char, reason in sorted(reasons.items()):
        print(f"{name}: U+{ord(char):04X} {unicodedata.name(char, '(no name)')}: {reason}")
    return len(still), len(bad) - len(still)


def speed_documents(files):
    documents = []
    for file in files:
        lines, length = [], 0
        for line in read_text(file).splitlines(keepends=True):
            lines.append(line)
            length += len(line)
            if length >= SPEED_DOCUMENT:
                documents.append("".join(lines))
                lines, length = [], 0
        documents.append("".join(lines))
    # Every n-th document, so that each file has its share.
    size = sum(len(document.encode()) for document in documents)
    return documents[:: max(1, size // SPEED_BYTES)]


def measure_speed(name, ours, theirs, documents, rounds):
    megabytes = sum(len(document.encode()) for document in documents) / 1e6
    rates = {"ours": [], "theirs": []}
    for _ in range(rounds):
        rates["ours"].append(megabytes / ours.encode(documents)[1])
        rates["theirs"].append(megabytes / theirs.seconds(documents))
    mine, other = statistics.median(rates["ours"]), statistics.median(rates["theirs"])
    print(f"{name}: {megabytes:.1f} MB in {len(documents)} documents, one thread, {rounds} turns each, CPU time: "
          f"octavo {mine:.1f} MB/s, tokenizers {other:.2f} MB/s, ratio {mine / other:.1f}")
    return mine, other


def check_variants(work):
    """The GPT-2 file rewritten to use features that the three families do not, on fewer lines."""
    base = json.loads(read_text(DATA / "tokenizers/gpt2/tokenizer.json"))
    lines = tokenizer_lines.generate(VARIANT_LINES, seed=2)
    total = 0
    for name, spec in tokenizer_lines.variants(base):
        path = work / "variant.json"
        path.write_text(json.dumps(spec), encoding="utf-8")
        plain, versioned = check_lines(name, lines, Ours(path, work), Theirs(path))
        print(f"variant {name}: {len(lines)} lines, {plain} differences, {versioned} by Unicode version")
        total += plain
    return total


def check_family(name, work, files, lines, documents, rounds):
    path = DATA / f"tokenizers/{name}/tokenizer.json"
    ours, theirs = Ours(path, work), Theirs(path)
    good, total = check_vectors(name, ours)
    corpus = check_corpus(name, ours, theirs, files)
    plain, versioned = check_lines(name, lines, ours, theirs)
    mine, other = measure_speed(name, ours, theirs, documents, rounds)
    results = (f"vectors={good}/{total} corpus_diffs={corpus} fuzz_lines={len(lines)} fuzz_diffs={plain} "
               f"unicode_version_diffs={versioned} mb_s={mine:.1f} hf_mb_s={other:.2f} "
               f"ratio={mine / other:.1f}")
    print(f"{name}: {results}", flush=True)
    return good == total and corpus == 0 and plain == 0, mine / other, results


def main():
    if not TOOL.exists():
        sys.exit(f"{TOOL} is missing: build it with cmake --preset release && ninja -C build/release tokenizer_tool")
    files = sorted(file for file in (DATA / "text").rglob("*") if file.suffix in (".txt", ".jsonl", ".json"))
    if not files:
        sys.exit(f"no text under {DATA / 'text'}: set OCTAVO_TEST_DATA to the shared folder")
    lines = tokenizer_lines.generate(FUZZ_LINES, seed=1)
    documents = speed_documents(files)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        same, ratio, results = check_family("gpt2", work, files, lines, documents, ROUNDS)
        for name in ("llama3", "qwen2"):
            same &= check_family(name, work, files, lines, documents, 1)[0]
        variant_diffs = check_variants(work)
    print(f"{results} variant_diffs={variant_diffs}")
    return 0 if same and variant_diffs == 0 and ratio >= WANTED_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
