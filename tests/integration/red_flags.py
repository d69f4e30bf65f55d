#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 night="--short" alone
"""Each red flag raised by a real cause within 20 steps of it, and at most one false flag in 10,000 clean steps.

Causes: a NaN in the weights, a learning rate far too high (also from the first step on) or far too low, text that turns into noise, an FP8 margin that
drowns everything, FP8 factors that are never renewed, a thread that reads data and stands still most of the time, a rank
that stands still most of the time, routers that always take the same experts, a BF16 run that was faster. Flags before the cause, and any flag in the clean run, are
false ones.

usage: red_flags.py [--clean-steps N] [--short] [--only PART_OF_A_CAUSE]
"""
import argparse
import ctypes
import json
import math
import os
import pathlib
import random
import signal
import string
import subprocess
import sys
import tempfile
import threading
import time

import common
import rank_runs

WITHIN = 20  # steps
GUARD = 4    # exit code
TINY = """
model_name: custom
n_layer: 2
n_head: 2
n_embd: 32
max_seq_length: 32
batch_size: 4
warmup_steps: 0
eval_freq: 0
checkpoint_freq: 0
mixed_precision: fp32
num_threads: 1
run_name: run
"""
FP8 = {"mixed_precision": "fp8", "fp8_execution": "rehearse", "fp8_stats_freq": 2}


def config(text, **keys):
    """The text with some keys changed or added."""
    lines = [line for line in text.strip().splitlines() if line.split(":")[0] not in keys]
    return "\n".join(lines + [f"{key}: {value}" for key, value in keys.items()]) + "\n"


def flags_of(folder):
    return common.read_flags(folder.path / "runs" / "run" / "metrics.jsonl")


class Check:
    """What was raised, when, and what should not have been."""

    def __init__(self):
        self.flags, self.raised, self.slowest, self.false, self.wrong = set(), set(), 0, 0, []

    def flag(self, name, folder, cause, may_follow=()):
        """The flag was raised within WITHIN steps after step `cause`, and nothing else before or of itself."""
        self.flags.add(name)
        found = flags_of(folder)
        steps = [f["step"] for f in found if f["flag"] == name and f["step"] > cause]
        early = [f for f in found if f["step"] <= cause or f["flag"] not in (name, *may_follow)]
        self.false += len(early)
        if early:
            print(f"{name}: false flags {early}")
        if not steps or steps[0] - cause > WITHIN:
            self.wrong.append(f"{name}: wanted within {WITHIN} steps after {cause}, found {found}\n"
                              f"{folder.log()[-1500:]}")
            return
        self.raised.add(name)
        self.slowest = max(self.slowest, steps[0] - cause)
        first = next(f for f in found if f["flag"] == name and f["step"] == steps[0])
        print(f"{name}: {steps[0] - cause} steps after its cause: {first['seen']}", flush=True)
        if f"flag {name} at step {steps[0]}: " not in folder.log() or first["remedy"] not in folder.log():
            self.wrong.append(f"{name}: not said on stderr")
        if folder.receipt()["flags"].get(name, 0) < 1:
            self.wrong.append(f"{name}: not counted in receipt.json")


class Folder(common.Folder):
    def log(self):
        files = [*self.path.glob("stderr.txt"), *self.path.glob("logs/*.log")]
        return "".join(file.read_text(errors="replace") for file in files)


def trained(work, name, text, steps):
    """A healthy run up to a checkpoint."""
    kept = "checkpoints_fp8" if "mixed_precision: fp8" in text else "checkpoints"
    folder = Folder(work / name, config(text, max_steps=steps), kept)
    folder.finish_or_exit()
    return folder


def continue_run(folder, text, code=0, **keys):
    """Resumes it with other keys."""
    (folder.path / "train.yaml").write_text(config(text, **keys))
    found = folder.finish("--resume", "latest")
    if found != code:
        sys.exit(f"{folder.path.name} ended with exit code {found}, wanted {code}:\n{folder.log()[-3000:]}")


# --- causes -------------------------------------------------------------------------------------------------------------

def learning_rate_far_too_high(work, check):
    folder = trained(work, "exploding", TINY, 60)
    continue_run(folder, TINY, max_steps=80, learning_rate=10)
    check.flag("gradient_explosion", folder, 60, may_follow=("spike", "worse_than_uniform"))


def a_run_that_diverges(work, check):
    """Worse than guessing: flagged, never the best, and said at the end of a run that ends well otherwise."""
    folder = Folder(work / "diverging", config(TINY, max_steps=40, learning_rate=10, eval_freq=20, eval_batches=2))
    folder.finish_or_exit()
    check.flag("worse_than_uniform", folder, 0, may_follow=("spike", "gradient_explosion"))
    evaluations = [r for r in folder.records() if "val/loss" in r]
    if not evaluations or any(r["val/best"] or r["val/loss"] < math.log(257) for r in evaluations):
        check.wrong.append(f"worse_than_uniform: wanted evaluations above {math.log(257):.2f}, none of them the best, "
                           f"found {evaluations}")
    if "the model is worse than one that guesses" not in folder.log():
        check.wrong.append("worse_than_uniform: not said at the end of the run")


