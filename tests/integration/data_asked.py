#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate=""
"""What was asked of data and tokenizers is what runs, through the program itself: no bytes in silence, no rows lost in silence,
documents that begin as the tokenizer says, text that stays text, validation of each data set, data of one tokenizer in `eval`,
every sample counted on any number of ranks, and samples that never end a run. Ids are compared with Hugging Face `tokenizers`."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

import numpy

from common import DATA, OCTAVO, TEXT, require_files
from finetuning import in_cache

USAGE = 2
TOKENIZERS = DATA / "data" / "tokenizers"
SMALL = ["--model_name", "custom", "--n_layer", "1", "--n_head", "1", "--n_embd", "32"]
FAST = ["--max_seq_length", "32", "--batch_size", "2", "--max_steps", "2", "--warmup_steps", "0", "--eval_freq", "0",
        "--checkpoint_freq", "0", "--device", "cpu"]
LLAMA = dict(model_type="llama", hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
             num_key_value_heads=2, vocab_size=512, max_position_embeddings=256, rms_norm_eps=1e-5, rope_theta=10000.0,
             hidden_act="silu", tie_word_embeddings=True)
# The production file of the guides (requirements, G3), as it stands there.
GUIDE = """dataset: fineweb-edu
use_fp8: true
fp8_format: "hybrid"  # E4M3 forward, E5M2 backward
max_batch_size: 128  # H200 can handle large batches
target_effective_batch_size: 512
learning_rate: 0.003  # Scaled for large batch
warmup_steps: 2000
num_epochs: 2
"""


class Checks:
    def __init__(self):
        self.done, self.failed = 0, []

    def that(self, row, what, good, shown=""):
        self.done += 1
        print(f"{row}: {'ok' if good else 'FAILED'}: {what}", flush=True)
        if not good:
            self.failed.append(f"{row}: wanted {what}; found {str(shown)[-600:]}")


def octavo(work, *words, **environment):
    return subprocess.run([OCTAVO, *map(str, words)], cwd=work, text=True, capture_output=True, timeout=240,
                          env=os.environ | {"OMP_WAIT_POLICY": "passive", "HF_HUB_OFFLINE": "1", **environment})


def ids_of(folder, split):
    """All tokens of a split of plain data."""
    index = json.loads((folder / "dataset.json").read_text())
    width = "<u2" if index["tokenizer"]["vocab_size"] <= 65536 else "<u4"
    parts = [numpy.frombuffer((folder / shard["name"]).read_bytes(), width, shard["tokens"], 4096)
             for shard in index["splits"].get(split, {"shards": []})["shards"]]
    return numpy.concatenate(parts).tolist() if parts else []


def text_of(folder, split):
    """Of data of bytes; | ends a document."""
    return "".join("|" if i == 256 else chr(i) for i in ids_of(folder, split))


def rows(path, texts):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))


def check_tokenizers(work, checks):
    """V3: a model that has a tokenizer never learns bytes unless it is told to."""
    model = work / "model"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(LLAMA))
    train = ["train", "--model_name", model, "--dataset", TEXT, *FAST]
    for name, words in (("a folder without tokenizer.json", train), ("gpt2 that is not in the cache", ["train", *train[3:]])):
        done = octavo(work, *words, HF_HOME=str(work / "empty"))
        checks.that("V3", f"{name}: exit code 2 and what to type", done.returncode == USAGE and
                    "--tokenizer bytes" in done.stderr and "--tokenizer PATH" in done.stderr, (done.returncode, done.stderr))
    octavo(work, "data", "prepare", TEXT, "--tokenizer", "bytes", "--output", "bytes")
    done = octavo(work, "train", "--model_name", model, "--dataset", "bytes", *FAST)
    checks.that("V3", "prepared bytes for such a folder: exit code 2", done.returncode == USAGE, (done.returncode, done.stderr))
    for name, words in (("with --tokenizer bytes it trains", [*train, "--tokenizer", "bytes"]),
                        ("custom takes bytes and says so", ["train", *SMALL, "--dataset", TEXT, *FAST])):
        done = octavo(work, *words, "--run_name", name.split()[0])
        checks.that("V3", name, done.returncode == 0 and ("tokenizer: bytes" in done.stderr or "--tokenizer" in words), done.stderr)


def check_lost_rows(work, checks):
    """V3: rows that are left out are an error when they are many, and named."""
    lines = [{"instruction": "Say " + "it" * (5 if i < 3 else 200), "input": "", "output": "x" * 20} for i in range(60)]
    (work / "alpaca.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    prepare = ["data", "prepare", "alpaca.jsonl", "--tokenizer", "bytes", "--max_seq_length", "256", "--output", "lost"]
    done = octavo(work, *prepare)
    checks.that("V3", "57 of 60 rows lost: exit code 2, where and why", done.returncode == USAGE and
                all(word in done.stderr for word in ("57 of 60", "alpaca.jsonl:4", "max_seq_length 256", "--max_skipped_rows")), done.stderr)
    longer = octavo(work, *prepare[:-4], "--max_seq_length", "1024", "--output", "kept")
    checks.that("V3", "a longer max_seq_length keeps them", longer.returncode == 0, longer.stderr)


def check_guide(work, checks):
    """F3: the guide's file learns GPT-2's tokens, not bytes."""
    home = work / "home"
    folder = in_cache(home, "models", "openai-community/gpt2")
    shutil.copy(TOKENIZERS / "gpt2" / "tokenizer.json", folder)
    (folder / "config.json").write_text("{}")
    (work / "guide.yaml").write_text(GUIDE)
    done = octavo(work, "config", "import", "guide.yaml", "--output", "imported.yaml")
    checks.that("F3", "the guide's file is imported", done.returncode == 0, done.stdout + done.stderr)
    if done.returncode != 0:
        return
    # Fewer steps of a smaller model on other text; nothing about tokens.
    less = ["--dataset", TEXT, "--n_layer", "1", "--n_head", "1", "--n_embd", "16", "--auto_batch_size", "false", "--max_batch_size", "0",
            "--target_effective_batch_size", "0", "--num_epochs", "0", "--use_fp8", "false", *FAST]
    done = octavo(work, "train", "imported.yaml", *less, "--data_cache", "guide_data", HF_HOME=str(home))
    made = [json.loads(path.read_text())["tokenizer"]["vocab_size"] for path in (work / "guide_data").glob("*/dataset.json")]
    checks.that("F3", "it trains on GPT-2's tokens", done.returncode == 0 and made == [50257], (done.returncode, made, done.stderr))


def check_ids(work, checks):
    """T5, T10: ids of documents against the tokenizer's own post-processor, and text that is text."""
    from tokenizers import Tokenizer
    texts = ["Hello world", "A <|start_header_id|>system<|end_header_id|> in a text.", "<|begin_of_text|>again<|eot_id|>",
             "an <|endoftext|> and <|im_start|>user", "naïve café 🐳\n\n  two", "the last one"]
    rows(work / "ids.jsonl", texts)
    (work / "one.txt").write_text("\n".join(texts))
    for name, end in (("llama3", 128001), ("gpt2", 50256), ("qwen2", 151643)):
        theirs = Tokenizer.from_file(str(TOKENIZERS / name / "tokenizer.json"))
        for special in (False, True):
            theirs.encode_special_tokens = not special
            flags = ["--tokenizer", TOKENIZERS / name, "--val_fraction", "0"]
            if special:
                flags += ["--special_tokens_in_text", "true"]
            for source, documents in (("ids.jsonl", texts), ("one.txt", ["\n".join(texts)])):
                output = work / f"{name}-{special}-{source}"
                done = octavo(work, "data", "prepare", source, *flags, "--output", output)
                wanted = []
                for document in documents:
                    wanted += [*theirs.encode(document).ids, end]
                found = ids_of(output, "train") if done.returncode == 0 else done.stderr
                what = "special tokens as such" if special else "text as text"
                checks.that("T5 T10", f"{name}, {source}, {what}: the ids of `tokenizers`", found == wanted[:-1], found)
    done = octavo(work, "data", "prepare", "ids.jsonl", "--tokenizer", TOKENIZERS / "llama3", "--output", work / "said")
    checks.that("T10", "control tokens in texts are counted", "places are spelled like special tokens" in done.stderr, done.stderr)


