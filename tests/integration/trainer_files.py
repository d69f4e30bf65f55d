"""Made-up files of a run of another trainer, under the names that README.md and docs/how-to/keep-your-trainer.md give them: a
profiler trace, logs, a launch file, and a script with a small PyTorch model. No script: front_page.py imports it. Needs no package."""
import gzip
import json
import pathlib
import random
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "conformance"))
import foreign_logs_formats as formats

STEPS, STEP_TOKENS, SECONDS, FASTER = 1000, 65536, 1.38, 1.1
WORSE = 0.001  # FP8's loss over BF16's, made up
FP8_KERNEL = "nvjet_qqtst_128x256_128x4_2x1_v_bz_coopA_TNT"  # E4M3 times E4M3; the other is BF16
BF16_KERNEL = "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT"


def write_trace(path):
    """Two GEMMs of the same time, one in FP8, as kineto writes them."""
    events = []
    for number, (name, op, types) in enumerate(((FP8_KERNEL, "aten::_scaled_mm", "c10::Float8_e4m3fn"),
                                                (BF16_KERNEL, "aten::mm", "c10::BFloat16")), 1):
        start = 100 * number
        for category, event, begin, long, arguments in (
                ("cpu_op", op, start, 30, {"External id": number, "Input Dims": [[4096, 4096], [4096, 4096]], "Input type": [types, types]}),
                ("cuda_runtime", "cudaLaunchKernel", start + 5, 5, {"correlation": 50 + number, "External id": number}),
                ("kernel", name, start + 20, 50, {"correlation": 50 + number, "External id": number, "device": 0, "stream": 7})):
            events.append({"ph": "X", "cat": category, "name": event, "pid": 0 if category == "kernel" else 1, "tid": 7 if category == "kernel" else 1,
                           "ts": begin, "dur": long, "args": arguments})
    with gzip.open(path, "wt") as file:
        json.dump({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}], "traceEvents": events}, file)


def made_run(seed, fp8):
    """Losses of one seed, on the same batches in BF16 and in FP8."""
    run = formats.Run(random.Random(seed), STEPS, STEP_TOKENS)
    for step in run.lost:  # a run that went well
        run.loss[step] = run.loss[step + 1]
    noise = random.Random(2 * seed + fp8)
    run.loss = {step: loss * (1 + WORSE * fp8) + noise.gauss(0, 0.004) for step, loss in run.loss.items()}
    run.validation = {step: run.loss[step] + noise.gauss(0.1, 0.01) for step in run.steps if step % 25 == 0}
    run.seconds = {step: (SECONDS + noise.gauss(0, 0.01)) / (FASTER if fp8 else 1) for step in run.steps}
    return run


def write_logs(folder):
    for name, fp8 in (("bf16", False), ("fp8", True)):
        formats.nanogpt(made_run(1, fp8), folder / f"{name}.log")
        for seed in (1, 2, 3):
            formats.torchtitan(made_run(seed, fp8), folder / f"titan-{name}-{seed}.log")
            formats.megatron(made_run(seed, fp8), folder / f"megatron-{name}-{seed}.log")


def make(folder):
    """All of them, in `folder`."""
    configs = ROOT / "tests" / "conformance" / "foreign_configs"
    write_trace(folder / "trace.json.gz")
    write_logs(folder)
    shutil.copy(configs / "titan_llama3_8b.toml", folder / "llama3_8b.toml")
    shutil.copy(configs / "megatron_llama3_8b_fp8.sh", folder / "train_llama3_8b_fp8.sh")
    shutil.copy(ROOT / "docs" / "how-to" / "capture_llama.py", folder / "train.py")
