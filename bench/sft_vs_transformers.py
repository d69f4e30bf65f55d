#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# bench:
"""Fine-tuning SmolLM2-135M on GSM8K in BF16: `octavo train` and a plain transformers + PyTorch loop take turns.

Both train on the same packed batches, which octavo's loader gives, from the same weights with the same settings; a loss
that differs at any step would show that they do not do the same work. The PyTorch side is BF16 autocast over FP32
weights, sdpa attention, fused AdamW and tcmalloc; transformers makes the mask that keeps documents apart from their
positions. octavo is stopped (SIGSTOP) while it is not its turn. The first step of a turn, in which octavo stood still and the
other's caches are cold, does not count; a turn of which the host took part of the CPUs is taken again, with the next batches.
"""
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from step_process import THREADS, StepProcess

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "conformance"))
import smollm2_model

BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release"))
OCTAVO, TOOL = BUILD / "bin/octavo", BUILD / "bin/model_parity_tool"
ROWS = smollm2_model.DATA / "data/sft/gsm8k_train.jsonl"
BATCH, LENGTH, STEPS, WARM = int(os.environ.get("BATCH", "4")), 512, 4, 2
TURNS, MOST_AGAIN = int(os.environ.get("TURNS", "5")), 5
MOST_STEPS = WARM + 1 + TURNS * (1 + MOST_AGAIN) * (STEPS + 1)
COMPARED = 22  # steps whose losses must agree: rounding lets two runs drift apart in the end
TRAIN = dict(learning_rate=2e-5, weight_decay=0.1, beta1=0.9, beta2=0.95, adam_eps=1e-8, max_grad_norm=1.0)
TARGET_RATIO, TARGET_LOSS = 1.4, 0.005


def flags_of(folder, work):
    """The rate is the same at every step."""
    given = TRAIN | dict(model_name=folder, tokenizer=folder, dataset=ROWS, data_cache=work / "data", val_fraction=0,
                         mixed_precision="bf16", batch_size=BATCH, max_seq_length=LENGTH, max_steps=MOST_STEPS + 1,
                         warmup_steps=0, min_lr_ratio=1, shuffle="false", eval_freq=0, checkpoint_freq=0, log_freq=1,
                         num_threads=THREADS, run_name="run")
    return [f"--{key}={value}" for key, value in given.items()]


class Side(StepProcess):
    """`losses` of all steps so far; steps() does one more than it is asked for, the first, which does not count."""
    MOST_AGAIN = MOST_AGAIN

    def __init__(self, name, command, **options):
        super().__init__(name, command, **options)
        self.losses = []


class Octavo(Side):
    """`octavo train`, running only while it is its turn."""
    LINE = re.compile(r"step\s+(\d+) .* loss: ([\d.]+) .* dt: ([\d.]+)ms")

    def steps(self, steps):
        self.process.send_signal(signal.SIGCONT)
        seconds, wanted = [], len(self.losses) + steps + 1
        while len(self.losses) < wanted:
            line = self.process.stdout.readline()
            if not line:
                sys.exit(f"octavo train ended before step {wanted}: exit code {self.process.wait()}")
            if match := self.LINE.match(line):
                self.losses.append(float(match[2]))
                seconds.append(float(match[3]) / 1e3)
        self.process.send_signal(signal.SIGSTOP)
        return seconds[1:]

    def end(self):
        self.process.kill()
        self.process.wait()


class Transformers(Side):
    """This script as a worker in a process of its own."""

    def steps(self, steps):
        seconds = super().steps(steps + 1)
        self.losses += [self.results[f"loss{number}"] for number in range(steps + 1)]
        return seconds[1:]


def worker(folder, batches):
    """For every number on a line of standard input as many steps of training; their seconds, and their losses as lossN=…"""
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

    done = 0

    def next_step():
        nonlocal done
        inputs, targets = data["inputs"][done].long(), data["targets"][done].long()
        starts, everything = data[f"starts_{done}"].long(), torch.arange(inputs.numel())
        begin = starts[torch.searchsorted(starts, everything, right=True) - 1]
        done += 1
        begun = time.perf_counter()
        loss = step(inputs, targets, (everything - begin).view_as(inputs))
        return loss, time.perf_counter() - begun

    for line in sys.stdin:
        losses, seconds = zip(*(next_step() for _ in range(int(line))))
        print(*seconds, *(f"loss{number}={loss}" for number, loss in enumerate(losses)), flush=True)


def compare(ours, theirs, medians):
    """Prints the results; whether they are good. `medians`: the seconds of a step of each turn, ours and theirs."""
    compared = min(COMPARED, len(ours.losses), len(theirs.losses))
    worst = max(range(compared), key=lambda step: abs(ours.losses[step] / theirs.losses[step] - 1))
    loss_rel = abs(ours.losses[worst] / theirs.losses[worst] - 1)
    ratio = statistics.median(there / here for here, there in medians)  # within a turn: the machine's moods cancel
    rates = [BATCH * LENGTH / statistics.median(column) for column in zip(*medians)]
    print(f"loss {theirs.losses[0]:.4f} -> {theirs.losses[compared - 1]:.4f}; the largest difference is at step {worst + 1}")
    print(f"ratio={ratio:.3f} octavo_tok_s={rates[0]:.0f} transformers_tok_s={rates[1]:.0f} loss_rel={loss_rel:.2e} "
          f"steps={compared} turns={TURNS} batch={BATCH}x{LENGTH} taken_again={StepProcess.taken_again}")
    return ratio >= TARGET_RATIO and loss_rel <= TARGET_LOSS


def main():
    for path in (OCTAVO, TOOL, ROWS):
        if not path.exists():
            sys.exit(f"wanted {path}, found none; build it, or set OCTAVO_TEST_DATA")
    folder = smollm2_model.folder()
    with tempfile.TemporaryDirectory(prefix="octavo-sft-") as temporary:
        work = pathlib.Path(temporary)
        flags, batches = flags_of(folder, work), work / "batches.safetensors"
        subprocess.run([TOOL, "batches", batches, str(MOST_STEPS), *flags], cwd=work, check=True)
        theirs = Transformers("transformers", [sys.executable, __file__, "--worker", str(folder), str(batches)],
                              environment=os.environ | {"HF_HUB_OFFLINE": "1"})
        ours, medians = Octavo("octavo", [str(OCTAVO), "train", *flags], cwd=work), []
        try:
            for side in (ours, theirs):
                side.steps(WARM)
            for turn in range(TURNS):
                medians.append([statistics.median(side.turn(STEPS)) for side in (ours, theirs)])
                print(f"turn {turn + 1}: " + "  ".join(
                    f"{side.name} {BATCH * LENGTH / seconds:.0f} tok/s, loss {side.losses[-1]:.4f} at step {len(side.losses)}"
                    for side, seconds in zip((ours, theirs), medians[-1])), flush=True)
        finally:
            for side in (ours, theirs):
                side.end()
    return 0 if compare(ours, theirs, medians) else 1


if __name__ == "__main__":
    sys.exit(worker(*sys.argv[2:]) if sys.argv[1:2] == ["--worker"] else main())