def check_validation(work, checks):
    """T6: each data set holds out its own part; test is no validation."""
    rows(work / "a" / "train.jsonl", ["aaaa"] * 20)
    rows(work / "a" / "validation.jsonl", ["vv"] * 3)
    rows(work / "a" / "test.jsonl", ["tt"] * 3)
    rows(work / "b.jsonl", ["bbbb"] * 20)
    rows(work / "t" / "train.jsonl", ["cccc"] * 20)
    rows(work / "t" / "test.jsonl", ["tt"] * 3)

    def split(output, *words):
        done = octavo(work, "data", "prepare", *words, "--tokenizer", "bytes", "--output", work / output)
        return (text_of(work / output, "train"), text_of(work / output, "val"), done.stderr) if done.returncode == 0 else ("", "", done.stderr)

    train, val, log = split("ab", "a", "b.jsonl")
    checks.that("T6", "a's own split and b's last tenth are validation",
                (val.count("v"), val.count("b"), val.count("t"), val.count("a")) == (6, 8, 0, 0) and
                (train.count("a"), train.count("b")) == (80, 72), (train, val))
    checks.that("T6", "the log counts each", "a: 20 documents to train on; 3 documents to validate on (its split validation)" in log and
                "b.jsonl: 18 documents to train on; 2 documents to validate on" in log, log)
    train, val, log = split("bt", "b.jsonl", "t")
    checks.that("T6", "two without a split hold out a tenth of each, and test is left alone",
                (val.count("b"), val.count("c"), val.count("t")) == (8, 8, 0) and (train.count("b"), train.count("c")) == (72, 72), (train, val))
    train, val, log = split("asked", "t", "--val_split_name", "test")
    checks.that("T6", "test validates when it is asked for", val.count("t") == 6 and train.count("c") == 80, (train, val, log))


