#!/usr/bin/env python3
# test: label=integration timeout=600 gate=""
"""What was asked is what runs: flags against the keys of a file under other names, shorter runs of long files, learning rates
of tasks, the model of bench and plan, and what a resume says about schedule and weights.
"""
import json
import pathlib
import re
import shutil
import sys
import tempfile

import common
from common import ROOT, octavo

SIZES = """model_name: custom
n_layer: 1
n_head: 2
n_embd: 64
max_seq_length: 32
batch_size: 4
tokenizer: bytes
dataset: ../text.txt
eval_freq: 0
log_freq: 1000
learning_rate: 1e-3
"""
FAILED = []


def check(good, what):
    if not good:
        FAILED.append(what)
        print(f"  WRONG: {what}")


def said(text, *parts):
    for part in parts:
        check(part in text, f"wanted '{part}' in:\n{text[-1500:]}")


class Work:
    """A folder with a file, in which commands are run."""

    def __init__(self, parent, name, yaml):
        self.path = parent / name
        self.path.mkdir()
        (self.path / "t.yaml").write_text(yaml)

    def run(self, verb, *flags, code=0):
        done = octavo(self.path, verb, "t.yaml", *flags, code=code)
        return done.stdout + done.stderr

    def share(self, run):
        return json.loads((self.path / "runs" / run / "receipt.json").read_text())["fp8"]["flops_share"]

    def steps(self, run):
        lines = (self.path / "runs" / run / "metrics.jsonl").read_text().splitlines()
        return [record["step"] for record in map(json.loads, lines) if "train/loss" in record]


def precision(parent):
    """Flags against use_fp8, and the way from FP8 back to BF16 that verify recommends."""
    work = Work(parent, "precision", SIZES + "max_steps: 8\ncheckpoint_freq: 4\nuse_fp8: true\n")
    line = len((SIZES + "max_steps: 8\ncheckpoint_freq: 4\nuse_fp8: true\n").splitlines())
    work.run("train", "--run_name", "fp8", "--max_steps", "4")
    check(work.share("fp8") > 0, "use_fp8 trains in FP8")
    text = work.run("train", "--run_name", "bf16", "--mixed_precision", "bf16")
    said(text, f"FP8 off: --mixed_precision bf16 overrides use_fp8 in t.yaml:{line}")
    check(work.share("bf16") == 0, "--mixed_precision bf16 beats use_fp8 of the file")
    check(not list(work.path.glob("checkpoints_fp8/bf16*")), "a BF16 run does not save beside FP8's")
    back = work.run("train", "--run_name", "fp8", "--mixed_precision", "bf16", "--resume", "latest")
    said(back, "resumed from", "at step 4", "FP8 off")
    check("weights: random" not in back, "a resume does not speak of random weights")
    check("checkpoints_fp8" in re.search("resumed from (.*) at step", back)[1], "the run's own checkpoint is resumed")
    check(work.share("fp8") == 0 and work.steps("fp8") == list(range(1, 9)), "the FP8 run continues in BF16")
    again = work.run("train", "--run_name", "fp8", "--mixed_precision", "bf16", "--resume", "latest", "--max_steps", "10")
    said(again, "resumed from checkpoints/fp8/step-00000008 at step 8")
    unnamed(parent)
    for flags in (["--mixed_precision", "bf16", "--use_fp8"], ["--mixed_precision", "bf16", "--fp8_recipe", "mxfp8"]):
        said(work.run("train", *flags, code=2), "one_precision")
    plain = Work(parent, "plain", SIZES + "max_steps: 2\n")
    said(plain.run("train", "--run_name", "r", "--fp8_recipe", "mxfp8"), "FP8 on: --fp8_recipe mxfp8 asks for it")
    check(plain.share("r") > 0, "--fp8_recipe alone trains in FP8")


def unnamed(parent):
    """The same without run_name: latest is that of the file's own run, and not of another in the flags' precision."""
    work = Work(parent, "unnamed", SIZES + "max_steps: 4\nuse_fp8: true\n")
    work.run("train", "--max_steps", "2")
    work.run("train", "--run_name", "other", "--mixed_precision", "bf16", "--max_steps", "3")
    back = work.run("train", "--mixed_precision", "bf16", "--resume", "latest")
    said(back, "resumed from checkpoints_fp8/custom-fp8-", "at step 2")


