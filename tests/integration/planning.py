#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate="" measures="src/plan"
"""Runs the `octavo plan` commands of the pages below (PAGES) and compares what they print and draw with what the pages show, so that the pages are never behind the program. --write puts the new output into the pages instead.
Then forecasts that a review found to be impossible are held against what physics says, each with its derivation (checks below).

A command is a block of ```sh that starts with "octavo plan"; the block of ```text after it is its output, whole or, where a
line of it is "…", in parts. Two runs of a command must give the same bytes.
"""
import functools
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

import plan_measured

ROOT = pathlib.Path(__file__).resolve().parents[2]
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release")) / "bin/octavo"
PAGES = ("docs/how-to/plan.md", "docs/how-to/plan-cluster.md", "docs/concepts/lora-and-fp8.md")
BLOCK = re.compile(r"```sh\n(octavo plan .*?)\n```\n\n```text\n(.*?)\n```", re.S)


def run(command, folder):
    words = shlex.split(command.replace("\\\n", " "))
    done = subprocess.run([OCTAVO, *words[1:]], capture_output=True, text=True, cwd=folder)
    if done.returncode != 0:
        raise SystemExit(f"{command}: exit code {done.returncode}: {done.stderr}")
    return done.stdout.rstrip("\n")


def shown(text, pattern):
    """Whether `pattern` (parts of the output, "…" between them) is in `text` in this order."""
    place = 0
    for part in ("\n" + pattern + "\n").split("\n…\n"):
        found = text.find(part.strip("\n"), place)
        if found < 0:
            return False
        place = found + len(part.strip("\n"))
    return True


def renew(text, pattern):
    """The lines of `text` that start as the lines of `pattern` do (the first words before a number), and, where no "…" says that
    lines are left out, those between the first and the last."""
    if shown(text, pattern):
        return pattern
    keys = [re.split(r"[0-9]", line)[0].strip() for line in pattern.split("\n")]
    if "…" not in keys:
        starts = [line.strip() for line in text.split("\n")]
        first, last = ([i for i, line in enumerate(starts) if line.startswith(key)] for key in (keys[0], keys[-1]))
        return "\n".join(text.split("\n")[first[0]:last[-1] + 1]) if first and last else text
    wanted = {key for key in keys if key and key != "…"}
    lines = []
    for line in text.split("\n"):
        if any(line.strip().startswith(key) for key in wanted):
            lines.append(line)
        elif lines and lines[-1] != "…":
            lines.append("…")
    return "\n".join(lines).strip("…\n")


# Figures of the derivations: Llama 3.1 8B, H100 SXM, RTX 4090. Shares of data-sheet rates are the calibration's.
BLOCKS_8B = 32 * (4096 * (4096 + 1024 + 1024) + 4096 * 4096 + 3 * 4096 * 14336)  # weights of the linear layers: 6.98 billion
H100_MEMORY, H200_MEMORY, H100_BF16, PCIE_4090 = 3.35e12, 4.8e12, 989.4e12, 32e9


def constant(name):
    table = (ROOT / "src/plan/calibration_table.inc").read_text()
    return float(re.search(rf'"{re.escape(name)}", ([0-9.e+-]+)', table).group(1))


def plan(*words):
    done = subprocess.run([OCTAVO, "plan", *words, "--json"], capture_output=True, text=True, cwd=ROOT)
    if done.returncode != 0:
        raise SystemExit(f"octavo plan {shlex.join(words)}: exit code {done.returncode}: {done.stderr}")
    return json.loads(done.stdout)


def of(forecast, recipe="bf16"):
    return next(row for row in forecast["recipes"] if row["recipe"] == recipe)


def near(value, wanted, share):
    return abs(value / wanted - 1) <= share


def check_full_sharding():
    """14B, fsdp_full: three collectives a layer and three more, each through a ring of all GPUs, 3.4 us for a hop inside a node and 9.6
    between nodes. 48 layers and 16,384 GPUs: 147 x 68 ms = 10 s a step, so 400 tokens/s at most. And the page's table says the same."""
    page = (ROOT / "docs/reference/scale-tables.md").read_text()
    page = page[page.index("<!-- scale time -->"):]
    for gpus in (8, 512, 16384):
        found = of(plan("--model_name", "qwen2.5-14b", "--gpu", "h100", "--num_gpus", str(gpus), "--sharding_mode", "fsdp_full",
                        "--batch_size", "1", "--max_seq_length", "4096", "--gradient_checkpointing"))["tokens_per_s_per_gpu"]
        nodes = gpus // 8
        hops = 8.4e-6 + (gpus - nodes) * 3.4e-6 + (nodes - 1) * 9.6e-6
        said = re.search(rf"\| `fsdp_full` \| {gpus} \|(?: [^|]+ \|){{5}} ([0-9.]+) \|", page)
        if found > 4096 / (147 * hops) or not said or not near(found, float(said.group(1)), 0.02):
            return f"{gpus} GPUs: {found:.0f} tokens/s; 147 collectives take {147 * hops:.3f} s; page: {said and said.group(1)}"


