#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 night="" alone measures="src/plan"
"""`octavo plan`'s forecast of memory against what a run really takes.

GPU: twelve configs from 124M to 14B on the fake CUDA device (src/fake_cuda): the real training step, libtorch's real caching
allocator, no kernels. Within 3% of the peak that was asked of the device. Models of other families by their names, up to 32B, with
`octavo plan --dry_run` on the largest device: adapters, recomputation, kinds of state, recipes, lengths. Sharded: ranks that are processes, each with
a fake device of its own and NCCL recorded (nccl_calls.py), by the rank that took most. CPU: six short real runs, within 10% of the peak in
their receipts.

usage: plan_memory.py [--named N,N… | --sharded N,N…]    those places of the tables alone
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release"))
sys.path.insert(0, str(ROOT / "tests/integration"))
import fake_cuda  # noqa: E402
import nccl_calls  # noqa: E402

GPU_LIMIT, CPU_LIMIT = 0.03, 0.10
LOW = "--master_dtype bf16 --moment_dtype fp8 --gradient_dtype bf16"
LONG = "--batch_size 2 --max_seq_length 2048"
# Shapes are written out here as config.json files: the forecast must read those too.
SHAPES = {"llama-1b": ("llama", 16, 2048, 8192, 32, 8, 64, 128256, True),
          "llama-3b": ("llama", 28, 3072, 8192, 24, 8, 128, 128256, True),
          "llama-8b": ("llama", 32, 4096, 14336, 32, 8, 128, 128256, False),
          "qwen-0.5b": ("qwen2", 24, 896, 4864, 14, 2, None, 151936, True),
          "qwen-14b": ("qwen2", 48, 5120, 13824, 40, 8, None, 152064, False)}
GPU = [("gpt2", "--vocab_size 50257 --batch_size 8"),
       ("gpt2", "--vocab_size 50257 --batch_size 8 --use_fp8"),
       ("gpt2-xl", "--vocab_size 50257 --batch_size 4 --gradient_checkpointing --use_fp8 --fp8_recipe current"),
       ("llama-1b", LONG),
       ("llama-1b", f"{LONG} --use_fp8 --gradient_accumulation_steps 4"),
       ("llama-3b", f"{LONG} --use_fp8 --fp8_recipe rowwise --gradient_dtype bf16"),
       ("llama-8b", f"--batch_size 2 --gradient_checkpointing {LOW}"),
       ("llama-8b", f"--batch_size 2 --gradient_checkpointing --use_fp8 {LOW}"),
       ("llama-8b", "--batch_size 4 --lora_rank 8 --use_fp8"),
       ("llama-8b", "--batch_size 4 --lora_rank 32 --gradient_checkpointing"),
       ("qwen-0.5b", "--batch_size 4 --master_dtype bf16 --moment_dtype bf16"),
       ("qwen-14b", f"--batch_size 2 --gradient_checkpointing --use_fp8 {LOW}")]
SHORT = "--batch_size 1 --max_seq_length 2048"
NAMED = [("Qwen3-0.6B", "--batch_size 4 --max_seq_length 2048"),
         ("Qwen3-1.7B", f"{LONG} --use_fp8"),
         ("Qwen3-4B", f"{LONG} --gradient_checkpointing --use_fp8"),
         ("Qwen3-8B", f"{LONG} --lora_rank 16 --use_fp8"),
         ("Qwen3-14B", f"--batch_size 2 --gradient_checkpointing --use_fp8 {LOW}"),
         ("Qwen3-32B", f"{SHORT} --gradient_checkpointing --use_fp8 {LOW}"),
         ("Gemma-3-1B", f"{LONG} --use_fp8"),
         ("Gemma-3-27B", f"{SHORT} --gradient_checkpointing {LOW}"),
         ("Mistral-7B", f"{LONG} --use_fp8 --fp8_recipe current {LOW}"),
         ("SmolLM3-3B", f"{LONG} --use_fp8"),
         ("OLMo-2-7B", f"{SHORT} {LOW}"),
         ("OLMo-3-32B", f"{SHORT} --gradient_checkpointing --use_fp8 {LOW}"),
         ("Qwen3-30B-A3B", f"{SHORT} --gradient_checkpointing {LOW}"),
         ("Qwen3-30B-A3B", f"{SHORT} --gradient_checkpointing --use_fp8 {LOW}"),
         ("Qwen3-30B-A3B", f"{SHORT} --use_fp8 --fp8_recipe current {LOW}"),
         ("gpt2", "--batch_size 16 --max_seq_length 512 --gradient_checkpointing"),
         ("gpt2-medium", "--batch_size 4 --max_seq_length 1024 --use_fp8 --fp8_recipe blockwise"),
         ("gpt2-xl", "--batch_size 2 --max_seq_length 1024 --moment_dtype bf16"),
         ("llama-3.2-1b", f"{LONG} --gradient_checkpointing --use_fp8 --moment_dtype fp8"),
         ("llama-3.2-1b", "--batch_size 8 --max_seq_length 512 --lora_rank 64"),
         ("llama-3.2-3b", f"{LONG} --lora_rank 16 --lora_target_modules q_proj,v_proj"),
         ("llama-3.2-3b", f"{SHORT} --gradient_accumulation_steps 8"),
         ("llama-3.1-8b", f"{LONG} --lora_rank 16 --gradient_checkpointing --use_fp8"),
         ("llama-3.1-8b", f"{SHORT} --lora_rank 8 --lora_base fp8 --use_fp8"),
         ("qwen2.5-7b", f"{SHORT} --lora_rank 8 --lora_base fp8 --gradient_checkpointing"),
         ("qwen2.5-7b", f"{SHORT} --lora_rank 8 --lora_base fp8 --gradient_checkpointing --use_fp8"),
         ("llama-2-7b", f"--batch_size 4 --max_seq_length 1024 --gradient_checkpointing {LOW}"),
         ("qwen2.5-0.5b", "--batch_size 1 --max_seq_length 8192 --use_fp8"),
         ("qwen2.5-7b", f"{SHORT} --gradient_checkpointing --use_fp8 {LOW}"),
         ("SmolLM2-135M", "--batch_size 32 --max_seq_length 1024 --use_fp8"),
         ("SmolLM2-1.7B", f"{LONG} --master_dtype bf16 --moment_dtype bf16")]
LARGEST = ["--gpu", "b300"]
SHARDED = [("llama-1b", f"--num_gpus 2 --sharding_mode ddp {LONG}"),
           ("llama-1b", f"--num_gpus 4 --sharding_mode zero1 {LONG}"),
           ("llama-1b", f"--num_gpus 4 --sharding_mode zero2 {LONG} --use_fp8"),
           ("llama-1b", f"--num_gpus 4 --sharding_mode fsdp_full {LONG}"),
           ("llama-3b", f"--num_gpus 4 --sharding_mode fsdp_full {LONG} --use_fp8 --gradient_checkpointing"),
           ("llama-3b", f"--num_gpus 2 --sharding_mode ddp {LONG} --lora_rank 16 --gradient_checkpointing"),
           ("llama-8b", f"--num_gpus 4 --sharding_mode fsdp_full {SHORT} --gradient_checkpointing")]
SMALL = "--vocab_size 50257 --max_seq_length 256"
CPU = [("gpt2", f"{SMALL} --batch_size 2"),
       ("gpt2", f"{SMALL} --batch_size 8 --gradient_checkpointing"),
       ("gpt2", f"{SMALL} --batch_size 8 --use_fp8"),
       ("gpt2", f"{SMALL} --batch_size 2 {LOW}"),
       ("gpt2-medium", f"{SMALL} --batch_size 1 --master_dtype bf16 --moment_dtype bf16"),
       ("qwen-0.5b", "--max_seq_length 256 --batch_size 1 --lora_rank 8")]


def write_shape(folder, name):
    kind, layers, hidden, ffn, heads, kv, head, vocab, tied = SHAPES[name]
    config = {"model_type": kind, "num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": ffn,
              "num_attention_heads": heads, "num_key_value_heads": kv, "vocab_size": vocab, "tie_word_embeddings": tied,
              "hidden_act": "silu", "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0}
    if head:
        config["head_dim"] = head
    (folder / name).mkdir()
    (folder / name / "config.json").write_text(json.dumps(config))


def run(command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        raise SystemExit(f"{command} ended with {done.returncode}: {done.stderr[-800:]}")
    return done.stdout


def forecast(folder, model, flags):
    out = json.loads(run([BUILD / "bin/octavo", "plan", "--model_name", model, "--json", "--output", folder / "plan.svg", *flags]))
    return out["memory"]["fp8" if "--use_fp8" in flags else "bf16"]["peak"]


def gpu_peak(folder, model, flags):
    environment = fake_cuda.environment(memory=400 * 10**9, base=dict(os.environ, OMP_WAIT_POLICY="passive"))
    out = run([BUILD / "bin/step_bench", "steps", 3, "--device", "cuda", "--init_from", "random", "--runs_dir", folder / "runs",
               "--dataset", folder / "text.txt", "--tokenizer", "bytes", "--data_cache", folder / "data", "--model_name", model, *flags],
              env=environment)
    return max(json.loads(line)["peak"] for line in out.splitlines() if line.startswith('{"gemms"'))


def dry_run_peak(model, flags):
    out = run([BUILD / "bin/octavo", "plan", "--dry_run", "--json", "--model_name", model, *LARGEST, *flags])
    return json.loads(out[out.index("{"):])["peak_bytes"]


def sharded_peak(folder, model, flags):
    gpus = int(flags[flags.index("--num_gpus") + 1])
    words = [word for place, word in enumerate(flags) if "--num_gpus" not in flags[max(0, place - 1):place + 1]]
    found = nccl_calls.run_ranks(folder, ["--device", "cuda", "--init_from", "random", "--runs_dir", folder / "runs", "--dataset", folder / "text.txt",
                                          "--tokenizer", "bytes", "--data_cache", folder / "data", "--fp8_stats_freq", "0", "--model_name", model,
                                          *words], gpus, 3)
    return max(rank["peak"] for rank in found)


def cpu_peak(folder, model, flags, name):
    run([BUILD / "bin/octavo", "train", "--device", "cpu", "--init_from", "random", "--max_steps", 2, "--eval_freq", 0,
         "--checkpoint_freq", 0, "--runs_dir", folder / "runs", "--checkpoint_dir", folder / "checkpoints",
         "--run_name", name, "--dataset", folder / "text.txt", "--tokenizer", "bytes", "--data_cache", folder / "data", "--model_name", model,
         *flags],
        env=dict(os.environ, OMP_WAIT_POLICY="passive"))
    return json.loads((folder / "runs" / name / "receipt.json").read_text())["memory_peak_bytes"]


def compare(folder, configs, device, measure, planned_for=()):
    worst = 0
    for number, (model, text) in enumerate(configs):
        flags = text.split()
        given = str(folder / model) if model in SHAPES else model
        real = measure(given, flags, number)
        expected = forecast(folder, given, [*flags, *(planned_for or ("--device", device))])
        error = expected / real - 1
        worst = max(worst, abs(error))
        print(f"{device:4s} {error:+.3f} forecast {expected / 1e9:7.2f} GB, measured {real / 1e9:7.2f} GB: {model} {text}", flush=True)
    return worst


def places(table, flag):
    """The rows of a table that are asked for; None without the flag."""
    return [table[int(place)] for place in sys.argv[sys.argv.index(flag) + 1].split(",")] if flag in sys.argv else None


def main():
    fake_cuda.require_libraries()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for shape in SHAPES:
            write_shape(folder, shape)
        (folder / "text.txt").write_text("".join(f"line {i} of a text that nobody reads\n" for i in range(12000)))

        def named_worst(table):
            return compare(folder, table, "cuda", lambda model, flags, _: dry_run_peak(model, flags), LARGEST)

        def sharded_worst(table):
            return compare(folder, table, "cuda", lambda model, flags, _: sharded_peak(folder, model, flags))

        if rows := places(NAMED, "--named"):
            return 0 if named_worst(rows) <= GPU_LIMIT else 1
        if rows := places(SHARDED, "--sharded"):
            return 0 if sharded_worst(rows) <= GPU_LIMIT else 1
        gpu = compare(folder, GPU, "cuda", lambda model, flags, _: gpu_peak(folder, model, flags))
        sharded, named = sharded_worst(SHARDED), named_worst(NAMED)
        cpu = compare(folder, CPU, "cpu", lambda model, flags, number: cpu_peak(folder, model, flags, f"run{number}"))
    print(f"gpu_configs={len(GPU)} gpu_worst={gpu:.4f} sharded_configs={len(SHARDED)} sharded_worst={sharded:.4f} "
          f"named_configs={len(NAMED)} named_worst={named:.4f} cpu_configs={len(CPU)} cpu_worst={cpu:.4f}")
    return 0 if max(gpu, sharded, named) <= GPU_LIMIT and cpu <= CPU_LIMIT else 1


sys.exit(main())
