#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=1200 gate="--short" night="" measures="src/tokenizer"
"""Tokenizers with byte fallback (the kinds of Llama 2, Mistral and Gemma, and files with the rest of what octavo reads), trained here
with the Hugging Face `tokenizers` package: ids and texts against the package, on the text corpus and on generated lines.

usage: tokenizers_fallback.py [--short]    --short: fewer lines, a part of the corpus
"""
import argparse
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import tokenizer_vs_hf as bench  # first: it sets the package's threads

import fallback_kinds

bench.TOOL = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release")) / "bin" / "tokenizer_tool"
LINES, VARIANT_LINES = 100_000, 20_000
SHORT_LINES, SHORT_VARIANT_LINES = 2_000, 500
SHORT_CORPUS = 200_000  # characters of each of two files
TRAINING = 300_000  # characters


def decoded(path, work, lists, skip_special):
    """What octavo makes of lists of ids."""
    source, target = work / "ids.bin", work / "texts.bin"
    source.write_bytes(b"".join(struct.pack(f"<Q{len(ids)}I", len(ids), *ids) for ids in lists))
    subprocess.run([bench.TOOL, "--decode-text" if skip_special else "--decode", path, source, target], check=True)
    data, at, texts = target.read_bytes(), 0, []
    for _ in lists:
        (length,) = struct.unpack_from("<Q", data, at)
        texts.append(data[at + 8:at + 8 + length].decode())
        at += 8 + length
    return texts


def random_ids(theirs, count):
    """Lists of ids that no text gives, rich in bytes and added tokens."""
    draw = random.Random(3)
    known = sorted(theirs.get_vocab().values())
    rare = [i for token, i in theirs.get_vocab().items() if token.startswith("<0x")] + list(theirs.get_added_tokens_decoder())
    return [[draw.choice(rare if draw.random() < 0.5 else known) for _ in range(draw.randrange(12))] for _ in range(count)]


def check_decoding(name, path, work, theirs, lists):
    bad = 0
    for skip_special in (False, True):
        found = decoded(path, work, lists, skip_special)
        wanted = theirs.decode_batch(lists, skip_special_tokens=skip_special)
        for ids, ours, other in zip(lists, found, wanted):
            if ours != other:
                bad += 1
                if bad <= 5:
                    print(f"{name}: ids {ids} without_special={skip_special}: wanted {other!r}, found {ours!r}")
    return bad


def check(name, file, work, files, lines):
    """(differences in the corpus, on lines, by Unicode version, in texts) of one file."""
    path = work / f"{name}.json"
    path.write_text(json.dumps(file))
    ours, theirs = bench.Ours(path, work), bench.Theirs(path)
    corpus = bench.differing(files, ours, theirs)
    plain, versioned = bench.check_lines(name, lines, ours, theirs)
    lists = theirs.encode(lines) + random_ids(theirs.tokenizer, len(lines))
    texts = check_decoding(name, path, work, theirs.tokenizer, lists)
    print(f"{name}: corpus_texts={len(files)} corpus_diffs={len(corpus)} lines={len(lines)} line_diffs={plain} "
          f"unicode_version_diffs={versioned} decoded={2 * len(lists)} text_diffs={texts}", flush=True)
    return len(corpus), plain, versioned, texts


def corpus(short):
    files = sorted(file for file in (bench.DATA / "text").rglob("*") if file.suffix in (".txt", ".jsonl", ".json"))
    if not files:
        print("wanted the text corpus: set OCTAVO_TEST_DATA; found none")
        sys.exit(1 if os.environ.get("CI") == "true" else 0)
    texts = [bench.read_text(file) for file in files]
    return [text[:SHORT_CORPUS] for text in texts[:2]] if short else texts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="fewer lines, a part of the corpus")
    short = parser.parse_args().short
    begin = time.time()
    if not bench.TOOL.exists():
        sys.exit(f"wanted {bench.TOOL}, found none; build tokenizer_tool")
    texts = corpus(short)
    learned = [line for text in texts for line in text[:TRAINING // len(texts)].splitlines()] + fallback_kinds.training_lines(500, seed=9)
    many, few = (SHORT_LINES, SHORT_VARIANT_LINES) if short else (LINES, VARIANT_LINES)
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        lines = fallback_kinds.lines(many, seed=1)
        found = [check(name, file, work, texts, lines) for name, file in fallback_kinds.published(learned)]
        found += [check(name, file, work, texts[:1], lines[:few]) for name, file in fallback_kinds.variants(learned)]
    differences, plain, versioned, decoded_bad = map(sum, zip(*found))
    print(f"files={len(found)} corpus_diffs={differences} lines={many} line_diffs={plain} unicode_version_diffs={versioned} "
          f"text_diffs={decoded_bad} seconds={time.time() - begin:.0f}")
    sys.exit(0 if differences == plain == decoded_bad == 0 else 1)


if __name__ == "__main__":
    main()
