#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=faults timeout=600 night="--short" alone measures="src/data"
"""Faults of token shards; the last line has the results.

flips        500 flipped bits in headers, document starts, hashes and tokens: a loader hands out right tokens up to the
             damage, then an error with exit code 5 that names the shard
skips        with data_damage skip: right rows or rows without loss tokens; the same again, resumed, on two ranks
vocabulary   an id beyond the vocabulary in a shard whose hashes are right: refused, with shard and position
runs         real trainings: stopped before the damage; skipped with a ledger, resumed bit for bit; other data refused

usage: data.py [--short]    --short: fewer of each, for CI
"""
import argparse
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import common  # noqa: E402
from common import DAMAGED, OCTAVO, STOPPED  # noqa: E402

TOOL = common.BUILD / "bin" / "data_faults_tool"
USAGE = 2
STEPS, HEADER = 60, 4096
MOST_CHECK_SHARE = 0.01
CONFIG = f"""
model_name: custom
n_layer: 1
n_head: 2
n_embd: 64
max_seq_length: 64
batch_size: 16
max_steps: {STEPS}
learning_rate: 3e-3
eval_freq: 30
eval_batches: 2
num_threads: 1
checkpoint_freq: 1000
run_name: run
"""
PARAGRAPHS = []  # of the text


