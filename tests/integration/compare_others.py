#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=300 gate=""
"""`octavo compare` of other trainers' logs: the same numbers as runs of octavo and as logs give the same verdict, gap and
interval, for one pair and for several seeds, batch by batch and as wholes, for good, bad and undecided pairs; a NaN in B
fails; the commands of docs/how-to/compare-other-trainers.md work; and nothing is written beside the logs."""
import csv
import json
import pathlib
import shlex
import subprocess
import sys
import tempfile

import numpy as np
from torch.utils.tensorboard import SummaryWriter

from common import OCTAVO, page_commands

PASS, FAIL, NOT_ENOUGH, USAGE = 0, 4, 6, 2
STEPS, EVERY, STEP_TOKENS = 400, 20, 4096


def simulate(random, gap):
    """Losses of two runs of one seed on the same batches; the second is `gap` percent worse. FP32 values: every format has them."""
    curve = 1.6 + 2.6 * np.exp(-np.arange(1, STEPS + 1) / 60)
    batches = random.normal(size=STEPS) * 0.05
    return [np.float32(curve * factor + batches + random.normal(size=STEPS) * 0.01) for factor in (1, 1 + gap / 100)]


def own_run(folder, losses, seed, settings=True):
    folder.mkdir(parents=True)
    lines = []
    for step, loss in enumerate(map(float, losses), 1):
        lines.append(json.dumps({"step": step, "train/loss": loss, "perf/step_seconds": 0.125, "tokens": step * STEP_TOKENS}))
        if step % EVERY == 0:
            lines.append(json.dumps({"step": step, "val/loss": loss}))
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    (folder / "receipt.json").write_text('{"status":"done","device":"cpu"}')
    if settings:
        (folder / "config.yaml").write_text(f"seed: {seed}\n")


def as_jsonl(path, losses):
    with path.open("w") as file:
        for step, loss in enumerate(map(float, losses), 1):
            file.write(json.dumps({"step": step, "loss": loss, "tokens": step * STEP_TOKENS, "perf/step_seconds": 0.125}) + "\n")
            if step % EVERY == 0:
                file.write(json.dumps({"step": step, "eval_loss": loss}) + "\n")


def as_trainer_state(path, losses):
    history = []
    for step, loss in enumerate(map(float, losses), 1):
        history.append({"loss": loss, "step": step, "epoch": 0.1})
        if step % EVERY == 0:
            history.append({"eval_loss": loss, "step": step})
    path.write_text(json.dumps({"global_step": STEPS, "log_history": history}, indent=2))


def as_events(path, losses):
    with SummaryWriter(path) as writer:
        for step, loss in enumerate(map(float, losses), 1):
            writer.add_scalar("lm loss", loss, step)
            if step % EVERY == 0:
                writer.add_scalar("lm loss validation", loss, step)


def as_csv(path, losses):
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["Step", "run - train/loss", "run - eval/loss"])
        for step, loss in enumerate(map(float, losses), 1):
            out.writerow([step, repr(loss), repr(loss) if step % EVERY == 0 else ""])


def as_megatron(path, losses):
    """With nine digits, which FP32 needs; the trainer itself prints seven."""
    with path.open("w") as file:
        for step, loss in enumerate(map(float, losses), 1):
            file.write(f" iteration {step:8d}/{STEPS:8d} | elapsed time per iteration (ms): 125.0 | lm loss: {loss:.9E} | number of "
                       "skipped iterations:   0 | number of nan iterations:   0 |\n")
            if step % EVERY == 0:
                file.write(f" validation loss at iteration {step} | lm loss value: {loss:.9E} | lm loss PPL: 1.0E+00 | \n")


WRITERS = {"jsonl": as_jsonl, "trainer_state": as_trainer_state, "events": as_events, "csv": as_csv, "megatron": as_megatron}


def compare(folder, *words):
    done = subprocess.run([OCTAVO, "compare", *map(str, words), "--json", "--output", "page.html"], cwd=folder, text=True,
                          capture_output=True)
    if done.returncode not in (PASS, FAIL, NOT_ENOUGH):
        sys.exit(f"compare {' '.join(map(str, words))}: exit code {done.returncode}:\n{done.stderr}")
    return done.returncode, json.loads(done.stdout)


def essence(results):
    """Verdict, gap and interval of the losses, and the verdict of all."""
    lines = [(row["verdict"], row["gap"], tuple(row.get("interval", {}).values())) for row in results["judgements"][:2]]
    return results["verdict"], lines


def close(a, b):
    """Equal but for the rounding of nine digits in a text log."""
    if a[0] != b[0]:
        return False
    for (verdict_a, _, numbers_a), (verdict_b, _, numbers_b) in zip(a[1], b[1]):
        if verdict_a != verdict_b or len(numbers_a) != len(numbers_b) or not np.allclose(numbers_a, numbers_b, rtol=1e-5, atol=1e-7):
            return False
    return True


