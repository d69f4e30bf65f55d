#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=3600 gate="--cases 6" night="" measures="src/plan"
"""What `octavo plan` advises for a run that does not fit is tried: 200 random settings of one GPU, drawn by a fixed seed. Of each that does
not fit, the changes of its JSON (advice_flags) are put in place of the flags and run as `octavo plan --dry_run`: real steps on a fake CUDA device that
has as much memory as the forecast says a run can use. Wanted: train's rules take them; the dry run ends well; its peak is within 3% of what
the last line of the advice says. Of settings that fit, the answer has a lever or says that there is none, and the lever's own
forecast is as much faster as it says (tests/plan/answer_test.cpp has that too, without the program).

usage: plan_advice.py [--cases N]    of the 200, evenly
Last line: settings=N over=N advised=N accepted=N helped=N hopeless=N failed=0
"""
import json
import os
import pathlib
import random
import re
import subprocess
import sys

import fake_cuda
from common import BUILD, require_files

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = BUILD / "bin" / "octavo"
SETTINGS, SEED, WITHIN = 200, 28, 0.03
MODELS = ("gpt2", "gpt2-medium", "gpt2-xl", "llama-3.2-1b", "llama-3.2-3b", "llama-2-7b", "llama-3.1-8b", "qwen2.5-0.5b", "qwen2.5-7b", "Qwen3-4B")
GPUS = ("rtx4090", "l4", "a100_40gb", "h100", "rtx5060ti", "rtx5090")


def drawn():
    """The flags of each setting."""
    random.seed(SEED)
    settings = []
    for _ in range(SETTINGS):
        flags = ["--model_name", random.choice(MODELS), "--gpu", random.choice(GPUS), "--batch_size", str(random.choice((1, 2, 3, 4, 6, 8, 12, 16, 32))),
                 "--max_seq_length", str(random.choice((512, 1024, 2048))), "--gradient_accumulation_steps", str(random.choice((1, 1, 2, 4)))]
        if random.random() < 0.5:
            flags.append("--use_fp8")
            if random.random() < 0.5:
                flags += ["--fp8_recipe", random.choice(("current", "delayed"))]
        if random.random() < 0.3:
            flags += ["--lora_rank", random.choice(("8", "16"))]
        if random.random() < 0.3:
            flags.append("--gradient_checkpointing")
        if random.random() < 0.2:
            flags += ["--moment_dtype", "bf16"]
        settings.append(flags)
    return settings


def plan(flags, *more):
    done = subprocess.run([OCTAVO, "plan", *flags, *more, "--json"], capture_output=True, text=True, cwd=ROOT,
                          env=dict(os.environ, OMP_WAIT_POLICY="passive"))
    if done.returncode != 0:
        return None, done.stderr.strip()[-300:]
    return json.loads(done.stdout[done.stdout.index("{"):]), ""


def merged(flags, changes):
    """`flags` with those of `changes` in their place: a key may be given once."""
    named = {word for word in changes if word.startswith("--")}
    kept, keep = [], True
    for word in flags:
        if word.startswith("--"):
            keep = word not in named
        if keep:
            kept.append(word)
    return [*kept, *changes]


def check(flags, counts):
    """What is wrong; "" when nothing is."""
    found, problem = plan(flags)
    if found is None:
        return problem
    memory = found["memory"]
    if memory["fits"]:
        lines = "".join(f" {lever['change']}" for lever in found["levers"])
        return "" if all(lever["gain"] >= 1.02 and lever["peak"] <= memory["usable"] for lever in found["levers"]) else f"levers{lines}"
    counts["over"] += 1
    if "do not fit" in memory["advice"][-1]:
        counts["hopeless"] += 1
        return ""
    counts["advised"] += 1
    changed = merged(flags, memory["advice_flags"])
    after, problem = plan(changed)
    if after is None or not after["memory"]["fits"]:
        return f"advice {memory['advice_flags']} does not fit: {problem}"
    ran, problem = plan(changed, "--dry_run")
    if ran is None:
        return f"advice {memory['advice_flags']}: the dry run ended with {problem}"
    counts["accepted"] += 1
    said = 1e9 * float(re.search(r"([0-9.]+) GB$", memory["advice"][-1]).group(1))
    if ran["peak_bytes"] > memory["usable"] or abs(said / ran["peak_bytes"] - 1) > max(WITHIN, 0.06e9 / said):
        return f"advice says {said / 1e9:.1f} GB, the dry run took {ran['peak_bytes'] / 1e9:.2f} of {memory['usable'] / 1e9:.1f}"
    counts["helped"] += 1
    return ""


def main():
    require_files()
    fake_cuda.require_libraries()
    cases = int(sys.argv[sys.argv.index("--cases") + 1]) if "--cases" in sys.argv else SETTINGS
    counts = dict.fromkeys(("over", "advised", "accepted", "helped", "hopeless"), 0)
    failed = 0
    for flags in drawn()[::max(1, SETTINGS // cases)][:cases]:
        if problem := check(flags, counts):
            failed += 1
            print(f"{' '.join(flags)}: {problem}", flush=True)
    print(f"settings={cases} " + " ".join(f"{name}={count}" for name, count in counts.items()) + f" failed={failed}")
    return 1 if failed or counts["advised"] == 0 else 0


sys.exit(main())