def prepare(folder, paragraphs):
    """Many documents in many shards."""
    rows = folder.with_suffix(".jsonl")
    rows.write_text("".join(json.dumps({"text": paragraph}) + "\n" for paragraph in paragraphs))
    subprocess.run([OCTAVO, "data", "prepare", "--dataset", rows, "--output", folder, "--shard_tokens", "20000"],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def run_tool(*words):
    done = subprocess.run([TOOL, *map(str, words)], stdout=subprocess.PIPE, text=True)
    if not done.stdout:
        sys.exit(f"data_faults_tool {words[0]} ended with exit code {done.returncode}")
    result = json.loads(done.stdout.splitlines()[-1])
    print(f"{words[0]}: {result}", flush=True)
    return result


def flip_token(data, shard, token):
    path = data / shard
    content = bytearray(path.read_bytes())
    content[HEADER + 2 * token] ^= 1
    path.write_bytes(content)


class Folder(common.Folder):
    """One run; its data is work/data, or a copy of its own."""

    def __init__(self, work, name, extra=""):
        (work / name).mkdir()
        super().__init__(work / name / "run", CONFIG + extra)
        self.data = work / name / "data"  # where the run looks for it
        self.data.symlink_to(work / "data")

    def use_data(self, folder):
        self.data.unlink()
        self.data.symlink_to(folder)

    def own_data(self):
        shared = self.data.resolve()
        self.data.unlink()
        shutil.copytree(shared, self.data)
        return self.data

    def run_file(self, name):
        path = self.path / "runs" / "run" / name
        return path.read_text() if path.exists() else ""

    def ledger(self):
        return [json.loads(line) for line in self.run_file("data_damage.jsonl").splitlines()]

    def problem(self, name, wants):
        missing = [what for what, holds in wants.items() if not holds]
        return f"{name}: wanted {'; '.join(missing)}\n{self.log()}" if missing else ""


def losses(folder):
    return [record["train/loss"] for record in folder.records() if "train/loss" in record]


def stopped(work, reference):
    """In order, 1024 tokens a step: step 20 is the first that touches the second shard of 20,000."""
    folder = Folder(work, "stopped", "shuffle: false\n")
    flip_token(folder.own_data(), "train-00001.tok", 9000)
    code, log = folder.finish(), folder.log()
    good = len(losses(folder))
    return folder.problem("a run over damaged data", {
        f"exit code {DAMAGED}, found {code}": code == DAMAGED, "the shard named": "train-00001.tok is damaged" in log,
        f"19 steps before it, found {good}": good == 19,
        "no training on it": "step    20 " not in log})


def skipped(work, reference):
    """All of a run, and the same stopped at a step and resumed."""
    whole, parts = (Folder(work, f"skipped-{name}", "data_damage: skip\n") for name in ("whole", "parts"))
    flip_token(whole.own_data(), "train-00001.tok", 9000)
    (whole.data / "train-00004.tok").unlink()
    parts.use_data(whole.data)
    code = whole.finish()
    first = common.interrupt(parts.start(), 20, signal.SIGTERM)
    second = parts.finish("--resume", "latest")
    ledger, receipt, tensors = whole.ledger(), whole.receipt()["data"], whole.tensors(STEPS) if code == 0 else {}
    return whole.problem("data_damage skip", {
        f"exit codes 0, {STOPPED} and 0, found {code}, {first}, {second}": (code, first, second) == (0, STOPPED, 0),
        "the log to say so": "DATA DAMAGED" in whole.log(),
        f"two shards in the ledger, found {ledger}": {line["shard"] for line in ledger} == {"train-00001.tok",
                                                                                         "train-00004.tok"},
        "shard, range and reason": all(line["end"] > line["begin"] and line["reason"] for line in ledger),
        f"the receipt to count, found {receipt}": receipt["samples_left_out"] > 10 and receipt["train"]["damaged_ranges"] == 2,
        "no line of the ledger twice after the resume": len(parts.ledger()) == 2,
        "the same weights after a resume": tensors and parts.tensors(STEPS) == tensors,
        "other weights than without damage": tensors != reference.tensors(STEPS)})


def too_much(work, reference):
    folder = Folder(work, "too-much", "data_damage: skip\n")
    for number in range(5):
        (folder.own_data() if number == 0 else folder.data).joinpath(f"train-0000{number}.tok").unlink()
    code = folder.finish()
    return folder.problem("a tenth of the shards missing", {
        f"exit code {DAMAGED}, found {code}": code == DAMAGED, "the share in the log": "at most 5%" in folder.log()})


def changed(work, reference):
    """Resumed over data that was prepared from another text."""
    folder = Folder(work, "changed")
    code = common.interrupt(folder.start(), 10, signal.SIGTERM)
    prepare(work / "other", PARAGRAPHS[:-1])
    folder.use_data(work / "other")
    resumed = folder.finish("--resume", "latest")
    return folder.problem("data changed between runs", {
        f"exit codes {STOPPED} and {USAGE}, found {code} and {resumed}": (code, resumed) == (STOPPED, USAGE),
        "the fingerprints named": "trained on other data (fingerprint" in folder.log()})


def replaced(work, reference):
    """A sound shard of another data set under the name of one of this."""
    folder = Folder(work, "replaced")
    data = folder.own_data()
    shutil.copy(data / "train-00003.tok", data / "train-00002.tok")
    code = folder.finish("--num_epochs", "1", "--max_steps", "0")
    return folder.problem("a shard replaced by another", {
        f"exit code {DAMAGED}, found {code}": code == DAMAGED,
        "the shard named": "train-00002.tok is damaged" in folder.log()})


def check_cost(reference):
    """The share of a run's time that the checks took, on a thread of their own."""
    seconds = sum(json.loads(line).get("perf/step_seconds", 0)
                  for line in reference.run_file("metrics.jsonl").splitlines())
    if seconds == 0:
        sys.exit("wanted perf/step_seconds in metrics.jsonl, found none: the cost of the checks cannot be told")
    return reference.receipt()["data"]["train"]["check_seconds"], seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    common.require_files()
    PARAGRAPHS.extend(common.TEXT.read_text().split("\n\n"))
    tried = lost = 0
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        prepare(work / "data", PARAGRAPHS)
        flips, skips = (100, 8) if short else (500, 40)
        for words in (("flips", work / "data", flips), ("skip", work / "data", skips)):
            found = run_tool(*words)
            tried += found["tried"]
            lost += found["tried"] - found.get("found", found.get("survived", 0))
        shutil.copytree(work / "data", work / "forged")
        found = run_tool("vocabulary", work / "forged")
        tried, lost = tried + 1, lost + 1 - found["survived"]
        reference = Folder(work, "reference")
        reference.finish_or_exit()
        cases = (stopped, skipped, changed) if short else (stopped, skipped, too_much, changed, replaced)
        for case in cases:
            problem = case(work, reference)
            tried, lost = tried + 1, lost + bool(problem)
            print(problem or f"{case.__name__}: as wanted", flush=True)
        checks, seconds = check_cost(reference)
    tried += 1
    if checks > MOST_CHECK_SHARE * seconds:
        print(f"the checks took {checks:.4f} s of {seconds:.2f} s, wanted at most {MOST_CHECK_SHARE:.0%}")
        lost += 1
    print(f"tried={tried} survived={tried - lost} lost={lost} flips={flips} skips={skips} runs={len(cases)} "
          f"check_seconds={checks:.4f} run_seconds={seconds:.2f}")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
