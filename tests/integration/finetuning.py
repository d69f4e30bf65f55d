#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate="" alone
"""Runs every command of the docs' pages on fine-tuning (PAGES), as it stands there, with stand-ins for what it names.

The models are tiny random ones of the same architectures, the data sets a few real rows; both lie in a Hugging Face cache
under the names that the commands use, with the models' real tokenizers. Only numbers are made smaller (SMALLER, and the
steps). A training run must end with 0, learn, run in the precision that it was asked for, and leave a checkpoint.
"""
import json
import math
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

from common import DATA, OCTAVO, ROOT, require_files

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_WAIT_POLICY"] = "passive"
sys.path.insert(0, str(ROOT / "tests" / "conformance"))
import smollm2_model

PAGES = [ROOT / "docs" / "how-to" / name for name in ("finetune.md", "fit-memory.md", "lora.md", "export.md")]
SFT, TOKENIZERS = DATA / "data" / "sft", DATA / "data" / "tokenizers"
HELLASWAG = DATA / "data" / "eval" / "hellaswag_val.jsonl"
MAX_SECONDS, STEPS = 120, 6
# What replaces a flag's value. Random models do not learn by 1e-5 in six steps.
SMALLER = {"--batch_size": "2", "--gradient_accumulation_steps": "2", "--max_seq_length": "192", "--learning_rate": "1e-2",
           "--eval_limit": "2", "--max_new_tokens": "8"}
COMMIT = "0123456789abcdef0123456789abcdef01234567"
# Widths are multiples of 32, so that every recipe can run.
SIZE = dict(num_hidden_layers=2, hidden_size=64, intermediate_size=128, num_attention_heads=4, num_key_value_heads=2,
            max_position_embeddings=2048)


def commands_of(page):
    """The commands of all blocks under <!-- test: finetuning -->, one string each."""
    blocks = re.findall(r"<!-- test: finetuning -->\n```bash\n(.*?)```", page, re.S)
    return [line.strip() for block in blocks for line in block.replace("\\\n", " ").splitlines() if line.strip()]


def smaller(command):
    """The words of a command with SMALLER's values; a training run also gets its steps."""
    words = shlex.split(command)
    for i, word in enumerate(words[:-1]):
        words[i + 1] = SMALLER.get(word, words[i + 1])
    if "--max_seq_length" in words:
        words += ["--max_skipped_rows", "1"]  # real rows at a shorter length
    if words[:2] != ["octavo", "train"]:
        return words
    for length in ("--num_epochs", "--max_steps"):
        if length in words:
            at = words.index(length)
            del words[at:at + 2]
    return words + ["--max_steps", str(STEPS), "--warmup_steps", "1", "--eval_batches", "1"]


def in_cache(home, kind, name):
    """The folder that a repository's files of COMMIT belong into."""
    repository = home / "hub" / f"{kind}--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(COMMIT)
    folder = repository / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    return folder