def readers(parent):
    """Verbs that read a checkpoint find that of an FP8 run without being told its folder, and say where it was."""
    work = Work(parent, "readers", SIZES + "max_steps: 2\nuse_fp8: true\n")
    work.run("train", "--run_name", "only_fp8")
    where = "checkpoint: taken from checkpoints_fp8, since checkpoints has no "
    for name in ("latest", "only_fp8"):
        done = octavo(work.path, "generate", "--checkpoint", name, "--prompt", "a", "--max_new_tokens", "2")
        said(done.stderr, where + name)
    said(octavo(work.path, "checkpoints", "export", "latest", "--output", "exported").stderr, where)
    for name in ([], ["only_fp8"], ["checkpoints_fp8"]):
        said(octavo(work.path, "checkpoints", "verify", *name).stdout, "checkpoints_fp8/only_fp8/step-00000002: whole")
    said(octavo(work.path, "eval", "--dataset", "../text.txt").stderr, where)
    said(octavo(work.path, "eval", code=2).stderr, "octavo eval runs/RUN/config.yaml --checkpoint RUN")
    octavo(work.path, "eval", "runs/only_fp8/config.yaml", "--checkpoint", "only_fp8")
    said(octavo(work.path, "checkpoints", "list").stdout, "octavo checkpoints list checkpoints_fp8")
    for name in ("only_fp8", "checkpoints_fp8", "checkpoints_fp8/only_fp8"):
        said(octavo(work.path, "checkpoints", "list", name).stdout, "only_fp8 step-00000002")
    for verb in ("list", "verify"):
        said(octavo(work.path, "checkpoints", verb, "nothere", code=2).stderr, "found neither for 'nothere'")
    said(octavo(work.path, "checkpoints", "list", "nothere", "--checkpoint_dir", "checkpoints_fp8", code=2).stderr,
         "name one of only_fp8")
    missing = octavo(work.path, "generate", "--checkpoint", "nosuch", "--prompt", "a", code=2)
    check(where not in missing.stderr, "what is in neither folder is not said to be in one")
    work.run("train", "--run_name", "bf16", "--mixed_precision", "bf16")
    both = octavo(work.path, "generate", "--prompt", "a", "--max_new_tokens", "2")
    check(where not in both.stderr, "a checkpoint in checkpoints comes first")
    both = octavo(work.path, "generate", "--checkpoint", "only_fp8", "--prompt", "a", "--max_new_tokens", "2")
    said(both.stderr, where + "only_fp8")
    work.run("train", "--run_name", "newer", "--mixed_precision", "bf16")
    said(octavo(work.path, "eval", "runs/bf16/config.yaml").stderr, "the weights of checkpoints/bf16/step-00000002")
    said(octavo(work.path, "eval", "--dataset", "../text.txt").stderr, "the weights of checkpoints/newer/step-00000002")
    for verb in ("list", "verify"):
        own = octavo(work.path, "checkpoints", verb, "runs/bf16/config.yaml").stdout
        check("bf16" in own and "newer" not in own, f"checkpoints {verb} of a run's file is of that run: {own}")
        own = octavo(work.path, "checkpoints", verb, "runs/bf16/config.yaml", "--checkpoint_dir", "checkpoints/bf16").stdout
        check("step-00000002" in own and "newer" not in own, f"checkpoints {verb} finds it in the run's folder itself: {own}")
    # As before runs had folders of their own.
    (work.path / "checkpoints" / "bf16" / "step-00000002").rename(work.path / "checkpoints" / "step-00000002")
    shutil.rmtree(work.path / "checkpoints" / "bf16")
    for name in ("runs/bf16/config.yaml", "bf16"):
        own = octavo(work.path, "checkpoints", "verify", name).stdout
        check("checkpoints/step-00000002: whole" in own and "newer" not in own, f"checkpoints verify of an old run, {name}: {own}")