def check_case(random, work, name, gaps, wrong):
    """One comparison as runs of octavo and as every kind of log. Returns (exit code, comparisons)."""
    folder = work / name
    pairs = [simulate(random, gap) for gap in gaps]
    for seed, pair in enumerate(pairs):
        for side, losses in zip("ab", pair):
            own_run(folder / f"own/{side}-{seed}", losses, seed)
            own_run(folder / f"apart/{side}-{seed}", losses, seed, settings=False)
    count = range(len(pairs))
    own = [folder / f"own/a-{i}" for i in count], [folder / f"own/b-{i}" for i in count]
    apart = [folder / f"apart/a-{i}" for i in count], [folder / f"apart/b-{i}" for i in count]
    code, same_batches = compare(folder, *own[0], "--against", *own[1])
    wholes_code, wholes = compare(folder, *apart[0], "--against", *apart[1])
    done = 2
    for kind, write in WRITERS.items():
        sides = [[folder / f"{kind}-{side}-{i}" for i in count] for side in "ab"]
        for i, pair in enumerate(pairs):
            for side, losses in zip(sides, pair):
                write(side[i], losses)
        for words, wanted_code, wanted in ((["--same_batches"], code, same_batches), ([], wholes_code, wholes)):
            found_code, found = compare(folder, *sides[0], "--against", *sides[1], *words)
            done += 1
            if found_code != wanted_code or not close(essence(found), essence(wanted)):
                wrong.append(f"{name} as {kind} {words}: {found_code} {essence(found)}, wanted {wanted_code} {essence(wanted)}")
        if len(pairs) == 1:
            found_code, found = compare(folder, sides[0][0], sides[1][0], "--same_batches")
            if found_code != code:
                wrong.append(f"{name} as {kind}, two words: {found_code}, wanted {code}")
    return code, done


def check_refusals(work, wrong):
    """Wrong use is said, and a log that broke down fails."""
    folder = work / "refusals"
    folder.mkdir()
    losses = np.full(STEPS, 2.0) + np.sin(np.arange(STEPS)) * 0.01
    as_jsonl(folder / "a", losses)
    broken = losses.copy()
    broken[-3:] = np.nan
    as_jsonl(folder / "b", broken)
    code, found = compare(folder, "a", "b")
    if code != FAIL or "not finite" not in found["judgements"][0]["why"]:
        wrong.append(f"NaN in B: {code} {found['judgements'][0]}")
    for words, part in ((["a", "b", "a"], "--against"), (["a", "--against", "b", "a"], "as many runs"), (["a", "none"], "none in none"),
                        (["a", "b", "--loss_name", "nothing"], "'nothing'"), (["a", "b", "--step_tokens", "x"], "number of tokens"),
                        (["a", "--against"], "behind it, found nothing"), (["a", "b", "--eval_data", "a"], "")):
        done = subprocess.run([OCTAVO, "compare", *words], cwd=folder, text=True, capture_output=True)
        if done.returncode != USAGE or part not in done.stderr:
            wrong.append(f"compare {words}: {done.returncode}: {done.stderr[-300:]}")
    before = sorted(path.name for path in folder.iterdir())
    (work / "elsewhere").mkdir()
    subprocess.run([OCTAVO, "compare", folder / "a", folder / "b"], cwd=work / "elsewhere", capture_output=True)
    if sorted(path.name for path in folder.iterdir()) != before or not (work / "elsewhere/compare.html").exists():
        wrong.append("a report was written beside somebody's logs, or not here")


def check_page(random, work, wrong):
    """The commands of the page, on the logs that it names."""
    folder = work / "page"
    folder.mkdir()
    for seed in (1, 2, 3):
        for name, losses in zip(("bf16", "fp8"), simulate(random, 0.1)):
            as_megatron(folder / f"{name}-{seed}.log", losses)
            as_trainer_state(folder / f"{name}-{seed}.json", losses)
    as_jsonl(folder / "a.jsonl", simulate(random, 0)[0])
    as_jsonl(folder / "b.jsonl", simulate(random, 0)[1])
    commands = [shlex.split(command)[1:] for command in page_commands("how-to/compare-other-trainers.md", "compare_others")]
    for words in commands:
        done = subprocess.run([OCTAVO, *words], cwd=folder, text=True, capture_output=True)
        if done.returncode not in (PASS, NOT_ENOUGH):
            wrong.append(f"{' '.join(words)}: exit code {done.returncode}: {done.stderr[-500:]}{done.stdout[-500:]}")
    return len(commands)


def main():
    random, wrong, comparisons = np.random.default_rng(23), [], 0
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        codes = []
        for case, gaps in (("good", [0.1]), ("bad", [4.0]), ("good_seeds", [0.0, 0.1, 0.05] * 2), ("bad_seeds", [4.0, 4.2, 3.9]),
                           ("undecided_seeds", [0.1, 0.9, 0.4])):
            code, done = check_case(random, work, case, gaps, wrong)
            codes.append(code)
            comparisons += done
        # One pair is never enough, however good or bad it looks.
        if codes != [NOT_ENOUGH, NOT_ENOUGH, PASS, FAIL, NOT_ENOUGH]:
            wrong.append(f"exit codes {codes}, wanted {[NOT_ENOUGH, NOT_ENOUGH, PASS, FAIL, NOT_ENOUGH]}")
        check_refusals(work, wrong)
        commands = check_page(random, work, wrong)
    for line in wrong[:20]:
        print(line[:1500])
    print(f"comparisons={comparisons} kinds={len(WRITERS)} commands={commands} wrong={len(wrong)}")
    return 1 if wrong or commands < 3 else 0


if __name__ == "__main__":
    sys.exit(main())
