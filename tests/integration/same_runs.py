#!/usr/bin/env python3
# test: label=integration timeout=900 gate="--short" night=""
"""What a change of the code must not change: 30 steps of a tiny GPT-2 and a tiny Llama in BF16 and by each FP8 recipe, on one
rank and on two. Records (without times and memory) and final tensors are hashed, and compared bit for bit with those of
another build, or of a file that an earlier build wrote on the same machine; with neither, every run is made twice.
And fp8_update, which says when delayed scales move on, changes a run with two micro-batches in a step and no run with one.

usage: same_runs.py [--against BUILD | --expect FILE] [--record FILE] [--short]
"""
import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from common import BUILD, TEXT, read_records, require_files

STEPS = 30
MODES = ("bf16", "delayed", "current", "rowwise", "blockwise", "mxfp8", "nvfp4")
MODELS = {"gpt2": ("--model_name", "custom", "--n_layer", "2", "--n_head", "2", "--n_embd", "128"),
          "llama": ("--model_name", "llama")}
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 257, "hidden_size": 128,
         "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
         "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
         "tie_word_embeddings": True}
CONFIG = f"""
dataset: text.txt
tokenizer: bytes
val_fraction: 0.1
max_seq_length: 32
batch_size: 2
gradient_accumulation_steps: 2
max_steps: {STEPS}
warmup_steps: 4
learning_rate: 2e-3
eval_freq: 10
eval_batches: 2
sample_freq: 0
checkpoint_freq: 10
fp8_stats_freq: 5
fp8_amax_history: 16
num_threads: 1
grad_reduce_dtype: fp32
run_name: run
"""


def digest(*parts):
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


def fingerprint(build, work, model, mode, ranks, *more):
    """Hashes of the records and of the last checkpoint's tensors of one run."""
    with tempfile.TemporaryDirectory(dir=work) as name:
        folder = pathlib.Path(name)
        (folder / "train.yaml").write_text(CONFIG)
        (folder / "llama").mkdir()
        (folder / "llama" / "config.json").write_text(json.dumps(LLAMA))
        (folder / "text.txt").symlink_to(work / "text.txt")
        precision = ("--mixed_precision", "bf16") if mode == "bf16" else ("--mixed_precision", "fp8", "--fp8_recipe", mode)
        flags = ["train.yaml", *MODELS[model], *precision, *more]
        program = [build / "bin" / "octavo"]
        command = [*program, "train", *flags] if ranks == 1 else \
            [*program, "launch", "--nproc", str(ranks), "--", "train", *flags, "--sharding_mode", "fsdp_full"]
        done = subprocess.run(command, cwd=folder, text=True, capture_output=True,
                              env=os.environ | {"OMP_WAIT_POLICY": "passive"})
        if done.returncode != 0:
            sys.exit(f"{model} {mode} on {ranks} ranks ended with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        records = read_records(folder / "runs" / "run" / "metrics.jsonl")
        if len(records) < STEPS:
            sys.exit(f"{model} {mode} on {ranks} ranks: wanted {STEPS} records, found {len(records)}")
        checkpoints = folder / ("checkpoints" if mode == "bf16" else "checkpoints_fp8") / "run" / f"step-{STEPS:08d}"
        tensors = sorted(checkpoints.glob("**/*.safetensors"))
        if not tensors:
            sys.exit(f"{model} {mode} on {ranks} ranks: no checkpoint")
        return {"metrics": digest(json.dumps(records, sort_keys=True).encode()),
                "checkpoint": digest(*(file.read_bytes() for file in tensors)), "loss": [r["train/loss"] for r in records if "train/loss" in r][-1]}


def wrong_updates(work):
    """What fp8_update does that it should not."""
    found = {}
    for passes in "1", "2":
        for update in "pass", "step":
            found[passes, update] = fingerprint(BUILD, work, "gpt2", "delayed", 1, "--gradient_accumulation_steps", passes,
                                                "--fp8_update", update)
    one = [] if found["1", "pass"] == found["1", "step"] else ["fp8_update changes a run with one micro-batch in a step"]
    return one + ([] if found["2", "pass"] != found["2", "step"] else ["fp8_update changes nothing with two micro-batches"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--against", type=pathlib.Path, help="build folder whose program made the wanted runs")
    parser.add_argument("--expect", type=pathlib.Path, help="file with the wanted runs")
    parser.add_argument("--record", type=pathlib.Path, help="file to write the runs to")
    parser.add_argument("--short", action="store_true", help="BF16 and one recipe")
    options = parser.parse_args()
    require_files()
    expected = json.loads(options.expect.read_text()) if options.expect else None
    runs, different = {}, []
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        (work / "text.txt").write_bytes(TEXT.read_bytes()[:200_000])
        for model in MODELS:
            for mode in MODES[:2] if options.short else MODES:
                for ranks in (1, 2):
                    key = f"{model} {mode} ranks={ranks}"
                    runs[key] = found = fingerprint(BUILD, work, model, mode, ranks)
                    wanted = found if options.record else expected[key] if expected else \
                        fingerprint(options.against or BUILD, work, model, mode, ranks)
                    same = found == wanted
                    different += [] if same else [key]
                    print(f"{key:26} loss {found['loss']:.6f}  metrics {found['metrics']}  checkpoint {found['checkpoint']}  "
                          f"{'same' if same else f'DIFFERENT, wanted {wanted}'}", flush=True)
        wrong = wrong_updates(work)
    for line in wrong:
        print(line)
    if options.record:
        options.record.write_text(json.dumps(runs, indent=1) + "\n")
    print(f"runs={len(runs)} different={len(different)} updates_wrong={len(wrong)}")
    sys.exit(1 if different or wrong else 0)


if __name__ == "__main__":
    main()
