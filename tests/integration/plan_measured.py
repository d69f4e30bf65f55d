"""Checks of `octavo plan --from` and --max_steps, for planning.py: each says what is wrong, or nothing.

What was measured is made up from the forecast itself, so that what must come out is known: half the speed, twice the seconds.
"""
import json
import os
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
RUN = {"model_name": "llama-3.2-1b", "batch_size": 4, "max_seq_length": 2048}
WORDS = [word for name, value in RUN.items() for word in (f"--{name}", str(value))] + ["--gpu", "h100"]


def asked(*words):
    return subprocess.run([OCTAVO, "plan", *words, "--json"], capture_output=True, text=True, cwd=ROOT)


def plan(*words):
    done = asked(*words)
    if done.returncode != 0:
        raise SystemExit(f"octavo plan {words}: exit code {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def row(forecast, recipe="bf16"):
    return next(one for one in forecast["recipes"] if one["recipe"] == recipe)


def near(value, wanted, share=0.001):
    return abs(value / wanted - 1) <= share


def verify_json(folder, bf16, fp8, **more):
    path = folder / "verify.json"
    layer = {"id": "layer of 4096, rowwise", "found": f"BF16 {bf16} TFLOP/s, FP8 {fp8} TFLOP/s (1.85x), as forecast"}
    gpu = {"id": "gpu 0", "found": "NVIDIA H100 80GB HBM3, compute capability 9.0, 79.1 GiB"}
    path.write_text(json.dumps({"findings": [gpu, layer], **more}))
    return path


def run_folder(folder, tokens_per_second, steps=40, device="cuda:0 NVIDIA H100 80GB HBM3", peak=20e9):
    run = folder / "run"
    run.mkdir(exist_ok=True)
    tokens = RUN["batch_size"] * RUN["max_seq_length"]
    records = [{"step": step, "train/loss": 3.0, "perf/step_seconds": tokens / tokens_per_second, "tokens": step * tokens,
                "memory/peak_bytes": peak, "precision": "BF16"} for step in range(1, steps + 1)]
    (run / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    (run / "config.yaml").write_text("".join(f"{name}: {value}\n" for name, value in RUN.items()))
    (run / "receipt.json").write_text(json.dumps({"device": device, "status": "finished"}))
    return run


def bench_json(folder, seconds, **more):
    path = folder / "bench.json"
    path.write_text(json.dumps({"device": "cuda:0", "model": RUN["model_name"], "batch_size": RUN["batch_size"], "max_seq_length": RUN["max_seq_length"],
                                "step": {"bf16_seconds": {"median": seconds}}, **more}))
    return path


def check_from_verify():
    """Half the rate of BF16 GEMMs in verify's line: theirs take twice as long (all but gaps of 2 us and what memory bounds), those of FP8 as
    long as before. The GPU is read from the report."""
    with tempfile.TemporaryDirectory() as name:
        words = WORDS[:-2]
        fast = plan(*words, "--from", str(verify_json(pathlib.Path(name), 600, 1000)))
        slow = plan(*words, "--from", str(verify_json(pathlib.Path(name), 300, 1000)))
    products = [row(found)["seconds"]["products"] for found in (fast, slow)]
    low = [row(found, "delayed")["seconds"]["products"] for found in (fast, slow)]
    if not 1.9 < products[1] / products[0] <= 2 or low[0] != low[1] or fast["gpu"] != "h100" or "BF16 GEMMs 600 TFLOP/s" not in fast["measured"]:
        return f"products {products}, in FP8 {low}, {fast['gpu']}, {fast['measured']}"


def check_from_run():
    """A run at half the forecast's speed and with 1.2 times its peak: so is the forecast."""
    paper = plan(*WORDS)
    with tempfile.TemporaryDirectory() as name:
        run = run_folder(pathlib.Path(name), row(paper)["tokens_per_s_per_gpu"] / 2, peak=1.2 * paper["memory"]["bf16"]["peak"])
        ours = plan(*WORDS, "--from", str(run))
    speed, peak = row(ours)["step_seconds"] / row(paper)["step_seconds"], ours["memory"]["bf16"]["peak"] / paper["memory"]["bf16"]["peak"]
    if not near(speed, 2) or not near(peak, 1.2):
        return f"a step takes {speed:.3f} times as long, memory is {peak:.3f} times"


def check_from_bench():
    """A BF16 step of bench that takes 1.5 times the forecast's: every recipe's does."""
    paper = plan(*WORDS)
    with tempfile.TemporaryDirectory() as name:
        ours = plan(*WORDS, "--from", str(bench_json(pathlib.Path(name), 1.5 * row(paper)["step_seconds"])))
    for recipe in ("bf16", "delayed"):
        if not near(row(ours, recipe)["step_seconds"] / row(paper, recipe)["step_seconds"], 1.5):
            return f"{recipe}: {row(ours, recipe)['step_seconds']} s, {row(paper, recipe)['step_seconds']} s before"


def check_from_refuses():
    """What says nothing about a GPU is refused, in words that say what to give instead, and not in a crash."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        step = row(plan(*WORDS))["step_seconds"]
        (folder / "list.json").write_text("[]")
        (folder / "cut.json").write_text('{"findings": [')
        cases = (
            (lambda: verify_json(folder, 600, 1000, absent_device=True), "fake CUDA device"),
            (lambda: verify_json(folder, 1, 1000), "within 20 times"),
            (lambda: run_folder(folder, 1000, steps=5), "10 steps"),
            (lambda: run_folder(folder, 1000, device="cpu"), "a run on a GPU"),
            (lambda: bench_json(folder, step, rehearsal=True), "a rehearsal"),
            (lambda: bench_json(folder, "fast"), "step.bf16_seconds.median"),
            (lambda: bench_json(folder, 1000 * step), "within 20 times"),
            (lambda: folder / "list.json", "a run's folder, or the JSON of"),
            (lambda: folder / "cut.json", "cut.json"),
            (lambda: folder / "none.json", "none.json"))
        for made, wanted in cases:
            done = asked(*WORDS, "--from", str(made()))
            if done.returncode not in (2, 3, 5) or wanted not in done.stderr or done.stdout:
                return f"wanted a refusal with {wanted!r}, found exit code {done.returncode}: {done.stderr.strip()[-300:]}"


def check_max_steps():
    """100 steps of 8 GPUs, 4 x 2048 tokens each: 6,553,600 tokens. The file's own max_steps is no such wish; token_budget beside it is one too many."""
    words = (*WORDS, "--num_gpus", "8", "--gpu_price", "2")
    found = plan(*words, "--max_steps", "100")
    costs = found["costs"]["bf16"]
    hours = 100 * row(found)["step_seconds"] / 3600 / found["failures"]["goodput"]
    if costs["tokens"] != 100 * 8 * 4 * 2048 or not near(costs["hours"], hours) or not near(costs["money"], 16 * hours):
        return f"{costs}, wanted {hours:.6f} hours"
    if plan("configs/llama31_8b_full_fp8.yaml", "--gpu", "h100", "--max_steps", "7")["costs"]["bf16"]["tokens"] % 7 != 0:
        return "a flag beside a configuration was not taken"
    if plan("configs/llama31_8b_full_fp8.yaml", "--gpu", "h100")["costs"]["bf16"]["tokens"] != 1e9:
        return "a file's max_steps was taken for a wish"
    both = asked(*words, "--max_steps", "100", "--token_budget", "1000")
    if both.returncode == 0 or "--token_budget" not in both.stderr:
        return f"both lengths were taken: {both.stderr}"


CHECKS = (check_from_verify, check_from_run, check_from_bench, check_from_refuses, check_max_steps)