def check_adapters_traffic():
    """8B, LoRA rank 8 on all linear layers: 8 x (inputs + outputs) of q, k, v, o, gate, up and down in 32 layers are 20,971,520 values; an
    all-reduce in FP32 over 8 GPUs sends 2 x 7/8 x 4 bytes of each: 0.147 GB."""
    values = 8 * 32 * (2 * (4096 + 4096) + 2 * (4096 + 1024) + 3 * (4096 + 14336))
    sent = plan("--model_name", "llama-3.1-8b", "--gpu", "h100", "--num_gpus", "8", "--lora_rank", "8")["traffic"]
    total = sent["gathered"] + sent["reduced"] + sent["between_copies"]
    if values != 20971520 or not near(total, 2 * 7 / 8 * 4 * values, 0.001):
        return f"{total / 1e9:.3f} GB"


def check_fallback():
    """mxfp8 on Hopper runs as delayed: the same step, faster than BF16's."""
    words = ("--model_name", "llama-3.1-8b", "--gpu", "h100", "--num_gpus", "8", "--sharding_mode", "fsdp_full", "--batch_size", "2")
    asked, runs = plan(*words, "--use_fp8", "--fp8_recipe", "mxfp8"), plan(*words, "--use_fp8", "--fp8_recipe", "delayed")
    hours = asked["costs"]["wanted"]["hours"]
    if hours != runs["costs"]["wanted"]["hours"] or hours > 0.9 * asked["costs"]["bf16"]["hours"]:
        return f"{hours:.2f} hours, delayed {runs['costs']['wanted']['hours']:.2f}, BF16 {asked['costs']['bf16']['hours']:.2f}"


def check_codes_travel():
    """8B, fsdp_full, 8 x L40S over PCIe: of 2 + 2 bytes gathered and 2 reduced for each weight, FP8 sends 1 + 1 + 2: two thirds, a little
    more with the embedding and head in BF16. No gain may exceed "the most" that its reasons allow."""
    words = ("--model_name", "llama-3.1-8b", "--gpu", "l40s", "--num_gpus", "8", "--sharding_mode", "fsdp_full", "--batch_size", "1",
             "--max_seq_length", "2048")
    high, low = plan(*words)["traffic"], plan(*words, "--use_fp8")
    share = sum(low["traffic"][key] for key in ("gathered", "reduced")) / sum(high[key] for key in ("gathered", "reduced"))
    most = re.search(r"could (?:gain|be gained) is ([0-9.]+)x", " ".join(low["reasons"]))
    before, after = (of(low, recipe)["seconds"]["collectives"] for recipe in ("bf16", "delayed"))
    if not 0.66 < share < 0.74 or of(low, "delayed")["gain"] > float(most.group(1)) + 0.005 or after > 0.9 * before:
        return f"bytes {share:.2f}, gain {of(low, 'delayed')['gain']:.2f}, most {most.group(1)}, collectives {before:.3f} to {after:.3f} s"


def check_advice():
    """Llama 2 7B, LoRA, batch 16 on 24 GB: 13.5 GB of frozen weights leave room for a few sequences of 4096 tokens; the advice says how many."""
    words = ("--model_name", "llama-2-7b", "--gpu", "rtx4090", "--lora_rank", "16", "--max_seq_length", "4096")
    advice = plan(*words, "--batch_size", "16")["memory"]["advice"]
    sizes = [re.match(r"batch_size (\d+), gradient_accumulation_steps (\d+)", line) for line in advice]
    sizes = [tuple(map(int, found.groups())) for found in sizes if found]
    if not sizes or sizes[0][0] * sizes[0][1] != 16 or any("do not fit" in line for line in advice):
        return f"{advice}"


def check_last_micro_batch():
    """1B, ddp, 8 x RTX 4090, 16 micro-batches: gradients of 1.236 billion weights are summed once, over PCIe: 2 x 7/8 x 2 bytes of each at the
    calibration's share of 32 GB/s. One backward pass of the 16, two thirds of a micro-batch, can hide no more than its own time."""
    found = of(plan("--model_name", "llama-3.2-1b", "--gpu", "rtx4090", "--num_gpus", "8", "--batch_size", "1", "--max_seq_length", "1024",
                    "--gradient_accumulation_steps", "16"))
    parts = found["seconds"]
    compute = sum(parts[name] for name in ("products", "LM head", "attention", "elementwise"))
    wire = 2 * 7 / 8 * 2 * 1.2358e9 / (PCIE_4090 * constant("pcie"))
    least = wire - compute / 16 * 2 / 3
    if not 0.97 * least < parts["collectives"] < 1.03 * wire:
        return f"{parts['collectives']:.3f} s of {wire:.3f} on the wire, of which {wire - least:.3f} can hide"


