#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# bench:
"""GPT-2 124M, one training step: octavo, PyTorch eager and torch.compile taking turns, and the same GEMMs run bare.

Every side lives in a process of its own that waits for its turn; a turn is a few steps. The PyTorch step is the one of
pytorch_gpt2_step.py beside this file (BF16 autocast, fused AdamW), run with tcmalloc preloaded.
"""
import os
import statistics
import sys

from step_process import BATCH, LENGTH, StepProcess, octavo, pytorch

STEPS, WARM_UP = 3, 3
TURNS = int(os.environ.get("TURNS", "6"))  # at least 5 for a result that counts
TARGET_RATIO, TARGET_COMPILE, TARGET_BARE = 1.6, 1.5, 0.7

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


def main():
    names = ["octavo", "eager", "compile", "bare"]
    workers = {}
    for name in names:  # one at a time: the start of one would slow the warm-up of another
        workers[name] = StepProcess(name, octavo() if name == "octavo" else pytorch(PYTORCH_WORKER, name))
        workers[name].turn(WARM_UP)
    medians = {name: [] for name in names}
    for index in range(TURNS):
        for name in names:
            medians[name].append(statistics.median(workers[name].turn(STEPS)))
        print(f"turn {index + 1}: " + "  ".join(
            f"{name} {BATCH * LENGTH / medians[name][-1]:.0f} tok/s" for name in names), flush=True)
    for worker in workers.values():
        worker.end()

    def per_turn(a, b):  # ratios within a turn, so that the machine's moods cancel
        return statistics.median(x / y for x, y in zip(medians[a], medians[b]))

    ratio, compiled, bare = per_turn("eager", "octavo"), per_turn("compile", "octavo"), per_turn("bare", "octavo")
    rates = " ".join(f"{name}_tok_s={BATCH * LENGTH / statistics.median(medians[name]):.0f}" for name in names)
    print(f"ratio={ratio:.3f} compile={compiled:.3f} bare={bare:.3f} {rates} turns={TURNS} taken_again={StepProcess.taken_again}")
    return 0 if ratio >= TARGET_RATIO and compiled >= TARGET_COMPILE and bare >= TARGET_BARE else 1


if __name__ == "__main__":
    sys.exit(main())
