#!/usr/bin/env python3
"""Writes the tables of docs/how-to/migrate-claims.md: what the five guides claim beside what `octavo plan` forecasts for the same case.

--write replaces the tables between the page's markers; without it the script says whether they are current (exit code 1 when not).
tests/integration/claims.py runs it. The program is build/release's, or that of OCTAVO_BUILD.
"""
import json
import os
import pathlib
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "how-to" / "migrate-claims.md"
OCTAVO = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release")) / "bin" / "octavo"
BEGIN, END = "<!-- claims: made by docs/claims.py -->\n", "<!-- claims: end -->\n"
DAY = 86400

# Cases: what is planned. Where a guide does not say a number (sequence length, say), it is that of the file in configs/.
CASES = {
    "8B, all weights, 1 x H100": "--model_name llama-3.1-8b --gpu h100 --batch_size 2 --max_seq_length 2048 --gradient_accumulation_steps 8 "
    "--gradient_checkpointing --master_dtype bf16 --moment_dtype fp8 --gradient_dtype bf16 --use_fp8",
    "8B, LoRA rank 32, 1 x H100": "--model_name llama-3.1-8b --gpu h100 --batch_size 2 --max_seq_length 2048 --gradient_accumulation_steps 8 "
    "--lora_rank 32 --use_fp8",
    "8B, LoRA rank 8, 1 x H100": "--model_name llama-3.1-8b --gpu h100 --batch_size 2 --max_seq_length 2048 --gradient_accumulation_steps 8 "
    "--lora_rank 8 --use_fp8",
    "1B, LoRA rank 16, 1 x H100": "--model_name llama-3.2-1b --gpu h100 --batch_size 2 --max_seq_length 2048 --gradient_accumulation_steps 8 "
    "--lora_rank 16 --use_fp8",
    "GPT-2 124M, 1 x B200": "--model_name gpt2 --gpu b200 --batch_size 64 --max_seq_length 1024 --use_fp8",
    "GPT-2 124M, 4 x B200": "--model_name gpt2 --gpu b200 --num_gpus 4 --sharding_mode ddp --batch_size 64 --max_seq_length 1024 "
    "--gradient_accumulation_steps 2 --use_fp8",
    "GPT-2 124M, 8 x B200": "--model_name gpt2 --gpu b200 --num_gpus 8 --sharding_mode ddp --batch_size 64 --max_seq_length 1024 --use_fp8",
    "8B, all weights, 8 x H100, ZeRO-1": "--model_name llama-3.1-8b --gpu h100 --num_gpus 8 --sharding_mode zero1 --batch_size 1 "
    "--max_seq_length 2048 --gradient_accumulation_steps 2 --gradient_checkpointing --use_fp8",
    "GPT-2 124M, 1 x H200": "--model_name gpt2 --gpu h200 --batch_size 128 --max_seq_length 1024 --gradient_accumulation_steps 4 --use_fp8",
    "3B, 1 x B200": "--model_name llama-3.2-3b --gpu b200 --batch_size 12 --max_seq_length 1024 --use_fp8",
}


class Forecast:
    """What `octavo plan --json` says about a case."""

    def __init__(self, words):
        done = subprocess.run([OCTAVO, "plan", *shlex.split(words), "--json"], capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"octavo plan {words}: exit code {done.returncode}: {done.stderr}")
        self.found = json.loads(done.stdout)
        self.recipes = {recipe["recipe"]: recipe for recipe in self.found["recipes"]}
        self.gpus = self.found["num_gpus"]

    def gain(self, recipe="delayed"):
        return self.recipes[recipe]["gain"]

    def seconds(self, recipe="delayed"):
        return self.recipes[recipe]["step_seconds"]

    def tokens(self, recipe="delayed"):
        return self.recipes[recipe]["tokens_per_s_per_gpu"] * self.gpus

    def memory(self, precision, part="peak"):
        return self.found["memory"][precision][part] / 1e9


def speed_up(forecast):
    return f"{forecast.gain():.2f}x"


def peaks(forecast):
    bf16, fp8 = forecast.memory("bf16"), forecast.memory("fp8")
    return f"{bf16:.1f} GB, {fp8:.1f} GB ({100 * (fp8 / bf16 - 1):+.0f}%)"


def activations(forecast):
    bf16, fp8 = (forecast.memory(precision, "activations") for precision in ("bf16", "fp8"))
    return f"{bf16:.1f} GB, {fp8:.1f} GB ({100 * fp8 / bf16:.0f}%)"


def rates(forecast):
    return f"{forecast.tokens('bf16') / 1000:,.0f} thousand, {forecast.tokens() / 1000:,.0f} thousand ({forecast.gain():.2f}x)"


def run_of_steps(count):
    return lambda forecast: f"{count * forecast.seconds('bf16'):.0f} s, {count * forecast.seconds():.0f} s"