def lengths(parent):
    """Warm-ups of shorter runs, of epochs, and of a resume with another length."""
    work = Work(parent, "lengths", SIZES + "max_steps: 400\nwarmup_steps: 100\n")
    said(work.run("train", "--run_name", "short", "--max_steps", "8"),
         "warmup_steps 2: scaled to the run's 8 steps from 100 of 400", "warm-up 2\n")
    said(work.run("train", "--run_name", "short", "--max_steps", "12", "--resume", "latest"),
         "resume: the learning-rate schedule is another one: max_steps 8 -> 12, warmup_steps 2 -> 3", "at step 8")
    epochs = Work(parent, "epochs", SIZES + "num_epochs: 1\nwarmup_steps: 2000\n")
    said(epochs.run("train", "--run_name", "r", code=2), "warmup_steps 2000", "--warmup_steps -1")
    said(epochs.run("train", "--run_name", "r", "--max_steps", "3"), "--max_steps 3 overrides num_epochs 1",
         "warmup_steps 1: scaled")
    # The remedies of verify --before-long-run.
    said(work.run("train", "--run_name", "one", "--max_steps", "1"), "done: 1 steps")


def shipped(parent):
    for path in sorted((ROOT / "configs").glob("*.yaml")):
        if not path.name.startswith("sweep_"):
            for steps in (100, 500, 1):
                octavo(parent, "config", "check", path, "--max_steps", steps)
    return len(list((ROOT / "configs").glob("*.yaml")))


def rates(parent):
    """The default learning rate of a model with weights."""
    work = Work(parent, "rates", SIZES.replace("learning_rate: 1e-3\n", "") + "max_steps: 2\n")
    said(work.run("train", "--run_name", "base"), "done: 2 steps")
    config = (work.path / "runs" / "base" / "config.yaml").read_text()
    check(re.search("^learning_rate: (6e-04|0.0006)$", config, re.M), "pretraining has 6e-4")
    base = next(iter(sorted(work.path.glob("checkpoints/**/step-00000002"))))
    said(work.run("train", "--run_name", "tuned", "--init_from", base), "learning_rate 1e-05: default for full fine-tuning")
    config = (work.path / "runs" / "tuned" / "config.yaml").read_text()
    check(re.search("^learning_rate: 1e-05$", config, re.M), "fine-tuning has 1e-5")


def own_model(parent):
    """bench and plan measure the model of the file: bytes have 257 ids, which makes 320 rows."""
    work = Work(parent, "model", SIZES)
    plan = work.run("plan")
    count = 64 * (320 + 32) + 12 * 64 * 64 + (4 + 9) * 64 + 2 * 64
    said(plan, f"{count} parameters")
    found = json.loads(octavo(work.path, "plan", "t.yaml", "--json").stdout)
    check(found["parameters"] == count, f"plan: wanted {count} parameters, found {found['parameters']}")
    bench = json.loads(octavo(work.path, "bench", "t.yaml", "--bench_seconds", 1, "--bench_steps", 1, "--json").stdout)
    sizes = [(s["outputs"], s["inputs"]) for s in bench["shapes"]]
    check((320, 64) in sizes, f"bench: wanted a head of 320 x 64, found {sizes}")
    train = work.run("train", "--run_name", "r", "--max_steps", "1")
    said(train, f"{count / 1000:.1f}k parameters")


def diagnosed(parent):
    work = Work(parent, "diagnosed", SIZES + "max_steps: 2\n")
    work.run("train", "--run_name", "r")
    text = work.run("diagnose", "--checkpoint", "latest", "--fp8_recipe", "current")
    said(text, "step-00000002, step 2")
    check("weights: random" not in text, "diagnose names the checkpoint, not a seed")
    said(octavo(work.path, "diagnose", code=2).stderr, "wanted a model, found none", "--checkpoint latest")


def main():
    common.require_files()
    with tempfile.TemporaryDirectory() as name:
        parent = pathlib.Path(name)
        (parent / "text.txt").write_text(common.TEXT.read_text()[:20000])
        files = shipped(parent)
        for part in (precision, readers, lengths, rates, own_model, diagnosed):
            print(part.__name__, flush=True)
            part(parent)
    print(f"configs={files} failed={len(FAILED)}")
    sys.exit(1 if FAILED else 0)


if __name__ == "__main__":
    main()
