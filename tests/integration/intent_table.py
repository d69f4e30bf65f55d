#!/usr/bin/env python3
# test: label=integration timeout=900 gate="" night="--train"
"""What was asked is what runs: combinations of a file and flags, and what must come of each.

A row is a file, flags, and what must be so: whether FP8 runs, the recipe, the backend that is asked for, other keys, the one line
that explains it, or what the refusal says. Checked by `config show` (the settings of a run) and `config check` (its explanations,
exit codes). With --train every row that is not refused is trained for a step too, and its receipt must say the same.
"""
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import common

# Behind a row's own lines, so that these keep their numbers.
SIZES = """model_name: custom
n_layer: 1
n_head: 2
n_embd: 128
max_seq_length: 32
batch_size: 4
dataset: text.txt
eval_freq: 0
checkpoint_freq: 0
"""
OFF = {"fp8": False}
KERNELS = "FP8 off: nothing asks for it (--use_fp8 does); "


def on(recipe="delayed", **more):
    return {"fp8": True, "recipe": recipe} | more


def off(**more):
    return OFF | more


def refused(*parts):
    return {"refused": parts}


PRECISION = [
    ("", "", off(mixed_precision="bf16", say="")),
    ("use_fp8: true\n", "", on(say="")),
    ("mixed_precision: fp8\n", "", on(say="")),
    ("use_fp8: true\nmixed_precision: fp8\n", "", on(say="")),
    ("mixed_precision: bf16\n", "", off(say="")),
    ("mixed_precision: fp32\n", "", off(mixed_precision="fp32", say="")),
    ("use_fp8: false\n", "", off(say="")),
    ("", "--use_fp8", on(say="")),
    ("", "--use-fp8", on(say="")),
    ("", "--use_fp8=true", on(say="")),
    ("", "--use_fp8 true", on(say="")),
    ("", "--no_use_fp8", off(say="")),
    ("", "--mixed_precision fp8", on(say="")),
    ("", "--mixed_precision=fp32", off(mixed_precision="fp32", say="")),
    ("use_fp8: true\n", "--mixed_precision bf16", off(mixed_precision="bf16",
                                                      say="FP8 off: --mixed_precision bf16 overrides use_fp8 in t.yaml:1")),
    ("# a comment\n\nuse_fp8: true\n", "--mixed_precision bf16", off(say="FP8 off: --mixed_precision bf16 overrides use_fp8 in t.yaml:3")),
    ("use_fp8: true\n", "--mixed_precision fp32", off(mixed_precision="fp32",
                                                      say="FP8 off: --mixed_precision fp32 overrides use_fp8 in t.yaml:1")),
    ("use_fp8: true\n", "--no_use_fp8", off(say="FP8 off: --no_use_fp8 overrides use_fp8 in t.yaml:1")),
    ("use_fp8: true\n", "--use_fp8 false", off(say="FP8 off: --no_use_fp8 overrides use_fp8 in t.yaml:1")),
    ("mixed_precision: fp8\n", "--no_use_fp8", off(say="FP8 off: --no_use_fp8 overrides mixed_precision fp8 in t.yaml:1")),
    ("mixed_precision: bf16\n", "--use_fp8", on(say="FP8 on: --use_fp8 overrides mixed_precision bf16 in t.yaml:1")),
    ("mixed_precision: fp32\n", "--use_fp8", on(say="FP8 on: --use_fp8 overrides mixed_precision fp32 in t.yaml:1")),
    ("use_fp8: false\n", "--mixed_precision fp8", on(say="FP8 on: --mixed_precision fp8 overrides use_fp8 false in t.yaml:1")),
    ("mixed_precision: bf16\nuse_fp8: true\n", "", refused("mixed_precision bf16 in t.yaml:1 and use_fp8 in t.yaml:2", "one_precision")),
    ("mixed_precision: fp8\nuse_fp8: false\n", "", refused("one_precision")),
    ("", "--mixed_precision bf16 --use_fp8", refused("--mixed_precision bf16 and --use_fp8", "one_precision")),
    ("", "--mixed_precision fp8 --no_use_fp8", refused("--mixed_precision fp8 and --no_use_fp8", "one_precision")),
]

