#!/usr/bin/env python3
# test: label=integration timeout=300 gate=""
"""Spellings: what people type who come from the guides and from other trainers is taken, or answered with what to type.

Three tables: WRONG (a command, and what its refusal must say), TAKEN (flags, and the settings that they must give: `config show`) and
TOLD (commands that work and say what a name stands for). Nothing is trained, and there is no network. What combinations of a file and
flags must run is intent_table.py's.
"""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

import common

USAGE = 2
LEAST_WRONG, LEAST_TAKEN = 60, 40
# In the folder where the commands run.
FILES = {
    "lr.yaml": "lr: 1e-4\n",
    "hf.yaml": "per_device_train_batch_size: 4\n",
    "fp16.yaml": "fp16: true\n",
    "scheduler.yaml": "lr_scheduler_type: cosine\n",
    "nowandb.yaml": "no_wandb: true\n",
    "precision.yaml": "mixed_precision: bfloat16\n",
    "steps.yaml": "max_steps: 10k\n",
    "recipe.yaml": "fp8_recipe: DelayedScaling\n",
    "typo.yaml": "seed: 1\nlearning_rat: 1e-4\n",
    "long.yaml": "model_name: llama-3-8b\nmax_seq_length: 9000\n",
    "sweep.yaml": "parameters:\n  seed:\n    values: [1, 2]\n",
    "seed.yaml": "seed: 77\n",
    "names.yaml": "model_name: Llama 3.2 1B\ndataset: fineweb_edu\n",
    "unknown.yaml": "model_name: lama-3.2-1b\ndataset: finewebb-edu\n",
}
WRONG = [
    # keys that mean something else, or nothing
    ("train --fp16", "take mixed_precision bf16 or fp8"),
    ("train --half", "take mixed_precision bf16 or fp8"),
    ("train --tf32", "mixed_precision bf16 or fp8"),
    ("train --dtype bfloat16", "mixed_precision: fp8, bf16 or fp32"),
    ("train --torch_dtype bfloat16", "mixed_precision: fp8, bf16 or fp32"),
    ("train --warmup_ratio 0.03", "give warmup_steps"),
    ("train --lr_scheduler_type cosine", "min_lr_ratio"),
    ("train --min_lr 6e-5", "give min_lr_ratio"),
    ("train --output_dir out", "runs_dir and checkpoint_dir"),
    ("train --out_dir out", "runs_dir and checkpoint_dir"),
    ("train --job.dump_folder out", "runs_dir and checkpoint_dir"),
    ("train --optim adamw_8bit", "moment_dtype fp8"),
    ("train --per_device_eval_batch_size 4", "batch_size of training"),
    ("train --eval_strategy steps", "eval_freq N"),
    ("train --save_strategy epoch", "checkpoint_freq N"),
    ("train --report_to wandb", "--use_wandb"),
    ("train --deepspeed ds.json", "octavo config import"),
    ("train --zero_stage 3", "fsdp_full for stage 3"),
    ("train --fsdp full_shard", "sharding_mode fsdp_full"),
    ("train --use_peft", "lora_rank 16"),
    ("train --load_in_4bit", "lora_base fp8"),
    ("train --template llama3", "chat_template"),
    ("train --do_train", "leave it out"),
    ("train --torch_compile", "leave it out"),
    ("train --overwrite_output_dir", "overwrite removes the run"),
    ("train --tensor_model_parallel_size 2", "sharding_mode fsdp_full"),
    ("train --num_layers 12", "n_layer"),
    ("train --model.flavor 8B", "octavo names"),
    ("train --local_rank 0", "octavo launch --nproc N"),
    ("report --config c.yaml", "name the file without a flag"),
    # slips of the finger
    ("trian", "did you mean train?"),
    ("export f2", "it is octavo checkpoints export"),
    ("chat", "it is octavo generate --chat"),
    ("train --dry_run", "type octavo plan"),
    ("train seed", "did you mean seed.yaml?"),
    ("train --resume --use_fp8", "write --resume latest"),
    ("eval", "octavo eval runs/RUN/config.yaml --checkpoint RUN"),
    ("diagnose", "--checkpoint latest"),
    ("train --batchsize 4", "did you mean batch_size?"),
    ("train --learningrate 1", "did you mean learning_rate?"),
    ("config check typo.yaml", "typo.yaml:2: unknown key 'learning_rat'; did you mean learning_rate?"),
    ("train --help fp16", "take mixed_precision bf16 or fp8"),
    # files
    ("config check lr.yaml", "lr.yaml:1: unknown key 'lr'; here it is learning_rate"),
    ("config check hf.yaml", "here it is batch_size (octavo config import"),
    ("config check fp16.yaml", "take mixed_precision bf16 or fp8"),
    ("config check scheduler.yaml", "min_lr_ratio"),
    ("config check nowandb.yaml", "here it is use_wandb: false"),
    ("config check precision.yaml", "precision.yaml:1: mixed_precision: wanted one of fp8, bf16, fp32, found 'bfloat16'; did you mean bf16?"),
    ("config check steps.yaml", "write 10000"),
    ("config check recipe.yaml", "did you mean delayed?"),
    ("config check long.yaml", "wanted at most 8192, the context of meta-llama/Meta-Llama-3-8B"),
    ("config import sweep.yaml", "octavo sweep create"),
    # values
    ("train --mixed_precision fp16", "FP16 is not implemented"),
    ("train --mixed_precision BF16", "did you mean bf16?"),
    ("train --mixed_precision no", "did you mean fp32?"),
    ("train --mixed_precision mxfp8", "fp8_recipe mxfp8"),
    ("train --fp8_format HYBRID", "did you mean hybrid?"),
    ("train --fp8_format e4m4", "did you mean e4m3?"),
    ("train --fp8_recipe tensorwise", "did you mean current?"),
    ("train --fp8_recipe blokwise", "did you mean blockwise?"),
    ("train --fp8_backend transformer_engine", "did you mean te?"),
    ("train --fp8_backend torchao", "did you mean aten?"),
    ("train --sharding_mode zero3", "did you mean fsdp_full?"),
    ("train --sharding_mode FULL_SHARD", "did you mean fsdp_full?"),
    ("train --device gpu", "did you mean cuda?"),
    ("train --device cuda:0", "CUDA_VISIBLE_DEVICES=0"),
    ("train --moment_dtype 8bit", "did you mean fp8?"),
    ("train --chat_template qwen", "did you mean qwen2?"),
    ("train --max_steps 1e4", "write 10000"),
    ("train --max_steps 10_000", "write 10000"),
    ("train --num_train_epochs 3.0", "write 3"),
    ("train --learning_rate 3,5e-4", "write 0.00035"),
    ("train --val_fraction 10%", "write 0.1"),
    ("train --bf16 false", "it is --mixed_precision bf16"),
    ("train --config", "wanted a YAML file"),
    ("train --lr 1e-4 --learning_rate 1e-4", "wanted once, found twice"),
    # names
    ("plan --gpu h1000", "did you mean h100?"),
    ("plan --gpu mi300x", "wanted a GPU of NVIDIA"),
    ("plan --gpu 'RTX 4090 Laptop GPU'", "wanted one of a100"),
    ("plan --model_name openai/gpt-oss-120b", "which is gpt-oss and not implemented; octavo names"),
    ("plan --model_name openai/gpt-oss-20b", "which is gpt-oss and not implemented"),
    ("train --dataset fineweb-edu,openwebtext", "wanted it alone"),
    ("names cars", "wanted models, data or gpus"),
    # what the guides' scripts had built in
    ("train --use_fp8 --use_tensorboard", "octavo train configs/gpt2_fp8.yaml"),
    ("train --use_fp8 --use_tensorboard", "octavo examples gpt2_fp8"),
    ("train --resume checkpoints/latest.pt", "a checkpoint is a folder"),
    ("generate --checkpoint nosuch --prompt x", "there is no"),
    ("launch --nproc 2", "octavo launch --nproc 8 -- train config.yaml"),
]
TAKEN = [
    ("--lr 2e-4", {"learning_rate": "2e-04"}),
    ("--max_lr 2e-4", {"learning_rate": "2e-04"}),
    ("--optimizer.lr 2e-4", {"learning_rate": "2e-04"}),
    ("--total_steps 9", {"max_steps": "9"}),
    ("--training.steps 9", {"max_steps": "9"}),
    ("--max_iters=9", {"max_steps": "9"}),
    ("--train-iters 9", {"max_steps": "9"}),
    ("--per_device_train_batch_size 3", {"batch_size": "3"}),
    ("--micro-batch-size 3", {"batch_size": "3"}),
    ("--training.local_batch_size 3", {"batch_size": "3"}),
    ("--global_batch_size 64", {"target_effective_batch_size": "64"}),
    ("--num_train_epochs 3", {"num_epochs": "3"}),
    ("--epochs 3", {"num_epochs": "3"}),
    ("--block_size 256", {"max_seq_length": "256"}),
    ("--seq-length 256", {"max_seq_length": "256"}),
    ("--cutoff_len 256", {"max_seq_length": "256"}),
    ("--max_length 256", {"max_seq_length": "256"}),
    ("--bf16", {"mixed_precision": "bf16", "use_fp8": "false"}),
    ("--bf16 True", {"mixed_precision": "bf16"}),
    ("--fp8", {"use_fp8": "true", "mixed_precision": "fp8"}),
    ("--mxfp8", {"fp8_recipe": "mxfp8", "use_fp8": "true"}),
    ("--no_wandb", {"use_wandb": "false"}),
    ("--wandb", {"use_wandb": "true"}),
    ("--tensorboard", {"use_tensorboard": "true"}),
    ("--metrics.enable_tensorboard", {"use_tensorboard": "true"}),
    ("--logging_steps 5", {"log_freq": "5"}),
    ("--eval_interval 5", {"eval_freq": "5"}),
    ("--save_steps 5", {"checkpoint_freq": "5"}),
    ("--save_total_limit 2", {"keep_checkpoints": "2"}),
    ("--resume_from_checkpoint latest", {"resume": '"latest"'}),
    ("--grad_clip 0.5", {"max_grad_norm": "0.5"}),
    ("--adam_beta2 0.98", {"beta2": "0.98"}),
    ("--lora_r 8", {"lora_rank": "8"}),
    ("--model_name_or_path gpt2", {"model_name": '"gpt2"'}),
    ("--config seed.yaml", {"seed": "77"}),
    ("--config=seed.yaml --max_steps 3", {"seed": "77", "max_steps": "3"}),
    ("--config_file seed.yaml", {"seed": "77"}),
    ("--ddp_timeout 60", {"dist_timeout": "60"}),
    ("--nproc_per_node=2", {"nproc": "2"}),
    ("--master_addr node0", {"master_address": '"node0"'}),
    # names
    ("--dataset fineweb-edu", {"dataset": '["HuggingFaceFW/fineweb-edu"]', "dataset_config": '"sample-10BT"'}),
    ("--dataset FineWeb", {"dataset": '["HuggingFaceFW/fineweb"]', "dataset_config": '"sample-10BT"'}),
    ("--dataset openwebtext", {"dataset": '["Skylion007/openwebtext"]', "dataset_config": '""'}),
    ("--dataset tinyshakespeare", {"dataset": '["karpathy/tiny_shakespeare"]'}),
    ("--dataset_name openmathinstruct-2", {"dataset": '["nvidia/OpenMathInstruct-2"]', "split_name": '"train_1M"'}),
    ("--dataset openmathinstruct-2 --split_name train", {"split_name": '"train"'}),
    ("--dataset gsm8k", {"dataset": '["openai/gsm8k"]', "dataset_config": '"main"'}),
    ("--dataset alpaca", {"dataset": '["tatsu-lab/alpaca"]'}),
    ("--dataset hellaswag", {"dataset": '["Rowan/hellaswag"]'}),
    ("--model_name Meta-Llama-3.1-8B", {"model_name": '"meta-llama/Llama-3.1-8B"'}),
    ("--model_name meta-llama/Meta-Llama-3.1-8B", {"model_name": '"meta-llama/Meta-Llama-3.1-8B"'}),
    ("--model_name Meta-Llama-3-8B-Instruct", {"model_name": '"meta-llama/Meta-Llama-3-8B-Instruct"'}),
    ("--model_name qwen25-14b", {"model_name": '"Qwen/Qwen2.5-14B"'}),
    ("--model_name smollm2-360m", {"model_name": '"HuggingFaceTB/SmolLM2-360M"'}),
]
PLANNED = ["openai-community/gpt2", "meta-llama/Meta-Llama-3.1-8B", "meta-llama/Meta-Llama-3-8B-Instruct", "meta-llama/Llama-3.2-1B",
           "meta-llama/Llama-3.2-3B", "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.3-70B-Instruct", "Qwen/Qwen2.5-14B",
           "Qwen/Qwen2.5-72B-Instruct", "HuggingFaceTB/SmolLM2-135M", "llama-3.2-1b", "Meta Llama 3.1 8B"]
