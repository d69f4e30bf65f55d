#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=900 gate="--short" night=""
"""Whole training steps through the CUDA code path, on the fake CUDA device (src/fake_cuda): what libtorch, cuBLAS and
Transformer Engine are asked for, and the memory that libtorch's own allocator takes. No kernel runs.

From the third step on nothing is allocated of the device and the host waits once, where it reads the loss. Runs that take FP8
statistics keep the last ones beside the next: there nothing is allocated once they were taken twice, in steps with statistics neither. For every compute capability that has FP8, every recipe that it has and both backends. Full fine-tuning of
Llama-3.1-8B's shape in FP8 stays within 60 GB, and a device one byte too small fails with what to change. All architectures of
gpu_cases.py: what must run there runs, nothing is allocated after the second step, and no call is one that the device does not know.

usage: gpu_step.py [--short]    --short: a part of gpu_cases.py alone
Last line: cases=N failed=0 and, in the long form, the peaks of the 8B shape"""
import json
import pathlib
import subprocess
import sys
import tempfile

import fake_cuda
import gpu_cases
from common import BUILD, OCTAVO, ROOT, require_files

STEP = BUILD / "bin" / "step_bench"
GIGABYTE = 1e9
LIMIT = 60 * GIGABYTE  # of the 8B shape
SEGMENT = 2 << 20      # libtorch asks the device for multiples of this

LLAMA_8B = {"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
            "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 128256,
            "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 500000.0, "hidden_act": "silu",
            "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False,
            "rope_scaling": {"factor": 8.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                             "original_max_position_embeddings": 8192, "rope_type": "llama3"}}
FULL_8B = ["--batch_size", "2", "--max_seq_length", "1024", "--gradient_checkpointing", "true", "--master_dtype", "bf16",
           "--moment_dtype", "fp8", "--gradient_dtype", "bf16"]
FP8 = ["--mixed_precision", "fp8", "--fp8_stats_freq", "0", "--fp8_recipe"]
STATISTICS = ["--mixed_precision", "fp8", "--fp8_stats_freq", "2", "--fp8_recipe"]
failures, checked = [], 0


def check(name, holds, found):
    global checked
    checked += 1
    print(f"{'ok    ' if holds else 'FAILED'} {name}: {found}", flush=True)
    if not holds:
        failures.append(name)


def flags_of(work, model, *more):
    return [str(f) for f in ("--model_name", model, "--dataset", work / "text.txt", "--tokenizer", "bytes",
                             "--data_cache", work / "data", *more)]


def steps(work, flags, capability, count=4):
    """What each step asked for, and how often each kernel was launched in the last one."""
    done = subprocess.run([STEP, "steps", str(count), *flags], cwd=work, text=True, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, env=fake_cuda.environment(capability=capability))
    if done.returncode != 0:
        sys.exit(f"step_bench ended with exit code {done.returncode}:\n{done.stderr[-3000:]}")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return lines[:-1], lines[-1]


def check_steps(name, found, settled=3):
    """Nothing is asked of the device from step `settled` on."""
    for line in found:
        check(f"{name} says that the device is fake", "fake CUDA device" in line["precision"], line["precision"])
        break
    for number, line in enumerate(found[2:], 3):
        fixed = line["mallocs"] == 0 or number < settled
        check(f"{name}, step {number}", fixed and line["to_host"] == 1 and line["host_waits"] <= 2 and
              line["unexpected"] == 0,
              f"cudaMalloc {line['mallocs']}, read by the host {line['to_host']} (waits {line['host_waits']}: the copy and its "
              f"stream), launches {line['launches']} + {line['gemms']} GEMMs, peak {line['peak'] / GIGABYTE:.2f} GB")


def per_layer(work, model_of, flags, capability):
    """Launches that one more layer costs."""
    few, many = (steps(work, flags_of(work, *model_of(layers), *flags), capability, 3)[0][-1] for layers in (2, 3))
    return {key: many[key] - few[key] for key in ("launches", "gemms", "memsets")}


def gpt2(layers=12):
    return ("gpt2", "--n_layer", layers, "--vocab_size", 50257, "--batch_size", 8, "--max_seq_length", 1024)


def llama_folder(work, layers=32):
    folder = work / f"llama-{layers}"
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(LLAMA_8B | {"num_hidden_layers": layers}))
    return folder


def check_recipe(work, capability, recipe):
    """Activations with and without a gate: GPT-2, whole on 9.0, by both backends, and two layers of Llama 8B by the usual one.
    Every second step takes statistics."""
    backends = [b for b in gpu_cases.BACKENDS if gpu_cases.what_runs(capability, recipe, b) == (recipe, b)]
    models = {"GPT-2": (gpt2(12 if capability == 90 else 2), backends), "Llama": ((llama_folder(work, 2),), backends[:1])}
    for name, (model, used) in models.items():
        for backend in used:
            found, _ = steps(work, flags_of(work, *model, *STATISTICS, recipe, "--fp8_backend", backend), capability, count=6)
            check_steps(f"{name}, {recipe}, {backend}, {capability / 10}", found, settled=5)