RECIPES = [
    ("", "--fp8_recipe mxfp8", on("mxfp8", say="FP8 on: --fp8_recipe mxfp8 asks for it")),
    ("", "--fp8_recipe delayed", on(say="FP8 on: --fp8_recipe delayed asks for it")),
    ("", "--fp8_scenario mxfp8", on("mxfp8", say="FP8 on: --fp8_scenario mxfp8 asks for it")),
    ("", "--fp8_scenario none", off(say="")),
    ("fp8_recipe: current\n", "", on("current", say="FP8 on: fp8_recipe current in t.yaml:1 asks for it")),
    ("fp8_scenario: mxfp8\n", "", on("mxfp8", say="FP8 on: fp8_scenario mxfp8 in t.yaml:1 asks for it")),
    ("use_fp8: true\nfp8_recipe: rowwise\n", "", on("rowwise", say="")),
    ("use_fp8: true\n", "--fp8_recipe current", on("current", say="")),
    ("use_fp8: true\nfp8_recipe: rowwise\n", "--fp8_recipe blockwise", on("blockwise", say="")),
    ("mixed_precision: bf16\n", "--fp8_recipe mxfp8", on("mxfp8", say="FP8 on: --fp8_recipe mxfp8 overrides mixed_precision bf16 in t.yaml:1")),
    ("mixed_precision: bf16\nfp8_recipe: current\n", "",
     off(say="FP8 off: mixed_precision bf16 in t.yaml:1; fp8_recipe current in t.yaml:2 is not used")),
    ("mixed_precision: bf16\nfp8_recipe: current\n", "--use_fp8",
     on("current", say="FP8 on: --use_fp8 overrides mixed_precision bf16 in t.yaml:1")),
    ("fp8_recipe: current\n", "--mixed_precision bf16",
     off(say="FP8 off: --mixed_precision bf16 overrides fp8_recipe current in t.yaml:1")),
    ("fp8_recipe: current\n", "--no_use_fp8", off(say="FP8 off: --no_use_fp8 overrides fp8_recipe current in t.yaml:1")),
    ("use_fp8: true\nfp8_scenario: mxfp8\n", "--fp8_recipe current",
     on("current", fp8_scenario="none", say="fp8_recipe current: --fp8_recipe current overrides fp8_scenario mxfp8 in t.yaml:2")),
    ("use_fp8: true\nfp8_recipe: rowwise\n", "--fp8_scenario mxfp8",
     on("mxfp8", say="fp8_recipe mxfp8: --fp8_scenario mxfp8 overrides fp8_recipe rowwise in t.yaml:2")),
    ("use_fp8: true\nfp8_scenario: mxfp8\n", "--fp8_scenario none", on("delayed", say="")),
    ("", "--mixed_precision bf16 --fp8_recipe mxfp8", refused("--mixed_precision bf16 and --fp8_recipe mxfp8", "one_precision")),
    ("", "--no_use_fp8 --fp8_scenario mxfp8", refused("--no_use_fp8 and --fp8_scenario mxfp8", "one_precision")),
    ("", "--fp8_scenario mxfp8 --fp8_recipe delayed", refused("--fp8_scenario mxfp8 and --fp8_recipe delayed", "one_recipe")),
    ("fp8_scenario: mxfp8\nfp8_recipe: delayed\n", "", refused("one_recipe")),
]

BACKENDS = [
    ("", "--use_te", off(say=KERNELS + "--use_te is not used")),
    ("use_te: true\n", "", off(say=KERNELS + "use_te in t.yaml:1 is not used")),
    ("", "--fp8_backend rehearse", off(say=KERNELS + "--fp8_backend rehearse is not used")),
    ("", "--mixed_precision bf16 --use_te", off(say="FP8 off: --mixed_precision bf16; --use_te is not used")),
    ("mixed_precision: bf16\nuse_te: true\n", "", off(say="FP8 off: mixed_precision bf16 in t.yaml:1; use_te in t.yaml:2 is not used")),
    ("use_fp8: true\nuse_te: true\n", "--mixed_precision bf16", off(say="FP8 off: --mixed_precision bf16 overrides use_fp8 in t.yaml:1")),
    ("", "--use_fp8 --use_te", on(use_te="true", say="")),
    ("", "--mixed_precision fp8 --use_te --fp8_scenario mxfp8", on("mxfp8", use_te="true", say="")),
    ("use_fp8: true\nuse_te: true\n", "--fp8_backend rehearse",
     on(use_te="false", say="fp8_backend rehearse: --fp8_backend rehearse overrides use_te in t.yaml:2")),
    ("use_fp8: true\nfp8_backend: aten\n", "--use_te", on(fp8_backend="te", say="fp8_backend te: --use_te overrides fp8_backend aten in t.yaml:2")),
    ("mixed_precision: bf16\nfp8_scenario: mxfp8\nuse_te: true\n", "--use_fp8 --fp8_recipe current --fp8_backend rehearse",
     on("current", say="FP8 on: --use_fp8 overrides mixed_precision bf16 in t.yaml:1; fp8_recipe current: --fp8_recipe current overrides "
        "fp8_scenario mxfp8 in t.yaml:2; fp8_backend rehearse: --fp8_backend rehearse overrides use_te in t.yaml:3")),
    ("", "--use_te --fp8_backend aten", refused("one_backend")),
    ("use_te: true\nfp8_backend: aten\n", "", refused("one_backend")),
    ("use_fp8: true\n", "--fp8_execution native --fp8_backend rehearse", refused("native_is_no_rehearsal")),
]

