"""Token ids of GPT-2, Llama-3, Qwen2 and SmolLM2 here against llama.cpp's vectors and, on the whole text corpus and on
generated Unicode lines, against the Hugging Face `tokenizers` package. The checks are those of bench/tokenizer_vs_hf,
without its measurements. (Not called tokenizers.py: that name is the package's.)"""
import os
import pathlib
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import smollm2_model
import tokenizer_lines
import tokenizer_vs_hf as bench

bench.TOOL = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release")) / "bin" / "tokenizer_tool"
FUZZ_LINES = 60_000
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
    with tempfile.TemporaryDirectory() as work:
        found = [check(name, path, pathlib.Path(work), files, lines) for name, path in paths.items()]
    good, total, corpus, plain, versioned = map(sum, zip(*found))
    print(f"families={len(found)} vectors={good}/{total} corpus_diffs={corpus} fuzz_lines={FUZZ_LINES * len(found)} "
          f"fuzz_diffs={plain} unicode_version_diffs={versioned} seconds={time.time() - begin:.0f}")
    sys.exit(0 if good == total and corpus == 0 and plain == 0 else 1)


if __name__ == "__main__":
    main()