GPUS = ["H100", "h100-sxm", "H100 80GB", "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "A100-SXM4-40GB", "RTX 4090", "NVIDIA GeForce RTX 5090",
        "B200", "H200 141GB", "l40s"]
TOLD = [
    ("config check names.yaml", "model_name Llama 3.2 1B: meta-llama/Llama-3.2-1B on the Hugging Face hub"),
    ("config check names.yaml", "dataset fineweb_edu: HuggingFaceFW/fineweb-edu on the Hugging Face hub, dataset_config sample-10BT"),
    ("config check unknown.yaml", "did you mean llama-3.2-1b?"),
    ("config check unknown.yaml", "did you mean fineweb-edu?"),
    ("plan --model_name gpt2 --gpu H100 --gpus 8", "8 x H100"),
    ("launch --nproc 2 --slurm job.sh train seed.yaml", "job.sh: written"),
    ("names", "meta-llama/Llama-3.1-8B"),
    ("names data", "karpathy/tiny_shakespeare"),
    ("names gpus", "RTX 4090"),
    ("train --help lr", "learning_rate"),
    *((f"plan --model_name {shlex.quote(name)} --gpu h100", "parameters") for name in PLANNED),
    *((f"plan --model_name gpt2 --gpu {shlex.quote(gpu)}", "parameters") for gpu in GPUS),
]
FAILED = []


