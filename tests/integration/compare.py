#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=1500 gate="--pairs 30" night=""
"""`octavo compare` from outside.

Real runs of a small GPT on tinyshakespeare, three seeds: FP8 against BF16 must PASS within 2% (a verdict within the default 0.5% may
take more seeds, and is then asked for); FP8 with a margin that pushes nearly everything below E4M3's range must FAIL; one pair, and two
short runs, must say NOT ENOUGH DATA; a comparison that is interrupted continues and repeats nothing.

Simulated runs, written as run folders, with batches in common, noise that is correlated from step to step, a gap that is known and, from
seed to seed, a standard deviation of the gap of 1.5%. Wanted: one pair never passes, and its interval covers the gap of these two runs in
90 of 100; the interval of five seeds covers the true gap in 92 of 100; a regression of 1% FAILs in 95 of 100 comparisons that start with
three seeds and run as many as they are asked for. The page has nothing from outside, and Chromium draws it.
"""
import argparse
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

import browser
from common import OCTAVO, STOPPED, page_commands, prepare_data, require_files

PASS, FAIL, NOT_ENOUGH = 0, 4, 6  # exit codes
STEPS = 240
CONFIG = f"""model_name: custom
n_layer: 2
n_head: 4
n_embd: 128
max_seq_length: 64
batch_size: 8
max_steps: {STEPS}
learning_rate: 2e-3
warmup_steps: 20
eval_freq: 5
eval_batches: 4
sample_freq: {STEPS}
sample_tokens: 60
log_freq: 40
checkpoint_freq: 0
use_fp8: true
dataset: data
"""


def octavo(folder, *words):
    return subprocess.Popen([OCTAVO, "compare", *map(str, words)], cwd=folder, text=True, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, env=os.environ | {"OMP_WAIT_POLICY": "passive"})


def compare(folder, *words):
    """(exit code, results)"""
    process = octavo(folder, *words, "--json")
    out, err = process.communicate()
    if process.returncode not in (PASS, FAIL, NOT_ENOUGH):
        sys.exit(f"compare {' '.join(map(str, words))}: exit code {process.returncode}:\n{err}")
    return process.returncode, json.loads(out)


def judgement(results, name):
    return next(row for row in results["judgements"] if row["name"].startswith(name))


def expect(condition, text):
    if not condition:
        sys.exit(f"compare: {text}")


# Simulated runs

def correlated(random, count, rho, size):
    noise = random.normal(size=count) * size * np.sqrt(1 - rho * rho)
    noise[0] = random.normal() * size
    for i in range(1, count):
        noise[i] += rho * noise[i - 1]
    return noise


RUN_DEVIATION = 1.5  # percent, of the gap from seed to seed


def write_run(folder, losses, seed, precision):
    folder.mkdir(parents=True)
    lines = []
    for step, loss in enumerate(losses, 1):
        lines.append(f'{{"step":{step},"train/loss":{loss:.9g},"perf/step_seconds":0.1,"tokens":{step * 4096},'
                     f'"precision":"{precision}"}}')
        if step % 25 == 0:
            lines.append(f'{{"step":{step},"val/loss":{loss:.9g}}}')
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "config.yaml").write_text(f"seed: {seed}\nmax_steps: {len(losses)}\n")
    (folder / "receipt.json").write_text('{"status":"done","device":"cpu"}')


def simulate(random, folder, names, steps, gap, seed):
    """A pair whose second run is `gap` percent worse: one curve, the same batches, noise of each run's own."""
    curve = 1.6 + 2.6 * np.exp(-np.arange(steps) / (steps / 6))
    batches = random.normal(size=steps) * 0.06
    rho = random.uniform(0.2, 0.85)
    for name, factor, precision in zip(names, (1, 1 + gap / 100), ("BF16", "FP8")):
        own = correlated(random, steps, rho, 0.012)
        write_run(folder / name, curve * factor + batches + own, seed, precision)


