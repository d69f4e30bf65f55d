#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=900 night="" measures="src"
"""Every family from nothing to a file that others read: trained in FP8 on one rank and on two with everything sharded, resumed,
exported, loaded by transformers, which must find every weight and the loss that octavo finds, and asked for text."""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
from transformers import AutoModelForCausalLM

from model_parity import OCTAVO, require
from training_parity import TEXT

SIZES = dict(vocab_size=257, hidden_size=64, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, head_dim=16, max_position_embeddings=128, rms_norm_eps=1e-6)
LAYERS = ["sliding_attention", "sliding_attention", "full_attention"]
FAMILIES = {
    "qwen3": {},
    "mistral": dict(sliding_window=24),
    "smollm3": dict(no_rope_layers=[1, 0, 1]),
    "olmo2": {},
    "olmo3": dict(sliding_window=24, layer_types=LAYERS),
    "gemma3_text": dict(sliding_window=24, layer_types=LAYERS, query_pre_attn_scalar=16),
}
STEPS, LENGTH, RANKS_REL = 12, 64, 0.02
CONFIG = f"""
model_name: model
dataset: {TEXT}
data_cache: ../data
tokenizer: bytes
max_seq_length: {LENGTH}
max_steps: {STEPS}
warmup_steps: 2
learning_rate: 3e-3
eval_freq: {STEPS}
eval_batches: 4
checkpoint_freq: {STEPS // 2}
sample_freq: 0
mixed_precision: fp8
num_threads: 1
run_name: run
"""


def octavo(folder, *words):
    done = subprocess.run([OCTAVO, *map(str, words)], cwd=folder, text=True, capture_output=True)
    if done.returncode != 0:
        sys.exit(f"{folder.name}: octavo {' '.join(map(str, words))} ended with {done.returncode}:\n{done.stderr[-1500:]}")
    return done.stdout


def trained(work, name, config, *flags, ranks=1):
    """(folder, losses of the steps, the last validation loss)"""
    folder = work / name
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "config.json").write_text(json.dumps(config))
    (folder / "train.yaml").write_text(CONFIG)
    launch = () if ranks == 1 else ("launch", "--nproc", ranks, "--")
    octavo(folder, *launch, "train", "train.yaml", *flags)
    records = [json.loads(line) for line in (folder / "runs" / "run" / "metrics.jsonl").read_text().splitlines()]
    return (folder, [r["train/loss"] for r in records if "train/loss" in r],
            [r["val/loss"] for r in records if "val/loss" in r][-1])


def check(work, model_type, more):
    config = SIZES | dict(model_type=model_type, tie_word_embeddings=True) | more
    folder, alone, val = trained(work, model_type, config, "--batch_size", 4)
    _, shared, _ = trained(work, f"{model_type}-2", config, "--batch_size", 2, "--sharding_mode", "fsdp_full", ranks=2)
    apart = max(abs(a - b) / b for a, b in zip(shared, alone))
    octavo(folder, "train", "train.yaml", "--batch_size", 4, "--resume", "latest", "--max_steps", STEPS + 2)
    octavo(folder, "checkpoints", "export", "run", "--checkpoint_dir", "checkpoints_fp8", "--output", "exported")
    text = octavo(folder, "generate", "--checkpoint", "exported", "--prompt", "First Citizen:", "--max_new_tokens", 40,
                  "--tokenizer", "bytes")
    model, notes = AutoModelForCausalLM.from_pretrained(folder / "exported", dtype=torch.float32, output_loading_info=True)
    found = not any(notes[k] for k in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids = torch.frombuffer(bytearray(TEXT.read_bytes()[-64 * 64 - 1:]), dtype=torch.uint8).long()
    with torch.no_grad():
        logits = model.eval()(ids[:-1].view(-1, LENGTH)).logits
    loss = F.cross_entropy(logits.flatten(0, 1), ids[1:]).item()
    good = (len(alone) == STEPS and alone[-1] < alone[0] and all(map(math.isfinite, shared)) and apart <= RANKS_REL
            and found and abs(loss - val) < 0.25 and len(text.strip()) > 0)
    print(f"{model_type}: loss {alone[0]:.3f} to {alone[-1]:.3f}, two ranks within {apart:.1e}, validation {val:.3f}, "
          f"transformers on the export {loss:.3f}{'' if good else ': WRONG'}", flush=True)
    return good


def main():
    require(OCTAVO, TEXT)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        good = [check(pathlib.Path(temporary), name, more) for name, more in FAMILIES.items()]
    print(f"families={len(good)} good={sum(good)}")
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