def check_architectures(work, cases):
    """What runs in each case is what must, and from the third step on it is a quiet step."""
    gpu_cases.prepare(work)
    for case, found in gpu_cases.run(work, STEP, ["cases", 4], cases):
        if "error" in found:
            check(case.name, False, found["error"][:1500])
            continue
        recipe, backend = case.runs
        ran = (found["recipe"], found["backend"], found["attention"], found["fp8_layers"] > 0)
        last = found["steps"][2:]
        quiet = all(s["mallocs"] == 0 and s["to_host"] == 1 and s["host_waits"] <= 2 and s["unexpected"] == 0 for s in last)
        wanted = "FP8, fake CUDA device" if recipe else "BF16, fake CUDA device"
        check(case.name, quiet and ran == (recipe, backend, case.attention, bool(recipe)) and
              all(s["precision"] == wanted for s in last),
              f"{ran}, {last[-1]['launches']} launches + {last[-1]['gemms']} GEMMs"
              + ("" if quiet else f", not quiet: {last}"))


def check_deterministic(work):
    """The key `deterministic`: not on GPUs unless asked, and then attention sums in a fixed order."""
    for value, wanted in (("auto", "aten/cudnn"), ("false", "aten/cudnn"), ("true", "aten/flash")):
        _, found = gpu_cases.run(work, STEP, ["cases", 2], [gpu_cases.Case(90, "llama", "", "", "all")], "--deterministic", value)[0]
        check(f"deterministic {value}", found.get("attention") == wanted, found.get("attention", found))


def layer_table(work):
    print("\n| model | precision | kernels a layer | GEMMs | memsets |\n|---|---|---|---|---|")
    models = {"GPT-2": (gpt2, []), "Llama, recompute": (lambda n: (llama_folder(work, n),), FULL_8B)}
    kinds = [("BF16", [], 90), ("FP8 delayed, te", [*FP8, "delayed"], 90),
             ("FP8 delayed, aten", [*FP8, "delayed", "--fp8_backend", "aten"], 90),
             ("FP8 blockwise, te", [*FP8, "blockwise"], 90), ("FP8 mxfp8, te, 10.0", [*FP8, "mxfp8"], 100),
             ("NVFP4, te, 10.0", [*FP8, "nvfp4", "--fp8_skip", "none"], 100)]
    for name, (model_of, more) in models.items():
        for kind, flags, capability in kinds:
            found = per_layer(work, model_of, [*more, *flags], capability)
            print(f"| {name} | {kind} | {found['launches']} | {found['gemms']} | {found['memsets']} |", flush=True)
    print()


def train(work, memory, *flags):
    return subprocess.run([OCTAVO, "train", *flags, "--max_steps", "2", "--eval_freq", "0", "--runs_dir", work / "runs"],
                          cwd=work, text=True, capture_output=True,
                          env=fake_cuda.environment(capability=90, memory=memory))


def check_memory(work):
    """The smallest device on which a small model trains, and one byte less."""
    flags = flags_of(work, "gpt2", "--n_layer", 2, "--vocab_size", 50257, "--batch_size", 4, "--max_seq_length", 512)
    least = 0
    most = 8 << 30
    while most - least > SEGMENT:
        middle = (least + most) // 2 // SEGMENT * SEGMENT
        if train(work, middle, *flags).returncode == 0:
            most = middle
        else:
            least = middle
    check("a device that is just large enough", train(work, most, *flags).returncode == 0, f"{most} bytes")
    done = train(work, most - 1, *flags)
    message = done.stderr
    check("one byte too few", done.returncode == 3 and "out of memory" in message and "Change first" in message and
          "batch_size" in message, f"exit code {done.returncode}, {message.strip().splitlines()[-1][:100]}…")


def main():
    require_files()
    fake_cuda.require_libraries()
    with tempfile.TemporaryDirectory(prefix="octavo-gpu-step-") as folder:
        work = pathlib.Path(folder)
        short = "--short" in sys.argv
        check_architectures(work, gpu_cases.short_cases(gpu_cases.ALL_RECIPES) if short else gpu_cases.all_cases(gpu_cases.ALL_RECIPES))
        check_deterministic(work)
        if short:
            print(f"cases={checked} failed={len(failures)}")
            sys.exit(1 if failures else 0)
        check_steps("GPT-2 124M, BF16", steps(work, flags_of(work, *gpt2()), 90)[0])
        for capability in gpu_cases.CAPABILITIES:
            for recipe in gpu_cases.ALL_RECIPES:
                if gpu_cases.what_runs(capability, recipe, "te")[0] == recipe:
                    check_recipe(work, capability, recipe)
        model = llama_folder(work)
        peaks = {}
        for name, more in (("BF16", []), ("FP8 delayed", [*FP8, "delayed"]), ("FP8 blockwise", [*FP8, "blockwise"])):
            found, _ = steps(work, flags_of(work, model, *FULL_8B, *more), 90)
            check_steps(f"Llama 8B, {name}", found)
            peaks[name] = found[-1]["peak"]
        check("full fine-tuning of 8B in FP8", peaks["FP8 delayed"] <= LIMIT,
              f"peak {peaks['FP8 delayed'] / GIGABYTE:.2f} GB, wanted at most {LIMIT / GIGABYTE:.0f}")
        layer_table(work)
        check_memory(work)
        done = train(work, 45_000_000_000, *flags_of(work, model, *FULL_8B, *FP8, "delayed"))
        check("8B on a device of 45 GB", done.returncode == 3 and "Change first" in done.stderr, f"exit code {done.returncode}")
    print(f"cases={checked} failed={len(failures)} peak_8b_fp8_gb={peaks['FP8 delayed'] / GIGABYTE:.2f} "
          f"peak_8b_bf16_gb={peaks['BF16'] / GIGABYTE:.2f}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