def covered_pairs(random, work, count):
    """(how many intervals hold the gap of the two runs, how many verdicts there are where there must be none)"""
    covered = verdicts = 0
    for i in range(count):
        folder = work / f"pair-{i}"
        gap = random.uniform(-1, 4)
        simulate(random, folder, ("a", "b"), int(random.integers(240, 600)), gap, seed=1)
        code, results = compare(folder, "a", "b")
        line = judgement(results, "training")
        covered += line["interval"]["low"] <= gap <= line["interval"]["high"]
        verdicts += code != NOT_ENOUGH or line["verdict"] != "NOT ENOUGH DATA" or line["seeds_wanted"] < 3
        shutil.rmtree(folder)
    return covered, verdicts


def covered_seeds(random, work, count, seeds=5):
    """The same for five seeds, of which each has a gap of its own around the true one."""
    covered = 0
    for i in range(count):
        folder = work / f"seeds-{i}"
        gap = random.uniform(-1, 4)
        for seed in range(1, seeds + 1):
            simulate(random, folder, (f"a-{seed}", f"b-{seed}"), 220, gap + random.normal() * RUN_DEVIATION, seed)
        _, results = compare(folder, ".")
        interval = judgement(results, "training")["interval"]
        covered += interval["low"] <= gap <= interval["high"]
        shutil.rmtree(folder)
    return covered


def found_regressions(random, work, count, gap=1.0):
    """(comparisons that end in FAIL, in PASS, seeds that they took in the middle): three seeds first, then as many as are asked for."""
    verdicts, taken = [], []
    for i in range(count):
        folder, seeds, wanted = work / f"regression-{i}", 0, 3
        while wanted > seeds:
            for seed in range(seeds + 1, wanted + 1):
                simulate(random, folder, (f"a-{seed}", f"b-{seed}"), 60, gap + random.normal() * RUN_DEVIATION, seed)
            seeds = wanted
            # Of so short runs nearly all is the last part.
            _, results = compare(folder, ".", "--tail_share", 0.9, "--max_val_gap", 1000)
            wanted = judgement(results, "training").get("seeds_wanted", 0)
        verdicts.append(judgement(results, "training")["verdict"])
        taken.append(seeds)
        shutil.rmtree(folder)
    return verdicts.count("FAIL"), verdicts.count("PASS"), int(np.median(taken))


# Real runs

def interrupted_comparison(work, words):
    """FP8 against BF16, stopped in its second run and run again. Returns (code, results) of the whole."""
    runs = work / "runs/fp8-or-not"
    process = octavo(work, *words)
    second = runs / "b-1337/metrics.jsonl"
    while process.poll() is None and not (second.exists() and second.read_text().count("train/loss") >= 30):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    expect(process.returncode == STOPPED, f"wanted exit code {STOPPED} after SIGINT, found {process.returncode}:\n{err}")
    first = (runs / "a-1337/metrics.jsonl").stat()
    code, results = compare(work, *words)
    expect((runs / "a-1337/metrics.jsonl").stat().st_mtime_ns == first.st_mtime_ns, "a finished run was repeated")
    expect("resumed" in (runs / "b-1337/train.log").read_text(), "the stopped run did not continue")
    steps = [run["steps"] for run in (results["pairs"][0]["a"], results["pairs"][0]["b"])]
    expect(steps == [STEPS, STEPS], f"wanted {STEPS} steps of both runs, found {steps}")
    return code, results


def short_runs(work):
    for name, fp8 in (("short-a", "false"), ("short-b", "true")):
        subprocess.run([OCTAVO, "train", "train.yaml", "--max_steps", "20", "--warmup_steps", "2",
                        f"--use_fp8={fp8}", "--run_name", name], cwd=work, check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)


