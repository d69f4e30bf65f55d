#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# bench:
"""What a training step costs the host: GPT-2 124M, 8 x 1024 tokens, on the fake CUDA device (src/fake_cuda), where
launches take no time and so only the host's work is left. octavo in BF16 and in FP8 through Transformer Engine, and PyTorch
eager (BF16 autocast, fused AdamW, flash attention), each in a process of its own, taking turns.

A GPU that needs 15 ms for the step waits for a host that needs more. Nothing here says how fast a GPU is.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))
import fake_cuda

BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release"))
BATCH, LENGTH, STEPS = 8, 1024, 10
TURNS = int(os.environ.get("TURNS", "9"))
TARGETS = {"host": 0.35, "launches": 0.45, "host_fp8": 0.55, "launches_fp8": 0.6}
COUNTS = ("launches", "gemms", "memsets", "mallocs", "host_waits")

PYTORCH_WORKER = r"""
import sys, time
sys.path.insert(0, sys.argv[1])
import fake_cuda
exec(open(sys.argv[2]).read().replace("\nmain()\n", "\n"))
batch, seq = int(sys.argv[3]), int(sys.argv[4])
torch.backends.cuda.enable_cudnn_sdp(False)  # cuDNN does not start without a device; flash attention does
model = GPT2().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
host = [torch.randint(0, 50257, (batch, seq)).pin_memory() for _ in range(2)]

def step():
    ids, targets = (t.to("cuda", non_blocking=True) for t in host)
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(ids, targets)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return loss.item()

for line in sys.stdin:
    fake_cuda.reset()
    times = []
    for _ in range(int(line)):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    counted = fake_cuda.counters()
    words = [f"{t:.6f}" for t in times]
    for name in ("launches", "gemms", "memsets", "mallocs", "host_waits"):
        words.append(f"{name}={counted[name] / len(times):.2f}")
    print(*words, flush=True)
"""


def start(side):
    environment = fake_cuda.environment(capability=90) | {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
    if side == "pytorch":
        script = ROOT / "bench" / "pytorch_gpt2_step.py"
        command = [sys.executable, "-c", PYTORCH_WORKER, ROOT / "tests" / "integration", script, BATCH, LENGTH]
    else:
        recipe = [] if side == "octavo_bf16" else ["--recipe", "delayed"]
        command = [BUILD / "bin" / "step_bench", BATCH, LENGTH, *recipe]
    return subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment,
                            stderr=subprocess.DEVNULL, text=True)


def turn(process, steps):
    """Seconds of each step, and what a step asked of the device."""
    process.stdin.write(f"{steps}\n")
    process.stdin.flush()
    words = process.stdout.readline().split()
    if not words:
        sys.exit(f"{process.args[0]} ended with exit code {process.wait()}")
    counts = dict(word.split("=") for word in words if "=" in word)
    return [float(word) for word in words if "=" not in word], {name: float(counts[name]) for name in COUNTS}


def launch_list(*flags):
    """The kernels of one octavo step by name, for whoever wants fewer."""
    command = [BUILD / "bin" / "step_bench", "steps", "4", "--model_name", "gpt2", "--dataset", ROOT / "README.md",
               "--tokenizer", "bytes", "--vocab_size", "50257", "--batch_size", BATCH, "--max_seq_length", "256", *flags]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([str(word) for word in command], env=fake_cuda.environment(capability=90), check=True,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=folder)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    fake_cuda.require_libraries()
    sides = {side: start(side) for side in ("octavo_bf16", "octavo_fp8", "pytorch")}
    for process in sides.values():
        turn(process, 5)  # warm-up: the caching allocator, cuBLAS, NVRTC
    times, counts = {side: [] for side in sides}, {}
    for number in range(TURNS):
        for side, process in sides.items():
            seconds, counts[side] = turn(process, STEPS)
            times[side].append(statistics.median(seconds))
        print(f"turn {number + 1} of {TURNS}: " + ", ".join(f"{s} {1e3 * t[-1]:.2f} ms" for s, t in times.items()), flush=True)
    for process in sides.values():
        process.stdin.close()
        process.wait()
    print("\n| side | host ms a step | kernels | GEMMs | memsets | cudaMalloc | waits |\n|---|---|---|---|---|---|---|")
    for side in sides:
        row = " | ".join(f"{counts[side][name]:g}" for name in COUNTS)
        print(f"| {side} | {1e3 * statistics.median(times[side]):.2f} | {row} |")
    for precision, flags in (("BF16", []), ("FP8", ["--mixed_precision", "fp8", "--fp8_stats_freq", "0"])):
        print(f"\nlaunches of one octavo step in {precision}, by kernel:")
        for name, count in sorted(launch_list(*flags).items(), key=lambda item: -item[1]):
            print(f"{count:5d}  {name}")

    def ratio(side):  # turn by turn: the machine is noisy
        return statistics.median(ours / theirs for ours, theirs in zip(times[side], times["pytorch"]))

    all_launches = {side: counts[side]["launches"] + counts[side]["gemms"] for side in sides}
    results = {"host": ratio("octavo_bf16"), "launches": all_launches["octavo_bf16"] / all_launches["pytorch"],
               "host_fp8": ratio("octavo_fp8"), "launches_fp8": all_launches["octavo_fp8"] / all_launches["pytorch"]}
    print(" ".join(f"{name}={value:.3f}" for name, value in results.items()) +
          f" kernels_alone={counts['octavo_bf16']['launches'] / counts['pytorch']['launches']:.3f} "
          f"octavo_ms={1e3 * statistics.median(times['octavo_bf16']):.2f} pytorch_ms={1e3 * statistics.median(times['pytorch']):.2f}")
    sys.exit(1 if any(results[name] > most for name, most in TARGETS.items()) else 0)


if __name__ == "__main__":
    main()