def check_long_sequence():
    """8B, 32k tokens, B200: CUDA reports 178.35 GiB = 191.5e9 bytes there, and 171 are taken."""
    memory = plan("--model_name", "llama-3.1-8b", "--gpu", "b200", "--batch_size", "1", "--max_seq_length", "32768",
                  "--gradient_checkpointing")["memory"]
    if not memory["fits"] or not 189e9 < memory["usable"] < 191.5e9:
        return f"{memory['bf16']['peak'] / 1e9:.1f} of {memory['usable'] / 1e9:.1f} GB"


class Fp8Case:
    """A config whose FP8 step is derived: its linear layers' weights, what goes through them, and how often."""

    def __init__(self, config, gpu, rate, layers, weights, inputs, outputs, length, gemms, codings, copies):
        self.config, self.gpu, self.rate = config, gpu, rate  # bytes/s of the data sheet
        self.layers, self.weights = layers, weights
        self.inputs, self.outputs = inputs, outputs  # values of a token and layer that are quantized: inputs of GEMMs, gradients of outputs
        self.length = length
        self.gemms = gemms  # that a weight takes part in, for a token
        self.codings = codings  # of a weight in a step
        self.copies = copies  # of an activation's codes: another for the weight's gradient


# With gradient_checkpointing train makes a weight's codes for each GEMM that reads it (train::weight_copies): forward, recomputed forward and the
# input's gradient of 8 micro-batches. Without, once a step. Inputs are quantized in each forward pass, of frozen weights for one GEMM alone.
WIDE = 3 * 4096 + 14336
FP8_CASES = (
    Fp8Case("llama31_8b_full_fp8.yaml", "h100", H100_MEMORY, 32, BLOCKS_8B, 2 * WIDE, 6144 + 4096 + 2 * 14336 + 4096, 2048, 4, 24, 2),
    Fp8Case("llama31_8b_lora_r8_fp8.yaml", "h100", H100_MEMORY, 32, BLOCKS_8B, 2 * WIDE, 6144 + 4096 + 2 * 14336 + 4096, 2048, 3, 24, 1),
    Fp8Case("fineweb_edu_fp8.yaml", "h200", H200_MEMORY, 12, 12 * 12 * 768 * 768, 7 * 768, 9 * 768, 1024, 3, 1, 2))


def fp8_problem(case, found):
    """FP8 halves the time of a layer's GEMMs at best: the tensor cores' rate is 1979 TFLOP/s for BF16's 989, inputs are half the bytes, results
    are not. No GEMM beats those rates. A weight's codes take 5 bytes (2 read, two codes and their amax written), an activation's 2 and one
    for each copy, at the memory's rate: quantizing takes that at least, and half as much again at most, which is what a transpose in a pass of
    its own (2 bytes more) would make of it. Nothing else of a step changes. Together: the gain is bounded from both sides."""
    high, low = of(found), of(found, "delayed")
    tokens = found["batch_size"] * found["gradient_accumulation_steps"] * case.length
    least = (5 * case.codings * case.weights + case.layers * tokens * (case.inputs + case.outputs) * (2 + case.copies)) / (case.rate * constant("memory"))
    before, after, quantize = high["seconds"]["products"], low["seconds"]["products"], low["seconds"]["quantize"]
    fastest = 2 * case.gemms * case.weights * tokens / H100_BF16
    rest = high["step_seconds"] - before
    if before < fastest or after < 0.999 * before / 2 or after > before:
        return f"{case.config}: GEMMs {before:.3f} s, in FP8 {after:.3f} s, at the peak {fastest:.3f} and {fastest / 2:.3f} s"
    if not least < quantize < 1.5 * least:
        return f"{case.config}: quantize {quantize:.3f} s, at least {least:.3f} s"
    if not near(low["step_seconds"] - after - quantize, rest, 0.01) or not near(low["gain"], high["step_seconds"] / low["step_seconds"], 0.001):
        return f"{case.config}: the rest takes {rest:.3f} s and {low['step_seconds'] - after - quantize:.3f} s in FP8, gain {low['gain']:.2f}"
    most = high["step_seconds"] / (rest + before / 2 + least)
    return f"{case.config}: gain {low['gain']:.3f}, at most {most:.3f}" if low["gain"] > most else None


