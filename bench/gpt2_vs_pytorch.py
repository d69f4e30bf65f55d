#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# bench:
"""GPT-2 124M, one training step: octavo, PyTorch eager and torch.compile taking turns, and the same GEMMs run bare.

Every side lives in a process of its own that waits for its turn; a turn is a few steps. The PyTorch step is the one of
pytorch_gpt2_step.py beside this file (BF16 autocast, fused AdamW), run with tcmalloc preloaded.
"""
import os
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTORCH_STEP = ROOT / "bench/pytorch_gpt2_step.py"
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release"))
BATCH, LENGTH, STEPS, THREADS = 4, 256, 3, 2
TURNS = int(os.environ.get("TURNS", "6"))  # at least 5 for a result that counts
TARGET_RATIO, TARGET_COMPILE, TARGET_BARE = 1.3, 1.1, 0.6

PYTORCH_WORKER = r"""
import sys, time
source = open(sys.argv[1]).read().replace("\nmain()\n", "\n")
exec(source)
mode, batch, seq = sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.manual_seed(0)

def training_step():
    model = GPT2()
    step_model = torch.compile(model) if mode == "compile" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    ids, targets = (torch.randint(0, 50257, (batch, seq)) for _ in range(2))
    def step():
        with torch.autocast("cpu", torch.bfloat16):
            loss = step_model(ids, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return step

def bare_gemms():
    # Every layer has weights and activations of its own, as in training.
    t, shapes = batch * seq, [(WIDTH, 3 * WIDTH), (WIDTH, WIDTH), (WIDTH, 4 * WIDTH), (4 * WIDTH, WIDTH)] * LAYERS
    make = lambda *shape: torch.randn(*shape).bfloat16()
    work = [(make(t, i), make(o, i), make(t, o)) for i, o in shapes + [(WIDTH, VOCAB)]]
    def step():
        for x, w, dy in work:
            torch.mm(x, w.t())
        for x, w, dy in reversed(work):
            torch.mm(dy, w)
            torch.mm(dy.t(), x)
    return step

step = bare_gemms() if mode == "bare" else training_step()
for line in sys.stdin:
    times = []
    for _ in range(int(line)):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    print(*(f"{t:.6f}" for t in times), flush=True)
"""


def start(name):
    env = dict(os.environ, OMP_NUM_THREADS=str(THREADS))
    if name == "octavo":
        command = [str(BUILD / "bin/step_bench"), str(BATCH), str(LENGTH)]
    else:
        env["LD_PRELOAD"] = "libtcmalloc_minimal.so.4"
        command = [sys.executable, "-c", PYTORCH_WORKER, str(PYTORCH_STEP), name, str(BATCH), str(LENGTH)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, text=True)


def turn(process, steps):
    process.stdin.write(f"{steps}\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"a worker ended: {process.args[:1]} exit code {process.wait()}")
    return [float(word) for word in line.split() if "=" not in word]


def main():
    names = ["octavo", "eager", "compile", "bare"]
    workers = {name: start(name) for name in names}
    for name in names:  # warm up: compilation, caches, first touches
        turn(workers[name], 3)
    medians = {name: [] for name in names}
    for index in range(TURNS):
        for name in names:
            medians[name].append(statistics.median(turn(workers[name], STEPS)))
        print(f"turn {index + 1}: " + "  ".join(
            f"{name} {BATCH * LENGTH / medians[name][-1]:.0f} tok/s" for name in names), flush=True)
    for worker in workers.values():
        worker.stdin.close()
        worker.wait()

    def per_turn(a, b):  # ratios within a turn, so that the machine's moods cancel
        return statistics.median(x / y for x, y in zip(medians[a], medians[b]))

    ratio, compiled, bare = per_turn("eager", "octavo"), per_turn("compile", "octavo"), per_turn("bare", "octavo")
    rates = " ".join(f"{name}_tok_s={BATCH * LENGTH / statistics.median(medians[name]):.0f}" for name in names)
    print(f"ratio={ratio:.3f} compile={compiled:.3f} bare={bare:.3f} {rates} turns={TURNS}")
    return 0 if ratio >= TARGET_RATIO and compiled >= TARGET_COMPILE and bare >= TARGET_BARE else 1


if __name__ == "__main__":
    sys.exit(main())