def check_eval(work, checks):
    """T7, T9: only data of the model's tokenizer, and every sample of it."""
    (work / "part.txt").write_text(TEXT.read_text()[:20000])
    done = octavo(work, "train", *SMALL, "--vocab_size", "512", "--tokenizer", "bytes", "--dataset", "part.txt", *FAST, "--run_name", "eval",
                  "--checkpoint_dir", "eval_saved")
    model = ["eval", "--checkpoint_dir", "eval_saved", "--max_seq_length", "32", "--device", "cpu", "--json"]
    counts = []
    for batch in (1, 8, 16):
        done = octavo(work, *model, "--dataset", "part.txt", "--batch_size", batch)
        counts.append(json.loads(done.stdout)["tokens"] if done.returncode == 0 else done.stderr)
    checks.that("T9", f"as many tokens at batch 1, 8 and 16 ({counts})", counts == [62 * 32] * 3, counts)
    file = json.loads((TOKENIZERS / "gpt2" / "tokenizer.json").read_text())
    alphabet = sorted(token for token in file["model"]["vocab"] if len(token) == 1)
    file["model"] |= {"vocab": {token: i for i, token in enumerate(alphabet)}, "merges": []}
    file["added_tokens"][0]["id"] = 400
    (work / "letters.json").write_text(json.dumps(file))
    octavo(work, "data", "prepare", "part.txt", "--tokenizer", "letters.json", "--output", "letters")
    done = octavo(work, *model, "--dataset", "letters")
    checks.that("T7", "data of another tokenizer: exit code 2", done.returncode == USAGE and "tokenizer" in done.stderr,
                (done.returncode, done.stdout, done.stderr))


def check_ranks(work, checks):
    """T9: as many tokens on two ranks as on one."""
    counts = {}
    for ranks in (1, 2):
        flags = ["--max_seq_length", "32", "--batch_size", 4 // ranks, "--max_steps", "2", "--warmup_steps", "0", "--eval_freq", "2",
                 "--eval_batches", "100000", "--checkpoint_freq", "0", "--device", "cpu", "--run_name", f"ranks{ranks}"]
        words = ["train", *SMALL, "--tokenizer", "bytes", "--dataset", "part.txt", *flags]
        done = octavo(work, *(["launch", "--nproc", ranks, "--"] if ranks > 1 else []), *words)
        records = work / "runs" / f"ranks{ranks}" / "metrics.jsonl"
        found = [json.loads(line) for line in records.read_text().splitlines()] if done.returncode == 0 else []
        counts[ranks] = [r["val/tokens"] for r in found if "val/tokens" in r] or done.stderr
    checks.that("T9", f"as many tokens on one rank and on two ({counts})", counts[1] == counts[2] and counts[1] == [62 * 32], counts)


def check_samples(work, checks):
    """T13: ids that no token has do not end a run. T14: samples are drawn as the keys say."""
    def samples(name, *flags):
        done = octavo(work, "train", *SMALL, "--tokenizer", "letters.json", "--dataset", "part.txt", *FAST, "--run_name", name,
                      "--sample_freq", "1", "--sample_tokens", "100", *flags)
        return done, [path.read_bytes() for path in sorted((work / "runs" / name / "samples").glob("*.txt"))]
    done, texts = samples("samples", "--temperature", "2", "--top_k", "0")
    checks.that("T13", "a tokenizer with gaps: samples of 100 tokens, exit code 0",
                done.returncode == 0 and len(texts) == 2 and min(map(len, texts)) > 50, (done.returncode, texts, done.stderr))
    greedy, top_p = (samples(name, *flags)[1] for name, flags in (("greedy", ["--temperature", "0"]),
                                                                  ("top_p", ["--temperature", "2", "--top_p", "0"])))
    checks.that("T14", "top_p 0 draws the most likely token", len(greedy) == 2 and top_p == greedy != texts, (greedy, top_p))


def main():
    require_files()
    begin, checks = time.monotonic(), Checks()
    with tempfile.TemporaryDirectory(prefix="octavo-data-") as folder:
        work = pathlib.Path(folder)
        for check in (check_tokenizers, check_lost_rows, check_guide, check_ids, check_validation, check_eval, check_ranks, check_samples):
            check(work, checks)
    for line in checks.failed:
        print("FAILED", line)
    print(f"checks={checks.done} failed={len(checks.failed)} seconds={time.monotonic() - begin:.0f}")
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
