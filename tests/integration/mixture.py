#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=900 gate=""
"""Mixtures of two sources of real text, through the program itself: the same order for 1 and 2 ranks, stopped and resumed, from a
file and from flags; shares within one sample of their weights after every sample; each source exactly once an epoch; a source that
is used up leaves; weights that change on the way; loss, tokens and epochs of each source in metrics; and what cannot be meant is
refused with a message that says what to type.

Samples are those that record_samples writes into metrics.jsonl, from the batches that were trained on. Shares, counts and epochs
are counted here from these numbers, not taken from the program. Losses are compared with transformers (mixture_losses.py).

Last line: checks=N failed=0 source_losses=N worst=N    worst: the largest relative difference of a source's loss from transformers'
"""
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile

from common import DATA, OCTAVO, ROOT, STOPPED, TEXT, page_commands, require_files, wait_for_step
from mixture_losses import SUM_LIMIT, check_losses, weighted_off

USAGE = 2
LENGTH = 32
BASE = f"""model_name: custom
n_layer: 1
n_head: 1
n_embd: 16
max_seq_length: {LENGTH}
max_steps: 40
batch_size: 6
warmup_steps: 0
eval_freq: 0
checkpoint_freq: 10
mixed_precision: fp32
num_threads: 1
device: cpu
record_samples: true
data_cache: ../cache
"""
MIXTURE = """dataset:
  - {path: ../plays.txt, weight: 0.7}
  - path: ../wiki.txt
    weight: 0.3
    max_epochs: 2
"""


class Checks:
    def __init__(self):
        self.done, self.failed = 0, []

    def that(self, what, good, shown=""):
        self.done += 1
        print(f"{'ok' if good else 'FAILED'}: {what}", flush=True)
        if not good:
            self.failed.append(f"wanted {what}; found {str(shown)[-800:]}")


def words_of(words, ranks):
    return [str(OCTAVO), *(["launch", "--nproc", str(ranks), "--"] if ranks > 1 else []), *map(str, words)]


