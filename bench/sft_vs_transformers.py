#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# bench:
"""Fine-tuning SmolLM2-135M on GSM8K in BF16: `octavo train` and a plain transformers + PyTorch loop take turns.

Both train on the same packed batches, which octavo's loader gives, from the same weights with the same settings; a loss
that differs at any step would show that they do not do the same work. The PyTorch side is BF16 autocast over FP32
weights, sdpa attention, fused AdamW and tcmalloc; transformers makes the mask that keeps documents apart from their
positions. octavo is stopped (SIGSTOP) while it is not its turn, and the step in which it stood still does not count.
"""
import json
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "conformance"))
import smollm2_model

BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release"))
OCTAVO, TOOL = BUILD / "bin/octavo", BUILD / "bin/model_parity_tool"
ROWS = smollm2_model.DATA / "data/sft/gsm8k_train.jsonl"
BATCH, LENGTH, STEPS, WARM, THREADS = int(os.environ.get("BATCH", "4")), 512, 4, 2, 2
TURNS = int(os.environ.get("TURNS", "4"))
ALL_STEPS = WARM + TURNS * (STEPS + 1)  # the first step of a turn does not count
TRAIN = dict(learning_rate=2e-5, weight_decay=0.1, beta1=0.9, beta2=0.95, adam_eps=1e-8, max_grad_norm=1.0)
TARGET_RATIO, TARGET_LOSS = 1.4, 0.005


def flags_of(folder, work):
    """The rate is the same at every step."""
    given = TRAIN | dict(model_name=folder, tokenizer=folder, dataset=ROWS, data_cache=work / "data", val_fraction=0,
                         mixed_precision="bf16", batch_size=BATCH, max_seq_length=LENGTH, max_steps=ALL_STEPS + 1,
                         warmup_steps=0, min_lr_ratio=1, shuffle="false", eval_freq=0, checkpoint_freq=0, log_freq=1,
                         num_threads=THREADS, run_name="run")
    return [f"--{key}={value}" for key, value in given.items()]


class Octavo:
    """`octavo train`, running only while it is its turn."""
    LINE = re.compile(r"step\s+(\d+) .* loss: ([\d.]+) .* dt: ([\d.]+)ms")

    def __init__(self, flags, work):
        self.steps = {}
        self.process = subprocess.Popen([OCTAVO, "train", *flags], cwd=work, stdout=subprocess.PIPE, text=True)

    def turn(self, last_step):
        """Continues to the end of that step. {step: (loss, seconds)} of all steps so far."""
        self.process.send_signal(signal.SIGCONT)
        while last_step not in self.steps:
            line = self.process.stdout.readline()
            if not line:
                sys.exit(f"octavo train ended before step {last_step}: exit code {self.process.wait()}")
            if match := self.LINE.match(line):
                self.steps[int(match[1])] = float(match[2]), float(match[3]) / 1e3
        self.process.send_signal(signal.SIGSTOP)
        return self.steps

    def end(self):
        self.process.kill()
        self.process.wait()


class Transformers:
    """This script as a worker in a process of its own."""

    def __init__(self, folder, batches):
        environment = os.environ | {"LD_PRELOAD": "libtcmalloc_minimal.so.4", "OMP_NUM_THREADS": str(THREADS),
                                    "HF_HUB_OFFLINE": "1"}
        self.steps = {}
        self.process = subprocess.Popen([sys.executable, __file__, "--worker", folder, batches], env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def turn(self, last_step):
        while len(self.steps) < last_step:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
            if not line:
                sys.exit(f"the PyTorch side ended: exit code {self.process.wait()}")
            self.steps[len(self.steps) + 1] = tuple(json.loads(line))
        return self.steps

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def worker(folder, batches):
    """One step of training for every line of standard input; [loss, seconds] for each."""
    import torch
    import torch.nn.functional as F
    import transformers
    from safetensors.torch import load_file

    transformers.utils.logging.disable_progress_bar()
    data = load_file(batches)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    model.train()
    split = [[p for p in model.parameters() if (p.dim() >= 2) == decays] for decays in (True, False)]
    optimizer = torch.optim.AdamW(
        [dict(params=split[0], weight_decay=TRAIN["weight_decay"]), dict(params=split[1], weight_decay=0.0)],
        lr=TRAIN["learning_rate"], betas=(TRAIN["beta1"], TRAIN["beta2"]), eps=TRAIN["adam_eps"], fused=True)

    def step(inputs, targets, positions):
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(inputs, position_ids=positions, use_cache=False).logits
        loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=-1)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), TRAIN["max_grad_norm"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    for number, _ in enumerate(sys.stdin):
        inputs, targets = data["inputs"][number].long(), data["targets"][number].long()
        starts, everything = data[f"starts_{number}"].long(), torch.arange(inputs.numel())
        begin = starts[torch.searchsorted(starts, everything, right=True) - 1]
        begun = time.perf_counter()
        loss = step(inputs, targets, (everything - begin).view_as(inputs))
        print(json.dumps([loss, time.perf_counter() - begun]), flush=True)


def compare(ours, theirs):
    """The last line's results and whether they are good."""
    worst = max(range(1, ALL_STEPS + 1), key=lambda step: abs(ours[step][0] / theirs[step][0] - 1))
    loss_rel = abs(ours[worst][0] / theirs[worst][0] - 1)
    medians = []
    for turn in range(TURNS):
        first = WARM + turn * (STEPS + 1) + 2
        medians.append([statistics.median(side[step][1] for step in range(first, first + STEPS))
                        for side in (ours, theirs)])
    ratio = statistics.median(there / here for here, there in medians)  # within a turn: the machine's moods cancel
    rates = [BATCH * LENGTH / statistics.median(column) for column in zip(*medians)]
    print(f"loss {theirs[1][0]:.4f} -> {theirs[ALL_STEPS][0]:.4f}; the largest difference is at step {worst}")
    print(f"ratio={ratio:.3f} octavo_tok_s={rates[0]:.0f} transformers_tok_s={rates[1]:.0f} loss_rel={loss_rel:.2e} "
          f"steps={ALL_STEPS} turns={TURNS} batch={BATCH}x{LENGTH}")
    return ratio >= TARGET_RATIO and loss_rel <= TARGET_LOSS


def main():
    for path in (OCTAVO, TOOL, ROWS):
        if not path.exists():
            sys.exit(f"wanted {path}, found none; build it, or set OCTAVO_TEST_DATA")
    folder = smollm2_model.folder()
    with tempfile.TemporaryDirectory(prefix="octavo-sft-") as temporary:
        work = pathlib.Path(temporary)
        flags, batches = flags_of(folder, work), work / "batches.safetensors"
        subprocess.run([TOOL, "batches", batches, str(ALL_STEPS), *flags], cwd=work, check=True)
        sides = {"transformers": Transformers(folder, batches), "octavo": Octavo(flags, work)}
        try:
            for turn in range(TURNS + 1):
                last = WARM + turn * (STEPS + 1)
                found = {name: side.turn(last) for name, side in sides.items()}
                print(f"turn {turn}: " + "  ".join(
                    f"{name} {BATCH * LENGTH / steps[last][1]:.0f} tok/s, loss {steps[last][0]:.4f}"
                    for name, steps in found.items()), flush=True)
        finally:
            for side in sides.values():
                side.end()
    return 0 if compare(found["octavo"], found["transformers"]) else 1


if __name__ == "__main__":
    sys.exit(worker(*sys.argv[2:]) if sys.argv[1:2] == ["--worker"] else main())