def hellaswag(work):
    """Rows that fit into the small models' context, by both of the good pair; asked once, then remembered. Returns the rows."""
    people, things = ("She", "He", "Romeo", "The king"), ("runs", "is gone", "sings a song", "sleeps")
    rows = [{"ind": i, "activity_label": "Play", "ctx_a": f"{people[i % 4]} is here.", "ctx_b": "then", "label": str(i % 4),
             "ctx": "", "endings": [f"{thing} {i}." for thing in things]} for i in range(12)]
    (work / "hellaswag.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["runs/fp8-or-not", "--eval_data", "hellaswag.jsonl", "--output", "hellaswag.html"]
    compare(work, *words)
    kept = [path.stat().st_mtime_ns for path in sorted(work.glob("runs/fp8-or-not/*/hellaswag-*.jsonl"))]
    code, results = compare(work, *words)
    expect(kept == [path.stat().st_mtime_ns for path in sorted(work.glob("runs/fp8-or-not/*/hellaswag-*.jsonl"))],
           "answers that were there were asked for again")
    expect("hellaswag" in results["pairs"][0], f"HellaSwag was not run: {judgement(results, 'HellaSwag')['why']}")
    expect(code in (PASS, NOT_ENOUGH, FAIL) and judgement(results, "HellaSwag")["verdict"] != "not judged",
           "HellaSwag was not judged")
    return results["pairs"][0]["hellaswag"]["rows"]


def check_page(page, work):
    """Nothing from outside, and Chromium draws it. Returns the picture's bytes."""
    html = browser.self_contained(page)
    expect(html.count("<svg") >= 3 and html.count("<svg") == html.count("</svg>"), "the page has too few pictures")
    picture = work / "page.png"
    browser.draw(page, picture, height=2600)
    return picture.stat().st_size


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--pairs", type=int, default=100, help="simulated pairs, and comparisons of five seeds")
    parser.add_argument("--keep", type=pathlib.Path, help="copy the pages to this folder")
    options = parser.parse_args()
    require_files()
    random = np.random.default_rng(20)
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        covered, verdicts = covered_pairs(random, work, options.pairs)
        seeds = covered_seeds(random, work, options.pairs)
        found, missed, taken = found_regressions(random, work, options.pairs)
        prepare_data(work)
        (work / "train.yaml").write_text(CONFIG)
        short_runs(work)
        commands = [shlex.split(command)[2:] for command in page_commands("how-to/compare.md", "compare")]
        expect(len(commands) == 5, f"docs/how-to/compare.md: wanted 5 commands under the test's mark, found {len(commands)}")
        first, good_results = interrupted_comparison(work, commands[0])
        bad, bad_results = compare(work, *commands[1])
        good, _ = compare(work, *commands[2])
        pair, _ = compare(work, *[word for word in commands[3] if word != "--json"])
        short, _ = compare(work, *commands[4])
        rows = hellaswag(work)
        pages = [work / name for name in ("runs/fp8-or-not/report.html", "runs/wrong-margin/report.html", "wide.html",
                                          "pair.html", "runs/short-b/report.html")]
        drawn = [check_page(page, work) for page in pages]
        if options.keep:
            options.keep.mkdir(exist_ok=True)
            for number, page in enumerate(pages):
                shutil.copy(page, options.keep / f"{number}-{page.parent.name}.html")
    gaps = [judgement(results, "training")["gap"].split("%")[0] for results in (good_results, bad_results)]
    print(f"covered={covered}/{options.pairs} covered_seeds={seeds}/{options.pairs} pair_verdicts={verdicts} "
          f"regressions_found={found}/{options.pairs} regressions_passed={missed} median_seeds={taken} first_exit={first} good_exit={good} "
          f"good_gap={gaps[0]}% bad_exit={bad} bad_gap={gaps[1]}% pair_exit={pair} short_exit={short} hellaswag_rows={rows} "
          f"pages_drawn={sum(size > 0 for size in drawn)}")
    enough = (rows == 12 and covered >= 0.9 * options.pairs and seeds >= 0.92 * options.pairs and verdicts == 0
              and found >= 0.95 * options.pairs and first != FAIL)
    return 0 if enough and (good, bad, pair, short) == (PASS, FAIL, NOT_ENOUGH, NOT_ENOUGH) else 1


if __name__ == "__main__":
    sys.exit(main())
