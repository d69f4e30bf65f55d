"""Training steps in BF16 by `octavo train` and by a plain transformers + PyTorch loop, which take turns.

Both train on the same batches, which octavo's loader gives, from the same weights with the same settings; a loss that differs
at any step would show that they do not do the same work. The PyTorch side is BF16 autocast over FP32 weights, sdpa attention,
fused AdamW and tcmalloc; transformers makes the mask that keeps documents apart from their positions, and runs experts in the
way that is fastest here. octavo is stopped (SIGSTOP) while it is not its turn. The first step of a turn, in which octavo stood
still and the other's caches are cold, does not count; a turn of which the host took part of the CPUs is taken again, with the
next batches.
"""
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import time

from step_process import BUILD, THREADS, StepProcess

OCTAVO, TOOL = BUILD / "bin/octavo", BUILD / "bin/model_parity_tool"
WARM, MOST_AGAIN = 2, 5
MOST_COMPARED = 22  # steps whose losses must agree: rounding lets two runs drift apart in the end
TRAIN = dict(learning_rate=2e-5, weight_decay=0.1, beta1=0.9, beta2=0.95, adam_eps=1e-8, max_grad_norm=1.0)
TARGET_LOSS = 0.005


def require(*files):
    for path in (OCTAVO, TOOL, *files):
        if not path.exists():
            sys.exit(f"wanted {path}, found none; build it, or set OCTAVO_TEST_DATA")


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
    """This file as a worker in a process of its own."""

    def steps(self, steps):
        seconds = super().steps(steps + 1)
        self.losses += [self.results[f"loss{number}"] for number in range(steps + 1)]
        return seconds[1:]


class Comparison:
    """`model`: a Hugging Face folder. `keys`: of the run, beside those that all have. A turn is of `steps` steps."""

    def __init__(self, model, keys, batch, length, steps=4, turns=5):
        self.model, self.keys, self.batch, self.length, self.steps, self.turns = model, keys, batch, length, steps, turns
        self.most_steps = WARM + 1 + turns * (1 + MOST_AGAIN) * (steps + 1)
        self.medians, self.ours, self.theirs = [], None, None

    def flags(self, work):
        """The rate is the same at every step."""
        given = TRAIN | dict(model_name=self.model, data_cache=work / "data", val_fraction=0, mixed_precision="bf16",
                             batch_size=self.batch, max_seq_length=self.length, max_steps=self.most_steps + 1, warmup_steps=0,
                             min_lr_ratio=1, shuffle="false", eval_freq=0, checkpoint_freq=0, log_freq=1, num_threads=THREADS,
                             run_name="run") | self.keys
        return [f"--{key}={value}" for key, value in given.items()]

    def run(self, work):
        flags, batches = self.flags(work), work / "batches.safetensors"
        subprocess.run([TOOL, "batches", batches, str(self.most_steps), *flags], cwd=work, check=True)
        self.theirs = Transformers("transformers", [sys.executable, __file__, str(self.model), str(batches)],
                                   environment=os.environ | {"HF_HUB_OFFLINE": "1"})
        self.ours = Octavo("octavo", [str(OCTAVO), "train", *flags], cwd=work)
        sides = (self.ours, self.theirs)
        try:
            for side in sides:
                side.steps(WARM)
            for turn in range(self.turns):
                self.medians.append([statistics.median(side.turn(self.steps)) for side in sides])
                print(f"turn {turn + 1}: " + "  ".join(
                    f"{side.name} {self.batch * self.length / seconds:.0f} tok/s, loss {side.losses[-1]:.4f} at step "
                    f"{len(side.losses)}" for side, seconds in zip(sides, self.medians[-1])), flush=True)
        finally:
            for side in sides:
                side.end()
        worst = self.worst_step()
        print(f"loss {self.theirs.losses[0]:.4f} -> {self.theirs.losses[self.compared() - 1]:.4f}; the largest difference is at "
              f"step {worst + 1}", flush=True)
        return self

    def compared(self):
        return min(MOST_COMPARED, len(self.ours.losses), len(self.theirs.losses))

    def difference(self, step):
        return abs(self.ours.losses[step] / self.theirs.losses[step] - 1)

    def worst_step(self):
        return max(range(self.compared()), key=self.difference)

    def loss_rel(self):
        return self.difference(self.worst_step())

    def ratio(self):
        """Their seconds over ours, within a turn: the machine's moods cancel."""
        return statistics.median(there / here for here, there in self.medians)

    def rates(self):
        """Tokens a second, ours and theirs."""
        return [self.batch * self.length / statistics.median(column) for column in zip(*self.medians)]


def choose_experts(model, step):
    """transformers has several ways to run experts: the one that is fastest here, of the second of two passes."""
    seconds = {}
    for name in ("eager", "grouped_mm"):
        model.set_experts_implementation(name)
        for _ in range(2):
            begun = time.perf_counter()
            step()
            seconds[name] = time.perf_counter() - begun
    model.set_experts_implementation(min(seconds, key=seconds.get))
    print("transformers, experts: " + ", ".join(f"{name} {each:.3f} s" for name, each in seconds.items()), file=sys.stderr)


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

    def batch(number):
        """Positions begin anew with every document; without them where a row is one document, which needs no mask of its own."""
        inputs, targets = data["inputs"][number].long(), data["targets"][number].long()
        starts, everything = data[f"starts_{number}"].long(), torch.arange(inputs.numel())
        if torch.equal(starts, everything[::inputs.shape[1]]):
            return inputs, targets, None
        begin = starts[torch.searchsorted(starts, everything, right=True) - 1]
        return inputs, targets, (everything - begin).view_as(inputs)

    def passes(inputs, targets, positions):
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(inputs, position_ids=positions, use_cache=False).logits
        loss = F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten(), ignore_index=-1)
        loss.backward()
        return loss

    def step(*tensors):
        loss = passes(*tensors)
        torch.nn.utils.clip_grad_norm_(model.parameters(), TRAIN["max_grad_norm"])
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    if getattr(model.config, "num_experts", 0):
        choose_experts(model, lambda: passes(*batch(0)))
        optimizer.zero_grad(set_to_none=True)
    done = 0

    def next_step():
        nonlocal done
        tensors = batch(done)
        done += 1
        begun = time.perf_counter()
        loss = step(*tensors)
        return loss, time.perf_counter() - begun

    for line in sys.stdin:
        losses, seconds = zip(*(next_step() for _ in range(int(line))))
        print(*seconds, *(f"loss{number}={loss}" for number, loss in enumerate(losses)), flush=True)


if __name__ == "__main__":
    worker(*sys.argv[1:])