def check_fp8(case):
    """And the bounds bite: GEMMs that are a tenth faster, codes made once a step instead of for each GEMM (what the review found: 1.34x), or
    activations quantized for nothing are found out."""
    found = plan(f"configs/{case.config}", "--gpu", case.gpu)
    if problem := fp8_problem(case, found):
        return problem
    low = of(found, "delayed")
    seconds = low["seconds"]
    for name, change in (("products", -0.1 * seconds["products"]), ("quantize", -0.3 * seconds["quantize"]), ("quantize", 0.6 * seconds["quantize"]),
                         ("elementwise", -0.3 * seconds["elementwise"])):
        wrong = json.loads(json.dumps(found))
        row = of(wrong, "delayed")
        row["seconds"][name] += change
        row["step_seconds"] += change
        row["gain"] = of(wrong)["step_seconds"] / row["step_seconds"]
        if not fp8_problem(case, wrong):
            return f"{case.config}: {name} off by {change:+.3f} s is not found out"


def check_errors_beside():
    """512 x B200: "half within 8%" is of all held-out rows. Of the stack and the GPU that are forecast, src/plan/accuracy.h has what
    tests/conformance/plan_published.py found, and it stands beside the forecast."""
    table = (ROOT / "src/plan/accuracy.h").read_text()
    text = run("octavo plan --model_name llama-3.1-70b --gpu b200 --num_gpus 512 --sharding_mode fsdp_full --batch_size 2", ROOT)
    if len(text.splitlines()) > 15:
        return f"wanted an answer of at most 15 lines, found {len(text.splitlines())}"
    for name, rows in (("fused", "programs on Transformer Engine: "), ("b200", "of this GPU: ")):
        count, median = re.search(rf'{{"{name}", (\d+), ([0-9.]+),', table).groups()
        if f"{rows}{count}, half within {round(100 * float(median))}%" not in text:
            return f"wanted {rows}{count}, half within {median}"


def check_host():
    """GPT-2, H100, batch 8 of 1024: a step of 12 layers has 159 kernels, 147 GEMMs and 16 memsets (docs/internals/gpu-host-cost.md), 322 calls of
    some 10 us: 3.4 ms. The GPU computes longer than that, so they are hidden, all but those behind the one wait of a step: well below 1 ms."""
    found = of(plan("--model_name", "gpt2", "--gpu", "h100", "--batch_size", "8", "--max_seq_length", "1024"))
    compute = sum(found["seconds"][name] for name in ("products", "LM head", "attention", "elementwise"))
    if compute < 322 * 11e-6 or not 0 < found["seconds"]["host"] < 1e-3:
        return f"host {1e3 * found['seconds']['host']:.2f} ms of a step that computes {1e3 * compute:.1f} ms"


CHECKS = (check_full_sharding, check_adapters_traffic, check_fallback, check_codes_travel, check_advice, check_last_micro_batch,
          check_long_sequence, *(functools.partial(check_fp8, case) for case in FP8_CASES), check_errors_beside, check_host, *plan_measured.CHECKS)


def main():
    write = "--write" in sys.argv
    commands = wrong = pictures = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        drawn = folder / "docs" / "pictures"
        drawn.mkdir(parents=True)
        for page in PAGES:
            text = (ROOT / page).read_text()
            for command, pattern in BLOCK.findall(text):
                commands += 1
                output = run(command, folder)
                assert output == run(command, folder), f"{command}: two runs differ"
                if write:
                    text = text.replace(f"{command}\n```\n\n```text\n{pattern}\n```",
                                        f"{command}\n```\n\n```text\n{renew(output, pattern)}\n```")
                elif not shown(output, pattern):
                    wrong += 1
                    print(f"{page} shows something else than\n$ {command}\n{output}")
            if write:
                (ROOT / page).write_text(text)
        for picture in sorted(drawn.glob("*.svg")):
            pictures += 1
            kept = ROOT / "docs" / "pictures" / picture.name
            if write:
                kept.write_bytes(picture.read_bytes())
            elif not kept.exists() or kept.read_bytes() != picture.read_bytes():
                wrong += 1
                print(f"docs/pictures/{picture.name} is not what its command draws")
    impossible = 0
    for number, check in enumerate(CHECKS, 1):
        if found := check():
            impossible += 1
            print(f"check {number} {getattr(check, '__name__', 'check_fp8')}: {found}")
    print(f"commands={commands} pictures={pictures} different={wrong} checks={len(CHECKS)} impossible={impossible}")
    return 1 if wrong or impossible or commands < 7 or pictures < 3 else 0


sys.exit(main())
