"""A run of 3,000 steps for the checks of what sinks write: FP8 with statistics, evaluations, samples; killed in the middle
and resumed from an earlier checkpoint. Its metrics.jsonl says what the values were."""
import json
import math
import os
import pathlib
import signal
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/integration"))
import common  # noqa: E402

STEPS, KILLED_AFTER, RESUMED_FROM = 3000, 1700, 1000
CONFIG = f"""
model_name: custom
n_layer: 1
n_head: 2
n_embd: 32
max_seq_length: 16
batch_size: 2
max_steps: {STEPS}
log_freq: 100
eval_freq: 250
eval_batches: 2
checkpoint_freq: {RESUMED_FROM}
keep_checkpoints: 0
sample_freq: 500
sample_tokens: 8
mixed_precision: fp8
fp8_execution: rehearse
fp8_stats_freq: 100
penalty_weight: 1e-4
use_tensorboard: true
use_wandb: true
wandb_project: tests
wandb_run_name: three thousand
num_threads: 1
run_name: run
"""
# Under another name in metrics.jsonl, or not a metric.
RENAMED = {"epoch": "train/epoch", "tokens": "train/tokens"}
NO_METRIC = ("data/position", "step", "precision", "fp8/tensors")  # of metrics.jsonl alone


def make(work):
    """The run's folder, after the kill and the resume."""
    common.require_files()
    os.environ.pop("WANDB_API_KEY", None)
    work = pathlib.Path(work)
    common.prepare_data(work)
    folder = common.Folder(work / "run", CONFIG, "checkpoints_fp8")
    if common.interrupt(folder.start(), KILLED_AFTER, signal.SIGKILL) != -signal.SIGKILL:
        sys.exit(f"the run ended before it was killed:\n{folder.log()}")
    folder.finish_or_exit("--resume", str(folder.step(RESUMED_FROM)))
    return folder.path / "runs" / "run"


def in_a_scratch_folder(check):
    with tempfile.TemporaryDirectory() as work:
        sys.exit(check(make(work)))


def values(run):
    """{(step, name): value} of metrics.jsonl; None (NaN or infinite there) is left out."""
    found = {}
    for line in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        if "flag" in record:
            continue
        for name, value in record.items():
            if name in NO_METRIC or value is None:
                continue
            key = (record["step"], RENAMED.get(name, name))
            if key in found:
                sys.exit(f"metrics.jsonl has {key} twice")
            found[key] = float(value)
    if {step for step, name in found if name == "train/loss"} != set(range(1, STEPS + 1)):
        sys.exit("metrics.jsonl does not have every step once")
    return found


def tensors(run):
    """{step: the FP8 tensors of its statistics}"""
    records = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return {r["step"]: r["fp8/tensors"] for r in records if "fp8/tensors" in r}


def groups(rows):
    """The numbers of each histogram, by its name."""
    backward = [row for row in rows if row["tensor"] == "gradient"]
    forward = [row for row in rows if row["tensor"] != "gradient"]
    made = {"fp8/fwd_scales": [r["scale"] for r in forward], "fp8/bwd_scales": [r["scale"] for r in backward],
            "fp8/amaxes": [r["amax"] for r in rows]}
    return {name: [x for x in numbers if x is not None] for name, numbers in made.items()}


def octave_counts(numbers, edges):
    """How many numbers lie between each two edges; the last edge belongs to the last bin."""
    return [sum(low <= x < high or (x == high and i == len(edges) - 2) for x in numbers)
            for i, (low, high) in enumerate(zip(edges, edges[1:]))]


def samples(run):
    return {int(path.stem.split("-")[1]): path.read_bytes()[:-1].decode(errors="replace")
            for path in (run / "samples").glob("step-*.txt")}


def differences(found, wanted, same=lambda a, b: a == b or (math.isnan(a) and math.isnan(b))):
    """Lines about what is missing, too much or other."""
    lines = [f"missing: {key}" for key in wanted.keys() - found.keys()]
    lines += [f"not in metrics.jsonl: {key}" for key in found.keys() - wanted.keys()]
    lines += [f"{key}: {found[key]!r}, wanted {wanted[key]!r}"
              for key in wanted.keys() & found.keys() if not same(found[key], wanted[key])]
    return lines
