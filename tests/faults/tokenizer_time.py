#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=faults timeout=600 night="--short" alone measures="src/tokenizer"
"""The texts that are worst for a tokenizer, in GPT-2, Llama-3, Qwen2, SmolLM2 and files with byte fallback (as Llama 2 and Gemma
have, trained here); the last line has the results.

Words of 10 kB to 10 MB of one letter, of digits, spaces, newlines, emoji, marks, random letters, text without spaces,
beginnings of added tokens, characters that no token has. A case survives when the processor time for each byte of the
longest text is at most twice that of 100 kB, when decoding gives the text back (in form C, where the tokenizer makes
that; as `tokenizers` decodes it, where Llama 2's files put a space between a control token and the text after it), and
when the ids up to 100 kB are those of the Hugging Face `tokenizers` package.

usage: tokenizer_time.py [--short]    --short: up to 1 MB, for CI
"""
import argparse
import array
import json
import pathlib
import random
import subprocess
import sys
import tempfile
import unicodedata

import tokenizers

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "integration"), str(TESTS / "conformance"), str(TESTS.parent / "bench")]
import common  # noqa: E402
import fallback_kinds  # noqa: E402
import smollm2_model  # noqa: E402

TOOL = common.BUILD / "bin" / "tokenizer_time_tool"
FAMILIES = ("gpt2", "llama3", "qwen2")
FALLBACK = ("llama2", "gemma", "across_words")  # the last: without spaces to cut at, a text is one word
FIRST, BASE, SHORT, LONG = 10_000, 100_000, 1_000_000, 10_000_000
MOST_RATIO = 2.0
# Below this the clock and the caches say more than the length does; plain English takes about as long.
NEGLIGIBLE_S_PER_BYTE = 5e-9