def check(good, what):
    if not good:
        FAILED.append(what)
        print(f"  WRONG: {what}")


def run(folder, words):
    environment = os.environ | {"HF_HOME": str(folder / "hub"), "HF_HUB_OFFLINE": "1", "OMP_WAIT_POLICY": "passive"}
    return subprocess.run([common.OCTAVO, *shlex.split(words)], cwd=folder, env=environment, text=True, capture_output=True, timeout=60)


def check_wrong(folder, words, hint):
    done = run(folder, words)
    check(done.returncode == USAGE and hint in done.stderr,
          f"octavo {words}: wanted exit code {USAGE} and '{hint}', found {done.returncode}: {(done.stdout + done.stderr)[-600:]}")


def check_taken(folder, flags, wanted):
    done = run(folder, f"config show {flags}")
    values = dict(re.findall(r"^(\w+): +(.*?) +# ", done.stdout, re.M))
    found = {key: values.get(key) for key in wanted}
    check(done.returncode == 0 and found == wanted, f"{flags}: wanted {wanted}, found {done.returncode} {found} {done.stderr[-400:]}")


def check_told(folder, words, part):
    done = run(folder, words)
    check(done.returncode == 0 and part in done.stdout, f"octavo {words}: wanted '{part}', found {done.returncode}: "
          f"{(done.stdout + done.stderr)[-600:]}")


def main():
    if not common.OCTAVO.exists():
        sys.exit(f"wanted {common.OCTAVO}, found none; build it first")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file, text in FILES.items():
            (folder / file).write_text(text)
        for table, checked in ((WRONG, check_wrong), (TAKEN, check_taken), (TOLD, check_told)):
            for row in table:
                checked(folder, *row)
    print(f"wrong={len(WRONG)} taken={len(TAKEN)} told={len(TOLD)} failed={len(FAILED)}")
    sys.exit(0 if len(WRONG) >= LEAST_WRONG and len(TAKEN) >= LEAST_TAKEN and not FAILED else 1)


if __name__ == "__main__":
    main()
