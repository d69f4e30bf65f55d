#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 night="" measures="src/tokenizer"
"""Token ids of GPT-2, Llama-3, Qwen2 and SmolLM2 here against llama.cpp's vectors and, on the whole text corpus and on
generated Unicode lines, against the Hugging Face `tokenizers` package. The checks are those of bench/tokenizer_vs_hf.py,
without its measurements. (Not called tokenizers.py: that name is the package's.)"""
import json
import os
import pathlib
import random
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import prepared
import smollm2_model
import tokenizer_lines
import tokenizer_vs_hf as bench

bench.TOOL = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release")) / "bin" / "tokenizer_tool"
FUZZ_LINES = 60_000
DOCUMENTS = 5_000
FAMILIES = ("gpt2", "llama3", "qwen2")
# From smollm2_to_hf's README: the ids of this text in the original.
SMOLLM2_KNOWN = ("The capital of France is", [504, 3575, 282, 4649, 314])


def check(name, path, work, files, lines):
    """(vectors right, vectors, corpus differences, fuzz differences, differences by Unicode version) of one file."""
    ours, theirs = bench.Ours(path, work), bench.Theirs(path)
    if name in bench.VECTORS:
        good, total = bench.check_vectors(name, ours)
    else:
        good, total = int(ours.encode([SMOLLM2_KNOWN[0]])[0] == [SMOLLM2_KNOWN[1]]), 1
    corpus = bench.check_corpus(name, ours, theirs, files)
    plain, versioned = bench.check_lines(name, lines, ours, theirs)
    print(f"{name}: vectors={good}/{total} corpus_files={len(files)} corpus_diffs={corpus} fuzz_lines={len(lines)} "
          f"fuzz_diffs={plain} unicode_version_diffs={versioned}", flush=True)
    return good, total, corpus, plain, versioned


def check_documents(name, path, work, lines):
    """Rows prepared by octavo, some of which spell special tokens, against the package with the file's own post-processor, text as
    text: how many differ."""
    draw = random.Random(7)
    theirs = bench.Theirs(path).tokenizer
    special = [token.content for token in theirs.get_added_tokens_decoder().values()]
    texts = []
    for line in lines:
        cut = draw.randrange(len(line) + 1)
        texts.append(line[:cut] + draw.choice(special) + line[cut:] if draw.random() < 0.5 else line)
    texts = [text for text in texts if text]
    rows = work / "rows.jsonl"
    rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    prepared.prepare([rows], work / name, tokenizer=path, val_fraction=0)
    theirs.encode_special_tokens = True
    index = json.loads((work / name / "dataset.json").read_text())
    found, at, bad = prepared.words(work / name)[0].tolist(), 0, 0
    for encoding in theirs.encode_batch_fast(texts):
        bad += found[at:at + len(encoding.ids)] != encoding.ids
        at += len(encoding.ids) + 1  # and the end of the document
    print(f"{name}: documents={len(texts)} document_diffs={bad}", flush=True)
    return bad + (at != len(found) + 1) + (index["splits"]["train"]["documents"] != len(texts))


def main():
    begin = time.time()
    files = sorted(file for file in (bench.DATA / "text").rglob("*") if file.suffix in (".txt", ".jsonl", ".json"))
    for found, remedy, fatal in ((bench.TOOL.exists(), f"{bench.TOOL}: build tokenizer_tool", True),
                                 (files, "the text corpus: set OCTAVO_TEST_DATA", os.environ.get("CI") == "true")):
        if not found:
            print(f"wanted {remedy}; found none")
            sys.exit(1 if fatal else 0)
    paths = {name: bench.DATA / "tokenizers" / name / "tokenizer.json" for name in FAMILIES}
    paths["smollm2"] = smollm2_model.folder() / "tokenizer.json"
    lines = tokenizer_lines.generate(FUZZ_LINES, seed=1)
    # Lines on which the two sides' Unicode versions differ are the other check's matter.
    documents = [line for line in lines if line.isascii()][:DOCUMENTS]
    with tempfile.TemporaryDirectory() as work:
        found = [check(name, path, pathlib.Path(work), files, lines) for name, path in paths.items()]
        documents_bad = sum(check_documents(name, path, pathlib.Path(work), documents) for name, path in paths.items())
    good, total, corpus, plain, versioned = map(sum, zip(*found))
    print(f"families={len(found)} vectors={good}/{total} corpus_diffs={corpus} fuzz_lines={FUZZ_LINES * len(found)} "
          f"fuzz_diffs={plain} unicode_version_diffs={versioned} documents={len(documents) * len(paths)} "
          f"document_diffs={documents_bad} seconds={time.time() - begin:.0f}")
    sys.exit(0 if good == total and corpus == 0 and plain == 0 and documents_bad == 0 else 1)


if __name__ == "__main__":
    main()