def step_times(forecast):
    return f"{forecast.seconds('bf16'):.2f} s, {forecast.seconds():.2f} s ({forecast.gain():.2f}x)"


def time_for(tokens, unit, name):
    return lambda forecast: f"{tokens / forecast.tokens('bf16') / unit:.1f} {name}, {tokens / forecast.tokens() / unit:.1f} {name}"


def mxfp8(forecast):
    return f"{forecast.gain('mxfp8'):.2f}x, {forecast.gain():.2f}x"


def reason(forecast):
    """plan's own line about where the gain goes."""
    return forecast.found["reasons"][0].partition(": ")[2]


STEP_OF_512 = 512 * 1024  # tokens
# (guide, line, case, what is claimed: BF16 then FP8, the guide's number, how the forecast says it)
CLAIMS = [
    ("G0", 16, "8B, all weights, 1 x H100", "speed-up", "1.3x to 1.5x", speed_up),
    ("G0", 153, "8B, all weights, 1 x H100", "100 steps", "600 s, 430 s", run_of_steps(100)),
    ("G0", 155, "8B, all weights, 1 x H100", "memory", "45 GB, 52 GB (+15%)", peaks),
    ("G0", 166, "1B, LoRA rank 16, 1 x H100", "speed-up", "1.13x, measured", speed_up),
    ("G0", 169, "8B, LoRA rank 32, 1 x H100", "speed-up", "1.00x, measured", speed_up),
    ("G0", 172, "8B, LoRA rank 8, 1 x H100", "speed-up", "1.20x", speed_up),
    ("G1", 364, "GPT-2 124M, 1 x B200", "tokens/s", "2,000, 3,500 (1.75x)", rates),
    ("G1", 365, "GPT-2 124M, 4 x B200", "tokens/s", "8,000, 14,000 (1.75x)", rates),
    ("G1", 366, "GPT-2 124M, 8 x B200", "tokens/s", "15,000, 27,000 (1.80x)", rates),
    ("G1", 369, "GPT-2 124M, 4 x B200", "34 days at 8,000 tokens/s (23.5 billion tokens)", "34 days, 17 to 23 days",
     time_for(34 * DAY * 8000, 3600, "h")),
    ("G1", 375, "GPT-2 124M, 1 x B200", "memory", "20% to 30% less", peaks),
    ("G2", 89, "8B, all weights, 8 x H100, ZeRO-1", "speed-up", "1.3x to 1.5x", speed_up),
    ("G2", 90, "8B, all weights, 8 x H100, ZeRO-1", "memory", "30% less", peaks),
    ("G3", 165, "GPT-2 124M, 1 x H200", "step of 512 samples", "3.2 s, 1.7 s (1.9x)", step_times),
    ("G3", 166, "GPT-2 124M, 1 x H200", "activations", "half", activations),
    ("G3", 335, "GPT-2 124M, 1 x H200", "1,760 steps", "3 h, 1.5 h", time_for(1760 * STEP_OF_512, 3600, "h")),
    ("G3", 140, "GPT-2 124M, 1 x H200", "2 epochs of 9 billion tokens", "the same 1.5 h", time_for(18e9, 3600, "h")),
    ("G4", 124, "3B, 1 x B200", "MXFP8, FP8 over BF16", "to be compared", mxfp8),
]


def cells(*words):
    return f"| {' | '.join(map(str, words))} |\n"


def tables():
    forecasts = {case: Forecast(words) for case, words in CASES.items()}
    text = cells("guide, line", "case", "what (BF16, FP8)", "the guide", "`octavo plan`") + cells(*["---"] * 5)
    for guide, line, case, what, claim, say in CLAIMS:
        text += cells(f"{guide}:{line}", case, what, claim, say(forecasts[case]))
    text += "\nWhy, in `plan`'s words, and the command of each case:\n\n"
    text += cells("case", "where the gain goes", "`octavo plan` with") + cells(*["---"] * 3)
    for case, words in CASES.items():
        text += cells(case, reason(forecasts[case]), f"`{words}`")
    return text


def main():
    page = PAGE.read_text()
    head, begin, rest = page.partition(BEGIN)
    kept, end, tail = rest.partition(END)
    if not begin or not end:
        sys.exit(f"{PAGE.relative_to(ROOT)}: wanted the lines {BEGIN.strip()} and {END.strip()}, found not both")
    wanted = "\n" + tables() + "\n"
    if "--write" in sys.argv:
        PAGE.write_text(head + begin + wanted + end + tail)
        kept = wanted
    current = kept == wanted
    if not current:
        print(f"{PAGE.relative_to(ROOT)}: other figures than octavo plan's; run docs/claims.py --write")
    print(f"claims={len(CLAIMS)} cases={len(CASES)} current={int(current)}")
    sys.exit(0 if current else 1)


if __name__ == "__main__":
    main()