def a_nan_in_the_weights(work, check):
    folder = trained(work, "donor", TINY, 10)
    subprocess.run([common.OCTAVO, "checkpoints", "export", folder.step(10), "--output", work / "weights"], check=True,
                   capture_output=True)
    file = work / "weights" / "model.safetensors"
    content = bytearray(file.read_bytes())
    length = int.from_bytes(content[:8], "little")
    first = min(t["data_offsets"][0] for name, t in json.loads(content[8: 8 + length]).items() if "ln_f" in name)
    content[8 + length + first: 8 + length + first + 2] = b"\xc0\x7f"  # BF16
    file.write_bytes(content)
    sizes_from_the_file = "\n".join(line for line in TINY.splitlines() if not line.startswith("n_"))
    folder = Folder(work / "poisoned", config(sizes_from_the_file, max_steps=WITHIN, model_name=work / "weights"))
    if folder.finish("--tokenizer", "bytes") != GUARD:
        check.wrong.append(f"nan_loss: the run was not ended by a guard\n{folder.log()}")
    check.flag("nan_loss", folder, 0)


def weights_that_overflow(work, check):
    folder = trained(work, "overflowing", TINY, 60)
    continue_run(folder, TINY, code=GUARD, max_steps=90, learning_rate=10, weight_decay=10)
    check.flag("nan_loss", folder, 60, may_follow=("spike", "gradient_explosion", "worse_than_uniform"))
    if "guard" not in folder.receipt()["status"]:
        check.wrong.append("nan_loss: the receipt does not say that a guard ended the run")


def learning_rate_far_too_low(work, check):
    folder = Folder(work / "standing", config(TINY, max_steps=WITHIN, learning_rate=1e-9, plateau_steps=8))
    folder.finish_or_exit()
    check.flag("plateau", folder, 0)


def text_that_turns_into_noise(work, check):
    tokens, before = 4 * 32, 500
    text, chance = common.TEXT.read_text()[: tokens * before], random.Random(1)
    noise = "".join(chance.choices(string.punctuation + string.digits, k=tokens * 200))
    (work / "noisy").mkdir()
    (work / "noisy" / "text.txt").write_text(text + noise)
    folder = Folder(work / "noisy" / "run", config(TINY, max_steps=before + WITHIN, shuffle="false", val_fraction=0))
    (work / "noisy" / "data").symlink_to(work / "noisy" / "text.txt")
    folder.finish_or_exit()
    check.flag("spike", folder, before, may_follow=("gradient_explosion", "worse_than_uniform"))


def margin_that_drowns(work, check):
    folder = Folder(work / "drowning", config(TINY, **FP8, max_steps=WITHIN, fp8_margin=16))
    folder.finish_or_exit()
    check.flag("underflowing_layer", folder, 0)


def factors_never_renewed(work, check):
    """Weights and activations outgrow factors that were right when the run was healthy."""
    text = config(TINY, **FP8)
    folder = trained(work, "outgrowing", text, 60)
    continue_run(folder, text, max_steps=60 + WITHIN, fp8_interval=1000, learning_rate=0.3)
    check.flag("saturating_layer", folder, 60, may_follow=("spike", "gradient_explosion", "underflowing_layer", "worse_than_uniform"))