ENVIRONMENT = os.environ | {"OMP_WAIT_POLICY": "passive", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


class Place:
    """The folder of one run, which is called `run`."""

    def __init__(self, work, name, config):
        self.path = work / name
        self.path.mkdir()
        (self.path / "train.yaml").write_text(config)
        self.log = ""

    def octavo(self, *words, ranks=1):
        done = subprocess.run(words_of(words, ranks), cwd=self.path, text=True, capture_output=True, timeout=300, env=ENVIRONMENT)
        self.log += done.stdout + done.stderr
        return done

    def train(self, *flags, ranks=1):
        return self.octavo("train", "train.yaml", "--run_name", "run", *flags, ranks=ranks)

    def stopped(self, step, *flags, ranks=1):
        """Its exit code when it was asked to stop at that step."""
        process = subprocess.Popen(words_of(["train", "train.yaml", "--run_name", "run", *flags], ranks), cwd=self.path, env=ENVIRONMENT,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        wait_for_step(process, step)
        process.send_signal(signal.SIGTERM)
        process.communicate()
        return process.returncode

    def records(self):
        lines = (self.path / "runs" / "run" / "metrics.jsonl").read_text().splitlines()
        return [record for record in map(json.loads, lines) if "data/samples" in record]

    def samples(self):
        return [sample for record in self.records() for sample in record["data/samples"]]

    def receipt(self):
        return json.loads((self.path / "runs" / "run" / "receipt.json").read_text())


def split_samples(samples, first):
    """Of each source, in the order in which they came; `first`: samples of the first source."""
    return [s for s in samples if s < first], [s for s in samples if s >= first]


def once_an_epoch(samples, size):
    epochs = [samples[i:i + size] for i in range(0, len(samples), size)]
    return all(len(set(epoch)) == len(epoch) for epoch in epochs)


def worst_share(samples, first, weight):
    """How far the first source is from its share, in samples, after the worst of all beginnings."""
    taken, worst = 0, 0.0
    for count, sample in enumerate(samples, 1):
        taken += sample < first
        worst = max(worst, abs(taken - count * weight))
    return worst


def check_order(work, checks):
    whole = Place(work, "whole", MIXTURE + BASE)
    done = whole.train()
    checks.that("a mixture trains", done.returncode == 0, done.stderr)
    if done.returncode != 0:
        return None
    samples = whole.samples()
    sources = whole.receipt()["data"]["sources"]
    sizes = [source["samples_per_epoch"] for source in sources]
    first, second = split_samples(samples, sizes[0])
    checks.that("40 steps of 6 samples are recorded", len(samples) == 240, len(samples))
    leaves = 2 * sizes[1]
    end = next(i for i, count in enumerate(counts_of(samples, sizes[0])) if count == leaves)
    checks.that("until a source leaves, shares are within one sample of 0.7 and 0.3 after every sample",
                worst_share(samples[:end], sizes[0], 0.7) < 1, worst_share(samples[:end], sizes[0], 0.7))
    checks.that("the second source has its two epochs and no more", len(second) == leaves and max(samples[end:]) < sizes[0], len(second))
    checks.that("each source has each sample once an epoch", once_an_epoch(first, sizes[0]) and once_an_epoch(second, sizes[1]))
    checks.that("the sources are shuffled, each epoch anew", second[:sizes[1]] != sorted(second[:sizes[1]]) and
                second[:sizes[1]] != second[sizes[1]:2 * sizes[1]], second)
    checks.that("a line says who leaves, and when", f"after sample {end} wiki leaves, used up after 2 epochs" in done.stderr and
                "plays 100%" in done.stderr, done.stderr)
    last = whole.records()[-1]
    checks.that("metrics have tokens and epochs of each source",
                (last["data/plays/tokens"], last["data/wiki/tokens"]) == (len(first) * LENGTH, len(second) * LENGTH) and
                last["data/wiki/epochs"] == 2 and abs(last["data/plays/epochs"] - len(first) / sizes[0]) < 1e-9, last)
    off, wrong = weighted_off(whole.records(), ("plays", "wiki"))
    checks.that("the sources' losses, weighted by their tokens, are train/loss in every step", off <= SUM_LIMIT, off)
    checks.that("a source has a loss in the steps in which it has samples, and in no other", wrong == 0 and
                "data/wiki/loss" not in last and "data/wiki/loss" in whole.records()[0], (wrong, last))
    checks.that("the receipt has them too", [s["samples"] for s in sources] == [len(first), len(second)] and
                [s["tokens"] for s in sources] == [len(first) * LENGTH, len(second) * LENGTH], sources)
    return whole, samples, sizes


def counts_of(samples, first):
    """Of the second source, before each sample and after the last."""
    counts = [0]
    for sample in samples:
        counts.append(counts[-1] + (sample >= first))
    return counts


def losses_of(record):
    return {name: value for name, value in record.items() if name.endswith("/loss")}


def check_same_order(work, checks, whole, samples):
    flags = Place(work, "flags", BASE)
    done = flags.train("--dataset", "../plays.txt,../wiki.txt", "--dataset_weights", "0.7,0.3", "--dataset_max_epochs", "0,2")
    checks.that("flags give the order of the file", done.returncode == 0 and flags.samples() == samples, done.stderr)
    losses = [losses_of(record) for record in whole.records()]
    for ranks in (1, 2):
        place = Place(work, f"resumed-{ranks}", MIXTURE + BASE)
        size = ["--batch_size", 6 // ranks]
        codes = [place.stopped(7, *size, ranks=ranks), place.stopped(19, *size, "--resume", "latest", ranks=ranks)]
        done = place.train(*size, "--resume", "latest", ranks=ranks)
        found = place.samples()
        checks.that(f"{ranks} rank(s), stopped twice and resumed: the same order", codes == [STOPPED, STOPPED] and
                    done.returncode == 0 and found == samples, (codes, done.stderr, len(found)))
        if ranks == 1:
            checks.that("and the same losses, bit for bit", [losses_of(record) for record in place.records()] == losses)
        else:
            first, wanted = losses_of(place.records()[0]), losses[0]
            checks.that("and the same losses of all sources in the first step", len(wanted) == 3 and first.keys() == wanted.keys() and
                        all(abs(first[name] / wanted[name] - 1) < 1e-6 for name in wanted), (first, wanted))
    other = Place(work, "other-ranks", MIXTURE + BASE)
    code = other.stopped(11)
    done = other.train("--batch_size", "3", "--resume", "latest", ranks=2)
    checks.that("begun on 1 rank and resumed on 2: the same order", code == STOPPED and other.samples() == samples, done.stderr)
    receipt = other.receipt()["data"]["sources"]
    checks.that("the receipt after a resume counts from the beginning", [s["samples"] for s in receipt] ==
                [s["samples"] for s in whole.receipt()["data"]["sources"]], receipt)


def check_changes(work, checks, sizes):
    """Weights that change: as scheduled, and at a resume."""
    place = Place(work, "schedule", MIXTURE.replace("    max_epochs: 2\n", "") + BASE + "mixture_schedule: [0.5 0 1, 0.75 1 1]\n")
    done = place.train()
    parts = [place.samples()[a:b] for a, b in ((0, 120), (120, 180), (180, 240))] if done.returncode == 0 else [[]] * 3
    checks.that("mixture_schedule: other weights from half of the run on, and from three quarters on", done.returncode == 0 and
                all(worst_share(part, sizes[0], weight) < 1 for part, weight in zip(parts, (0.7, 0, 0.5))), done.stderr)
    checks.that("and a line says it", "after sample 120 the weights change; from there wiki 100%" in done.stderr, done.stderr)
    stopped = Place(work, "schedule-resumed", (place.path / "train.yaml").read_text())
    code = stopped.stopped(25)
    stopped.train("--resume", "latest")
    checks.that("a resume after a change: the same order", code == STOPPED and stopped.samples() == place.samples(), code)

    place = Place(work, "reweighted", MIXTURE + BASE)
    code = place.stopped(5)
    before = len(place.samples())
    done = place.train("--dataset_weights", "0.2,0.8", "--dataset_max_epochs", "0,0", "--resume", "latest")
    samples = place.samples()
    first, second = split_samples(samples, sizes[0])
    checks.that("other weights at a resume hold from there on, with a warning", code == STOPPED and done.returncode == 0 and
                f"they hold from sample {before} on" in done.stderr and worst_share(samples[before:], sizes[0], 0.2) < 1 and
                worst_share(samples[:before], sizes[0], 0.7) < 1, done.stderr)
    checks.that("and each source goes on in its own order", once_an_epoch(first, sizes[0]) and once_an_epoch(second, sizes[1]))


def check_ends(work, checks, sizes):
    """How long a mixture may be."""
    entries = "dataset: [{path: ../plays.txt, weight: 1, max_epochs: 1}, {path: ../wiki.txt, weight: 1, max_epochs: 3}]\n"
    place = Place(work, "ends", entries + BASE.replace("max_steps: 40\n", "") + "val_fraction: 0.1\n")
    done = place.train("--batch_size", "64", "--checkpoint_freq", "0")
    samples = place.samples() if done.returncode == 0 else []
    checks.that("without max_steps it ends when every source is used up", len(samples) == sizes[0] + 3 * sizes[1] and
                len(set(samples)) == sum(sizes), (len(samples), sizes, done.stderr))
    done = place.train("--max_steps", "100000", "--overwrite")
    checks.that("max_steps beyond that is refused, with what to type", done.returncode == USAGE and
                f"give max_steps {(sizes[0] + 3 * sizes[1]) // 6}" in done.stderr, done.stderr)
    place = Place(work, "by-size", "dataset: [{path: ../plays.txt}, {path: ../wiki.txt, max_epochs: 1}]\n" + BASE)
    done = place.train()
    share = sizes[0] / sum(sizes)
    checks.that("without weights, max_epochs alone: shares by size", done.returncode == 0 and
                worst_share(place.samples(), sizes[0], share) < 1, done.stderr)


def check_refusals(work, checks):
    place = Place(work, "refused", BASE)
    good = "{path: ../plays.txt, weight: 1}"
    two = "dataset: [{path: ../plays.txt, weight: 1}, {path: ../wiki.txt, weight: 1}]\n"
    for name, text, wanted in (
            ("weight 0", f"dataset: [{good}, {{path: ../wiki.txt, weight: 0}}]", ("weight above 0", "leave the entry out")),
            ("a negative weight", f"dataset: [{good}, {{path: ../wiki.txt, weight: -1}}]", ("entry 2", "weight: 0.7")),
            ("NaN", f"dataset: [{good}, {{path: ../wiki.txt, weight: .nan}}]", ("entry 2", ".nan", "weight: 0.7")),
            ("nan", f"dataset: [{good}, {{path: ../wiki.txt, weight: nan}}]", ("entry 2", "weight: 0.7")),
            ("infinity", f"dataset: [{good}, {{path: ../wiki.txt, weight: inf}}]", ("entry 2", "weight: 0.7")),
            ("a word as weight", f"dataset: [{good}, {{path: ../wiki.txt, weight: much}}]", ("much", "weight: 0.7")),
            ("a weight below a millionth", f"dataset: [{good}, {{path: ../wiki.txt, weight: 1e-9}}]", ("millionth", "raise it")),
            ("an empty list", "dataset: []", ("no data given", "--dataset")),
            ("an empty mapping", "dataset: [{}]", ("wanted a path", "{path: FOLDER")),
            ("an entry without a path", "dataset: [{weight: 1}]", ("wanted a path", "{path: FOLDER")),
            ("an unknown field", f"dataset: [{good}, {{path: ../wiki.txt, wieght: 1}}]", ("wieght", "path, weight and max_epochs")),
            ("a field twice", "dataset: [{path: a, path: b, weight: 1}]", ("path twice",)),
            ("a mapping in a mapping", "dataset: [{path: {a: b}, weight: 1}]", ("mapping",)),
            ("a list as path", "dataset: [{path: [a], weight: 1}]", ("list",)),
            ("the same path twice", f"dataset: [{good}, {{path: .././plays.txt, weight: 2}}]", ("twice", "sum of their weights")),
            ("one weight of two", f"dataset: [{good}, ../wiki.txt]", ("entry 2", "{path: ../wiki.txt, weight: 0.3}")),
            ("max_epochs -1", "dataset: [{path: ../plays.txt, weight: 1, max_epochs: -1}]", ("max_epochs: 4",)),
            ("max_epochs 1.5", "dataset: [{path: ../plays.txt, weight: 1, max_epochs: 1.5}]", ("max_epochs: 4",)),
            ("a mapping for another key", "lora_target_modules: [{path: a}]\ndataset: ../plays.txt", ("a mapping in the list",)),
            ("weights without as many entries", "dataset: ../plays.txt\ndataset_weights: [1, 2]", ("each of the 1 entries", "found 2")),
            ("weights twice", f"dataset: [{good}]\ndataset_weights: [1]", ("once", "twice")),
            ("num_epochs", two + "num_epochs: 2\nmax_steps: 0", ("max_steps", "max_epochs")),
            ("no length", two + "max_steps: 0", ("give max_steps",)),
            ("a schedule without weights", "dataset: ../plays.txt\nmixture_schedule: [0.5 1]", ("mixture_schedule", "a weight")),
            ("a schedule of too few weights", two + "mixture_schedule: [0.5 1]", ("2 weights",)),
            ("a schedule beyond the run", two + "mixture_schedule: [1.5 1 1]", ("0.9 0.2 0.8",)),
            ("a schedule that goes back", two + "mixture_schedule: [0.5 1 1, 0.4 1 1]", ("ascending",)),
            ("a schedule of no weight at all", two + "mixture_schedule: [0.5 0 0]", ("weight above 0",))):
        config = BASE if "max_steps" not in text else BASE.replace("max_steps: 40\n", "")
        (place.path / "train.yaml").write_text(text + "\n" + config)
        done = place.train()
        checks.that(f"{name}: exit code 2 and what to type", done.returncode == USAGE and all(word in done.stderr for word in wanted),
                    (done.returncode, done.stderr))
    (place.path / "train.yaml").write_text(BASE)
    for weights in ("0.7,-1", "0.7,nan", "0.7", "0.7,"):
        done = place.train("--dataset", "../plays.txt,../wiki.txt", "--dataset_weights", weights)
        checks.that(f"--dataset_weights {weights}: exit code 2", done.returncode == USAGE and "dataset_weights" in done.stderr, done.stderr)
    (place.path / "other.txt").write_text("too short")
    done = place.train("--dataset", "../plays.txt,other.txt", "--dataset_weights", "1,1")
    checks.that("a source of less than one sample: exit code 2, which one and what to do", done.returncode == USAGE and
                "other.txt" in done.stderr and "leave it out of the mixture" in done.stderr, done.stderr)


def check_commands(work, checks):
    """Other commands take the same file, or say why not."""
    place = Place(work, "commands", MIXTURE + BASE)
    for words in (("config", "show", "train.yaml"), ("config", "check", "train.yaml"), ("plan", "train.yaml"),
                  ("plan", "train.yaml", "--dry_run", "--device", "cuda"), ("verify", "train.yaml", "--before_long_run")):
        done = place.octavo(*words)
        good = done.returncode == 0 or (words[0] == "verify" and "mixture" not in done.stderr and done.returncode != USAGE)
        checks.that(f"octavo {' '.join(words)} takes a mixture", good, (done.returncode, done.stdout[-600:], done.stderr))
    shown = place.octavo("config", "show", "train.yaml").stdout
    checks.that("config show prints the weights and where they came from",
                re.search(r"dataset_weights: +\[0\.7, 0\.3\] +# train.yaml:1", shown) is not None, shown[:2500])
    done = place.octavo("data", "prepare", "train.yaml", "--output", "made")
    checks.that("data prepare says what to do instead", done.returncode == USAGE and
                "octavo data prepare ../plays.txt --output FOLDER" in done.stderr, done.stderr)
    # Prepared folders and text side by side, and an evaluation over both.
    done = place.octavo("data", "prepare", "../wiki.txt", "--tokenizer", "bytes", "--output", "prepared")
    done = place.train("--dataset", "../plays.txt,prepared", "--dataset_weights", "0.7,0.3", "--max_steps", "4", "--eval_freq", "2")
    checks.that("a prepared folder beside a text, with evaluations", done.returncode == 0 and "val/loss" in
                (place.path / "runs" / "run" / "metrics.jsonl").read_text(), done.stderr)
    for second, said in (("../plays.txt", "prepared is prepared"), ("./prepared/../prepared", "are prepared")):
        for more in ((), ("--tokenizer", "bytes")):
            refused = place.octavo("train", "train.yaml", "--dataset", f"prepared,{second}", "--max_steps", "4", "--run_name", "list", *more)
            checks.that(f"a prepared folder and {second} without weights: exit code 2 and what to give", refused.returncode == USAGE and
                        f"{said}; give dataset_weights" in refused.stderr, refused.stderr)
    done = place.octavo("eval", "--checkpoint", "latest", "--dataset", "../plays.txt,prepared", "--dataset_weights", "1,1",
                        "--max_seq_length", LENGTH, "--eval_limit", "4")
    checks.that("eval takes a mixture", done.returncode == 0, done.stderr)
    # A flag for other data leaves the file's weights behind; several paths without weights are one data set, as before.
    plain = Place(work, "plain", MIXTURE + BASE)
    done = plain.train("--dataset", "../plays.txt,../wiki.txt", "--max_steps", "2")
    checks.that("several paths without weights are one data set, and the file's weights are left out with a line", done.returncode == 0 and
                "dataset_weights of train.yaml:1: left out" in done.stderr and "mixture:" not in done.stderr and
                "sources" not in plain.receipt()["data"], done.stderr)


def check_page(work, checks):
    """The commands of docs/how-to/mixtures.md, on the file that it shows."""
    page = (ROOT / "docs" / "how-to" / "mixtures.md").read_text()
    place = Place(work, "page", BASE)
    (place.path / "mix.yaml").write_text(re.search(r"<!-- file: mix.yaml -->\n```yaml\n(.*?)```", page, re.S)[1])
    for name in ("plays.txt", "wiki.txt"):
        (place.path / name).write_text((work / name).read_text())
    orders = []
    for command in page_commands("how-to/mixtures.md", "mixture"):
        words = shlex.split(command)
        done = place.octavo(*words[1:], "--record_samples", "--num_threads", "1")
        checks.that(f"the page's {' '.join(words[:5])} …", done.returncode == 0, done.stderr)
        records = (place.path / "runs" / words[words.index("--run_name") + 1] / "metrics.jsonl").read_text().splitlines()
        orders.append([json.loads(line).get("data/samples") for line in records])
    checks.that("both commands of the page train on the same samples", len(orders) == 2 and orders[0] == orders[1])


def main():
    require_files()
    checks = Checks()
    compared, worst = 0, 0.0
    with tempfile.TemporaryDirectory(prefix="octavo-mixture-") as folder:
        work = pathlib.Path(folder)
        # Plays, and articles: two sources of real text.
        (work / "plays.txt").write_text(TEXT.read_text()[:40_000])
        (work / "wiki.txt").write_text((DATA / "data" / "text" / "wiki_demo.txt").read_text()[:1000])
        found = check_order(work, checks)
        if found is not None:
            whole, samples, sizes = found
            check_same_order(work, checks, whole, samples)
            check_changes(work, checks, sizes)
            check_ends(work, checks, sizes)
            check_commands(work, checks)
            compared, worst = check_losses(work, checks, Place)
        check_page(work, checks)
        check_refusals(work, checks)
    print(*checks.failed, sep="\n")
    print(f"checks={checks.done} failed={len(checks.failed)} source_losses={compared} worst={worst:.1e}")
    return 1 if checks.failed or checks.done < 97 or compared < 100 else 0


if __name__ == "__main__":
    sys.exit(main())