def repeated(unit):
    return lambda size: unit * (size // len(unit.encode()) + 1)


def random_text(letters):
    return lambda size: "".join(random.Random(size).choices(letters, k=size // len(letters[0].encode()) + 1))


def without_spaces(size):
    text = "".join(common.TEXT.read_text().split())
    return text * (size // len(text.encode()) + 1)


CASES = {
    "letter": repeated("a"), "capital": repeated("A"), "digit": repeated("7"), "space": repeated(" "),
    "newline": repeated("\n"), "space_newline": repeated(" \n"), "tab": repeated("\t"),
    "punctuation": repeated("!"), "apostrophe": repeated("'s"),
    "pairs": repeated("ab"), "emoji": repeated("🙂"), "family_emoji": repeated("👩\u200d👩\u200d👧"),
    "accents": repeated("e\u0301"), "marks": repeated("\u0301\u0323"), "jamo": repeated("\u1100\u1161\u11a8"),
    "random_letters": random_text("abcdefghijklmnopqrstuvwxyz"), "random_chinese": random_text("漢字假名交文書體長短無間隔"),
    "no_spaces": without_spaces, "token_begin": repeated("<|endoftex"), "token_begin2": repeated("<|"),
    "tokens": repeated("<|endoftext|>"), "control_tokens": repeated("<s>"), "byte_names": repeated("<0x0A>"), "rare": repeated("\U00020b9f\U0001b000"), "control": repeated("\x01\x02"),
}


def train_fallback(folder):
    """{name: path} of files with byte fallback."""
    lines = common.TEXT.read_text()[:300_000].splitlines()
    paths = {}
    for name, file in [*fallback_kinds.published(lines), *fallback_kinds.variants(lines)]:
        if name in FALLBACK:
            paths[name] = folder / f"{name}.json"
            paths[name].write_text(json.dumps(file))
    return paths


def cut(text, size):
    """To about so many bytes, by characters."""
    return text.encode()[:size].decode(errors="ignore")


def write_texts(folder, sizes):
    for name, make in CASES.items():
        for size in sizes:
            (folder / f"{name}-{size}").write_bytes(cut(make(size), size).encode())


def normal_form(text):
    """Form C. Python's own sorts a run of marks by insertion, which takes hours for a megabyte."""
    if all(map(unicodedata.combining, text)):
        return "".join(sorted(text, key=unicodedata.combining))
    return unicodedata.normalize("NFC", text)


def write_normal_forms(folder, sizes):
    for name in CASES:
        for size in sizes:
            text = (folder / f"{name}-{size}").read_bytes().decode()
            (folder / f"{name}-{size}.back").write_bytes(normal_form(text).encode())


def write_decoded(path, folder, name, sizes):
    """What the Hugging Face package makes of the text's own ids. Returns the files, to be removed for the next family."""
    reference, written = tokenizers.Tokenizer.from_file(str(path)), []
    for size in sizes:
        ids = reference.encode((folder / f"{name}-{size}").read_bytes().decode(), add_special_tokens=False).ids
        written.append(folder / f"{name}-{size}.back")
        written[-1].write_bytes(reference.decode(ids, skip_special_tokens=False).encode())
    return written


def run_family(path, folder, sizes):
    """{(case, size): (seconds for a byte, whether decoding gave the text back)}"""
    measured = {}
    for size in sizes:
        files = [folder / f"{name}-{size}" for name in CASES]
        done = subprocess.run([TOOL, path, "3", *files], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{TOOL.name} ended with {done.returncode}: {done.stderr}")
        for name, line in zip(CASES, done.stdout.splitlines()):
            results = dict(part.split("=") for part in line.split()[1:-1])
            measured[name, size] = float(results["seconds"]) / int(results["bytes"]), line.endswith("same")
    return measured


def other_ids(reference, folder, name, size):
    text = (folder / f"{name}-{size}").read_bytes().decode()
    ours = array.array("i", (folder / f"{name}-{size}.ids").read_bytes())
    return ours.tolist() != reference.encode(text, add_special_tokens=False).ids


def check_family(family, path, folder, sizes):
    """(cases, survived, worst ratio); says what was lost."""
    measured, reference = run_family(path, folder, sizes), tokenizers.Tokenizer.from_file(str(path))
    survived, worst = 0, 0.0
    for name in CASES:
        base, last = (measured[name, size][0] for size in (BASE, sizes[-1]))
        ratio = max(last, NEGLIGIBLE_S_PER_BYTE) / max(base, NEGLIGIBLE_S_PER_BYTE)
        faults = [f"{size} bytes: another text came back" for size in sizes if not measured[name, size][1]]
        faults += [f"{size} bytes: other ids than `tokenizers`" for size in (FIRST, BASE)
                   if other_ids(reference, folder, name, size)]
        if ratio > MOST_RATIO:
            faults.append(f"{ratio:.2f} times the time for a byte at {sizes[-1]} bytes")
        print(f"{family} {name}: ns_per_byte={base * 1e9:.1f} at {BASE}, {last * 1e9:.1f} at {sizes[-1]}"
              f"{''.join(' LOST ' + fault for fault in faults)}", flush=True)
        survived, worst = survived + (not faults), max(worst, ratio)
    return survived, worst


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="up to 1 MB, for CI")
    options = parser.parse_args()
    common.require_files()
    if not TOOL.exists():
        sys.exit(f"wanted {TOOL}, found none; ninja -C {common.BUILD} {TOOL.name}")
    paths = {name: common.DATA / "data" / "tokenizers" / name / "tokenizer.json" for name in FAMILIES}
    paths["smollm2"] = smollm2_model.folder() / "tokenizer.json"
    sizes = [FIRST, BASE, SHORT] + ([] if options.short else [LONG])
    survived, worst = 0, 0.0
    with tempfile.TemporaryDirectory() as work:
        folder = pathlib.Path(work)
        write_texts(folder, sizes)
        paths |= train_fallback(folder)
        # Those that keep the text as it is come first.
        order = sorted(paths, key=lambda family: family == "qwen2")
        for at, family in enumerate(order):
            print(f"family {at + 1} of {len(order)}: {family}", file=sys.stderr, flush=True)
            if family == "qwen2":
                write_normal_forms(folder, sizes)
            decoded = write_decoded(paths[family], folder, "control_tokens", sizes) if family == "llama2" else []
            good, ratio = check_family(family, paths[family], folder, sizes)
            for file in decoded:
                file.unlink()
            survived, worst = survived + good, max(worst, ratio)
    tried = len(paths) * len(CASES)
    print(f"families={len(paths)} longest={sizes[-1]} worst_ratio={worst:.2f} tried={tried} survived={survived} "
          f"lost={tried - survived}")
    sys.exit(0 if survived == tried else 1)


if __name__ == "__main__":
    main()