EXPERTS = {"model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_hidden_layers": 2, "hidden_size": 32,
           "intermediate_size": 64, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 257,
           "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": True, "hidden_act": "silu",
           "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "tie_word_embeddings": False}


def routers_that_take_the_same_experts(work, check):
    """Every token has one large channel, and routers look at that: two experts have all tokens, the others none."""
    import torch
    from safetensors.torch import load_file, save_file

    (work / "shape").mkdir()
    (work / "shape" / "config.json").write_text(json.dumps(EXPERTS))
    sizes_from_the_file = "\n".join(line for line in TINY.splitlines() if not line.startswith("n_"))
    donor = Folder(work / "experts", config(sizes_from_the_file, max_steps=1, model_name=work / "shape", init_from="random",
                                            tokenizer="bytes"))
    donor.finish_or_exit()
    subprocess.run([common.OCTAVO, "checkpoints", "export", donor.step(1), "--output", work / "uneven"], check=True,
                   capture_output=True)
    file = work / "uneven" / "model.safetensors"
    weights = load_file(file)
    weights["model.embed_tokens.weight"][:, 0] = 1
    for layer in range(EXPERTS["num_hidden_layers"]):
        weights[f"model.layers.{layer}.mlp.gate.weight"][:, 0] = torch.tensor([4.0, 3.0] + 6 * [-4.0])
    save_file(weights, file, {"format": "pt"})
    folder = Folder(work / "routed", config(sizes_from_the_file, max_steps=WITHIN + 2, model_name=work / "uneven", learning_rate=1e-6,
                                            tokenizer="bytes"))
    folder.finish_or_exit()
    names = ("expert_collapse", "idle_expert", "crowded_expert")
    for name in names:
        check.flag(name, folder, 0, may_follow=names)


def faster_in_bf16(work, check):
    keys = {"max_steps": WITHIN + 10, "num_threads": 1}
    plain = Folder(work / "plain", config(TINY, mixed_precision="bf16", **keys))
    plain.finish_or_exit()
    folder = Folder(work / "slower", config(TINY, **FP8, bf16_baseline=plain.path / "runs" / "run", **keys))
    folder.finish_or_exit()
    check.flag("fp8_slower", folder, 0)


def steps_done(folder):
    metrics = folder.path / "runs" / "run" / "metrics.jsonl"
    return metrics.read_text().count("train/loss") if metrics.exists() else 0


def wait_for_steps(folder, process, count):
    """How many there are, once there are so many."""
    while steps_done(folder) < count and process.poll() is None:
        time.sleep(0.02)
    return steps_done(folder)


class Ptrace:
    """Lets one thread of a child stand still, as on a disk that does not answer."""
    CONT, DETACH, SEIZE, INTERRUPT = 7, 17, 0x4206, 0x4207
    ANY_THREAD = 0x40000000  # __WALL

    def __init__(self, thread):
        self.thread, self.call = thread, ctypes.CDLL(None, use_errno=True).ptrace
        self.call.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self.ask(self.SEIZE)

    def ask(self, request):
        if self.call(request, self.thread, None, None) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")

    def hold(self, seconds, then=CONT):
        self.ask(self.INTERRUPT)
        os.waitpid(self.thread, self.ANY_THREAD)
        time.sleep(seconds)
        self.ask(then)


def reading_thread(process):
    tasks = pathlib.Path(f"/proc/{process.pid}/task").iterdir()
    return next(int(t.name) for t in tasks if (t / "comm").read_text().strip() == "octavo-loader")


def disk_that_does_not_answer(work, check):
    folder = Folder(work / "starving", config(TINY, max_steps=100_000, n_embd=128, max_seq_length=128))
    process = folder.start()
    threading.Thread(target=process.stdout.read, daemon=True).start()
    cause = wait_for_steps(folder, process, 30)
    loader = Ptrace(reading_thread(process))
    for _ in range(5):
        loader.hold(1)
        time.sleep(0.05)  # it reads some batches
    loader.hold(0, then=Ptrace.DETACH)
    process.terminate()
    process.wait()
    check.flag("data_starvation", folder, cause)


def rank_that_stands_still(work, check):
    folder = Folder(work / "slow_rank", config(TINY, max_steps=2000, n_embd=128, max_seq_length=128, n_layer=3))
    run = rank_runs.Launched(folder, ["--nproc", "2"])
    pid = run.wait_for_ranks(2)[1]
    cause, until = wait_for_steps(folder, run.process, 30), time.monotonic() + 20
    while steps_done(folder) < cause + WITHIN + 2 and time.monotonic() < until:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(0.3)
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.06)
    run.process.terminate()
    run.wait(20)
    run.end()
    check.flag("slow_rank", folder, cause)
    if not any("rank 1 " in f["seen"] for f in flags_of(folder)):
        check.wrong.append("slow_rank: not named")


CAUSES = [a_nan_in_the_weights, weights_that_overflow, learning_rate_far_too_low, text_that_turns_into_noise,
          learning_rate_far_too_high, a_run_that_diverges, factors_never_renewed, margin_that_drowns, disk_that_does_not_answer,
          rank_that_stands_still, routers_that_take_the_same_experts, faster_in_bf16]


def clean(work, steps):
    text = config(TINY, n_layer=1, max_seq_length=16, max_steps=steps, mixed_precision="fp8", fp8_execution="rehearse",
                  fp8_stats_freq=100, log_freq=1000, eval_freq=1000, eval_batches=2, learning_rate=1e-3)
    folder = Folder(work / "clean", text, "checkpoints_fp8")
    folder.finish_or_exit()
    found = flags_of(folder)
    for flag in found:
        print(f"false: {flag}")
    return len(found)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--clean-steps", type=int, default=10_000)
    parser.add_argument("--short", action="store_true", help="1,500 clean steps")
    parser.add_argument("--only", help="one cause, by a part of its name, or clean")
    options = parser.parse_args()
    steps = 1500 if options.short else options.clean_steps
    common.require_files()
    check = Check()
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        common.prepare_data(work)
        for cause in CAUSES:
            if options.only is None or options.only in cause.__name__:
                cause(work, check)
        if options.only is None or options.only in clean.__name__:
            check.false += clean(work, steps)
    for line in check.wrong:
        print(line)
    failed = check.wrong or check.raised != check.flags or check.false > 1
    print(f"flags={len(check.flags)} raised={len(check.raised)} slowest_steps={check.slowest} clean_steps={steps} "
          f"false_flags={check.false} {'FAILED' if failed else 'ok'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