LENGTHS = [
    ("max_steps: 1000\nwarmup_steps: 100\n", "--max_steps 100", {"warmup_steps": "10", "say": "warmup_steps 10: scaled to the run's 100 "
     "steps from 100 of 1000 in t.yaml:2; --warmup_steps sets it"}),
    ("max_steps: 1000\nwarmup_steps: 100\n", "--max_steps 100 --warmup_steps 50", {"warmup_steps": "50", "say": ""}),
    ("max_steps: 1000\nwarmup_steps: 100\n", "--max_steps 2000", {"warmup_steps": "100", "say": ""}),
    ("max_steps: 1000\nwarmup_steps: 100\n", "--max_steps 1", {"warmup_steps": "1", "max_steps": "1"}),
    ("num_epochs: 2\n", "--max_steps 10", {"num_epochs": "0", "say": "run length: --max_steps 10 overrides num_epochs 2 in t.yaml:1"}),
    ("max_steps: 10\n", "--num_epochs 1", {"max_steps": "0", "say": "run length: --num_epochs 1 overrides max_steps 10 in t.yaml:1"}),
    ("max_steps: 10\nnum_epochs: 1\n", "", refused("one_length")),
    ("", "--max_steps 10 --num_epochs 1", refused("one_length")),
    ("max_steps: 10\nwarmup_steps: 11\n", "", refused("warmup_fits")),
]

RATE = "learning_rate 6e-04: default for pretraining; --learning_rate sets it"
DEFAULTS = [
    ("", "", {"learning_rate": "6e-04", "also": [RATE, "tokenizer: bytes, since model_name custom has none; --tokenizer names another"]}),
    ("", "--init_from some/where", {"learning_rate": "1e-05", "say": "learning_rate 1e-05: default for full fine-tuning (6e-04 is for "
     "random weights); --learning_rate sets it", "train": False}),
    ("", "--init_from random", {"learning_rate": "6e-04", "also": [RATE]}),
    ("", "--init_from some/where --lora_rank 8", {"learning_rate": "2e-04", "train": False, "say": "learning_rate 2e-04: default for LoRA "
     "(6e-04 is for random weights); --learning_rate sets it"}),
    ("learning_rate: 3e-3\n", "--init_from some/where", {"learning_rate": "0.003", "say": "", "train": False}),
    ("", "--max_lr 1e-3", {"learning_rate": "0.001", "say": ""}),
    ("learning_rate: 3e-3\n", "--learning_rate 1e-3", {"learning_rate": "0.001", "say": ""}),
    ("", "--model_name gpt2 --n_layer 0 --n_head 0 --n_embd 0",
     {"learning_rate": "6e-04", "also": [RATE, "tokenizer: that of gpt2; --tokenizer names another"], "train": False}),
    ("", "--model_name org/model --n_layer 0 --n_head 0 --n_embd 0",
     {"learning_rate": "1e-05", "also": ["tokenizer: that of org/model; --tokenizer names another"], "train": False}),
    ("", "--model_name gpt2 --n_layer 0 --n_head 0 --n_embd 0 --tokenizer bytes", {"tokenizer": '"bytes"', "say": "", "train": False}),
]

MISTAKES = [
    ("batchsize: 8\nsteps: x\nmax_steps: ten\n", "--seed x --lr_warmup 3",
     refused("--seed: wanted an integer", "unknown key 'lr_warmup'", "t.yaml:1: unknown key 'batchsize'; did you mean batch_size?",
             "t.yaml:2: unknown key 'steps'", "t.yaml:3: max_steps: wanted an integer")),
    ("max_steps: 10\nnum_epochs: 1\nseed: many\n", "", refused("t.yaml:3: seed: wanted an integer", "one_length")),
    ("val_fraction: 0\n", "--eval_freq 10 --run_name latest", refused("evaluation_has_data", "run_name_is_a_name")),
    ("seed: [1, 2]\nseed_: 2\n", "", refused("t.yaml:1: seed: wanted an integer", "t.yaml:2: unknown key 'seed_'")),
]

TABLE = PRECISION + RECIPES + BACKENDS + LENGTHS + DEFAULTS + MISTAKES
LEAST_ROWS = 60
FAILED = []


def check(good, row, what):
    if not good:
        FAILED.append(row)
        print(f"  WRONG: {row[0]!r} {row[1]}: {what}")


def shown(text):
    """The settings that `config show` prints, by key."""
    return {m[1]: m[2] for m in re.finditer(r"^(\w+): +(.*?) +# .*$", text, re.M)}


def run(folder, *words):
    return subprocess.run([common.OCTAVO, *words], cwd=folder, text=True, capture_output=True, timeout=60)