def make_models(home):
    """Under the names of the page. How many."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM
    torch.manual_seed(1)
    rope = dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, rope_theta=500000.0,
                original_max_position_embeddings=8192)
    ids = dict(bos_token_id=128000, eos_token_id=128001)
    tied = LlamaConfig(**SIZE, vocab_size=128256, tie_word_embeddings=True, rope_parameters=rope, **ids)
    untied = LlamaConfig(**SIZE, vocab_size=128256, tie_word_embeddings=False, rope_parameters=rope | {"factor": 8.0}, **ids)
    qwen = Qwen2Config(**SIZE, vocab_size=152064, tie_word_embeddings=False, bos_token_id=151643, eos_token_id=151643)
    smollm = LlamaConfig(**SIZE, vocab_size=49152, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2)
    gpt2 = GPT2Config(n_layer=2, n_head=4, n_embd=64, vocab_size=50257)
    llama3, smol = TOKENIZERS / "llama3", smollm2_model.folder()
    models = {"meta-llama/Llama-3.2-1B": (LlamaForCausalLM, tied, llama3),
              "meta-llama/Llama-3.2-3B": (LlamaForCausalLM, tied, llama3),
              "meta-llama/Meta-Llama-3.1-8B": (LlamaForCausalLM, untied, llama3),
              "Qwen/Qwen2.5-14B": (Qwen2ForCausalLM, qwen, TOKENIZERS / "qwen2"),
              "HuggingFaceTB/SmolLM2-135M-Instruct": (LlamaForCausalLM, smollm, smol),
              "openai-community/gpt2": (GPT2LMHeadModel, gpt2, TOKENIZERS / "gpt2")}
    for name, (model, config, tokenizer) in models.items():
        folder = in_cache(home, "models", name)
        model(config).to(torch.bfloat16).save_pretrained(folder)
        shutil.copy(tokenizer / "tokenizer.json", folder)
    return len(models)


def make_data_sets(home, rows=60):
    """OpenMathInstruct-2, GSM8K and HellaSwag, as Parquet files where the hub has them."""
    import pyarrow
    import pyarrow.parquet
    for name, source, file in (
            ("nvidia/OpenMathInstruct-2", SFT / "openmathinstruct2_sample.jsonl", "data/train_1M-00000-of-00001.parquet"),
            ("openai/gsm8k", SFT / "gsm8k_train.jsonl", "main/train-00000-of-00001.parquet"),
            ("Rowan/hellaswag", HELLASWAG, "data/validation-00000-of-00001.parquet")):
        with open(source) as lines:
            table = pyarrow.Table.from_pylist([json.loads(line) for line, _ in zip(lines, range(rows))])
        path = in_cache(home, "datasets", name) / file
        path.parent.mkdir()
        pyarrow.parquet.write_table(table, path)


def problems_of_run(words, work, output):
    """What is wrong with a training run that ended with 0."""
    runs = sorted(work.glob("runs/*"), key=lambda p: p.stat().st_mtime)
    receipt = json.loads((runs[-1] / "receipt.json").read_text())
    records = [json.loads(line) for line in (runs[-1] / "metrics.jsonl").read_text().splitlines()]
    losses = [r["train/loss"] for r in records if "train/loss" in r]
    in_fp8 = words[words.index("--mixed_precision") + 1] == "fp8"
    kept = list(work.glob(f"checkpoints{'_fp8' if in_fp8 else ''}/{runs[-1].name}/step-*/manifest.json"))
    share = receipt["fp8"]["flops_share"]
    checks = {"a loss for each step": len(losses) == STEPS and all(map(math.isfinite, losses)),
              "a loss that falls": min(losses[1:]) < losses[0],
              "a checkpoint": len(kept) > 0,
              "step lines": len(re.findall(r"^step ", output, re.M)) == STEPS,
              "the precision asked for": (share > 0) == in_fp8,
              "adapters where asked for": (receipt["lora"] is not None) == ("--lora_rank" in words)}
    print(f"  loss {losses[0]:.3f} to {losses[-1]:.3f}, {100 * share:.1f}% of the FLOPs in FP8")
    return [what for what, good in checks.items() if not good]


def run(command, work, home):
    """What is wrong with one command of the page."""
    words = smaller(command)
    if words[0] != "octavo":
        return [f"wanted octavo, found {words[0]}"]
    trains = words[1] == "train"
    print("$", shlex.join(words), flush=True)
    done = subprocess.run([OCTAVO, *words[1:]], cwd=work, env=os.environ | {"HF_HOME": str(home)}, text=True,
                          timeout=MAX_SECONDS, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        return [f"exit code {done.returncode}: {done.stderr[-800:]}"]
    if trains:
        return problems_of_run(words, work, done.stdout)
    return [] if done.stdout.strip() else ["wanted something on standard output, found nothing"]


def main():
    require_files()
    for file in (SFT / "gsm8k_train.jsonl", TOKENIZERS / "llama3" / "tokenizer.json", HELLASWAG):
        if not file.exists():
            print(f"wanted {file}, found none; set OCTAVO_TEST_DATA")
            sys.exit(1 if os.environ.get("CI") == "true" else 0)
    commands = commands_of("\n".join(page.read_text() for page in PAGES))
    failed = trained = 0
    with tempfile.TemporaryDirectory() as temporary:
        home, work = pathlib.Path(temporary) / "home", pathlib.Path(temporary) / "work"
        work.mkdir()
        models = make_models(home)
        make_data_sets(home)
        start = time.monotonic()
        for command in commands:
            begin = time.monotonic()
            found = run(command, work, home)
            print(f"  {time.monotonic() - begin:.1f} s")
            failed += bool(found)
            trained += command.startswith("octavo train")
            for problem in found:
                print(f"  WRONG: {problem}")
        seconds = time.monotonic() - start
    print(f"commands={len(commands)} trained={trained} failed={failed} models={models} seconds={seconds:.1f}")
    sys.exit(0 if commands and failed == 0 and seconds < MAX_SECONDS else 1)


if __name__ == "__main__":
    main()