def check_refused(folder, row, parts):
    for verb in ("check", "show"):
        done = run(folder, "config", verb, "t.yaml", *row[1].split())
        check(done.returncode == 2, row, f"config {verb}: wanted exit code 2, found {done.returncode}: {done.stdout}{done.stderr}")
        for part in parts:
            check(part in done.stderr, row, f"config {verb}: wanted '{part}' in: {done.stderr}")


def check_settings(row, keys, wanted):
    if "fp8" in wanted:
        check((keys["use_fp8"] == "true") == (keys["mixed_precision"] == "fp8") == wanted["fp8"], row,
              f"wanted FP8 {wanted['fp8']}, found use_fp8 {keys['use_fp8']}, mixed_precision {keys['mixed_precision']}")
    if "recipe" in wanted:
        recipe = "mxfp8" if keys["fp8_scenario"] == "mxfp8" else keys["fp8_recipe"]
        check(recipe == wanted["recipe"], row, f"wanted recipe {wanted['recipe']}, found {recipe}")
    for key in wanted.keys() & keys.keys():
        check(keys[key] == wanted[key], row, f"wanted {key} {wanted[key]}, found {keys[key]}")


def check_row(folder, row):
    """What `config show` and `config check` say of it."""
    wanted = row[2]
    (folder / "t.yaml").write_text(row[0] + SIZES)
    if "refused" in wanted:
        return check_refused(folder, row, wanted["refused"])
    show, checked = (run(folder, "config", verb, "t.yaml", *row[1].split()) for verb in ("show", "check"))
    check(show.returncode == checked.returncode == 0, row, f"exit codes {show.returncode}, {checked.returncode}: {checked.stderr}")
    if show.returncode != 0:
        return None
    check_settings(row, shown(show.stdout), wanted)
    lines = [line.strip() for line in checked.stdout.splitlines()[1:]]
    notes = [line for line in lines if not line.startswith("tokenizer: ") and line != RATE]
    if "say" in wanted:
        check(notes == ([wanted["say"]] if wanted["say"] else []), row, f"wanted the note '{wanted['say']}', found {notes}")
    for line in wanted.get("also", []):
        check(line in lines, row, f"wanted the line '{line}', found {lines}")
    return None


def check_trained(folder, row, number):
    """What a step of it leaves in the receipt. te and aten are not on a CPU, which then rehearses or says so."""
    wanted, name = row[2], f"row-{number}"
    (folder / "t.yaml").write_text(row[0] + SIZES)
    flags = row[1].split()
    if "--max_steps" not in flags and "--num_epochs" not in flags:
        flags += ["--max_steps", "1"]
    done = run(folder, "train", "t.yaml", *flags, "--run_name", name)
    check(done.returncode == 0, row, f"train ended with {done.returncode}: {done.stderr[-800:]}")
    if done.returncode != 0:
        return
    receipt = json.loads((folder / "runs" / name / "receipt.json").read_text())
    if "fp8" in wanted:
        check((receipt["fp8"]["flops_share"] > 0) == wanted["fp8"] == receipt["precision"].startswith("FP8"), row,
              f"wanted FP8 {wanted['fp8']}, the receipt has {receipt['precision']}, {receipt['fp8']['flops_share']} of the FLOPs")
    if "recipe" in wanted:
        check(receipt["fp8"].get("recipe") == wanted["recipe"], row, f"the receipt's recipe is {receipt['fp8'].get('recipe')}")
    if wanted.get("mixed_precision") == "fp32":
        check(receipt["precision"] == "FP32", row, f"wanted FP32, the receipt has {receipt['precision']}")
    if wanted.get("say"):
        check(wanted["say"] in done.stderr, row, f"train does not say '{wanted['say']}': {done.stderr[:1500]}")


def can_train(row):
    """Not those whose length would be trained, whose files are not there, or whose backend wants a GPU."""
    lengths = row in LENGTHS
    return "refused" not in row[2] and row[2].get("train", True) and not lengths and "--use_te" not in row[1] and "use_te" not in row[0]


def main():
    if not common.OCTAVO.exists():
        sys.exit(f"wanted {common.OCTAVO}, found none; build it first")
    trained = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "text.txt").write_text("".join(f"line {i * 7 % 100} of a text that repeats itself\n" for i in range(400)))
        for row in TABLE:
            check_row(folder, row)
        for number, row in enumerate(TABLE):
            if "--train" in sys.argv[1:] and can_train(row):
                check_trained(folder, row, number)
                trained += 1
    refusals = sum("refused" in row[2] for row in TABLE)
    print(f"rows={len(TABLE)} refused={refusals} trained={trained} failed={len(FAILED)}")
    sys.exit(0 if len(TABLE) >= LEAST_ROWS and not FAILED else 1)


if __name__ == "__main__":
    main()
