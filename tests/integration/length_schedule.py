#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate="" measures="src/data src/train src/config"
"""Shorter sequences in a part of a run (length_schedule), through the program itself, on real text.

Oracle: unshuffled, samples of 128 tokens that are cut into sequences of 32 are the tokens of samples of 32 in batches four times as
large, so the losses must be those of a run at max_seq_length 32; the model is Llama, whose positions have no weights. Then: two
stages, the second of which must be at 128; the same run stopped and resumed, and on two ranks; sequence_length in metrics, and what
cannot be meant refused.

Last line: runs=N worst=X failed=0    worst: the largest relative difference of a loss from the oracle's
"""
import json
import pathlib
import subprocess
import sys
import tempfile

from common import OCTAVO, prepare_data, require_files

LIMIT = 2e-5  # FP32; sums are in another order
STEPS = 12
MODEL = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "intermediate_size": 64,
         "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 128, "vocab_size": 264,
         "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "hidden_act": "silu"}
BASE = """model_name: ../model
tokenizer: bytes
warmup_steps: 0
learning_rate: 0.01
keep_checkpoints: 10
eval_freq: 0
mixed_precision: fp32
num_threads: 1
device: cpu
shuffle: false
dataset: ../data
"""


class Runs:
    def __init__(self, work):
        self.work, self.count, self.failed = work, 0, []

    def train(self, name, *flags, ranks=1, code=0):
        """The records of a run, and its log."""
        self.count += 1
        folder = self.work / name
        folder.mkdir(exist_ok=True)
        (folder / "train.yaml").write_text(BASE)
        launch = ["launch", "--nproc", str(ranks), "--"] if ranks > 1 else []
        done = subprocess.run([OCTAVO, *launch, "train", "train.yaml", "--run_name", "run", *map(str, flags)], cwd=folder, text=True,
                              capture_output=True, timeout=300, check=False)
        self.check(f"{name} ends with {code}", done.returncode == code, done.stderr[-1500:])
        path = folder / "runs" / "run" / "metrics.jsonl"
        records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [record for record in records if "train/loss" in record], done.stderr

    def check(self, what, good, shown=""):
        print(f"{'ok' if good else 'FAILED'}: {what}", flush=True)
        if not good:
            self.failed.append(f"wanted {what}; found {shown}")


def losses(records):
    return [record["train/loss"] for record in records]


def worst_of(found, wanted):
    if len(found) != len(wanted) or not found:
        return 1.0
    return max(abs(a - b) / b for a, b in zip(found, wanted))


def main():
    require_files()
    with tempfile.TemporaryDirectory() as place:
        work = pathlib.Path(place)
        prepare_data(work)
        (work / "model").mkdir()
        (work / "model" / "config.json").write_text(json.dumps(MODEL))
        runs = Runs(work)
        short, _ = runs.train("short", "--max_seq_length", 32, "--batch_size", 8, "--max_steps", STEPS)
        whole, _ = runs.train("whole", "--max_seq_length", 128, "--batch_size", 2, "--max_steps", STEPS)
        stage = ("--max_seq_length", 128, "--batch_size", 2, "--max_steps", STEPS)
        cut, _ = runs.train("cut", *stage, "--length_schedule", "0 32")
        worst = worst_of(losses(cut), losses(short))
        runs.check("samples cut into 32 tokens have the losses of samples of 32", worst <= LIMIT, worst)
        runs.check("it is another run than at 128 tokens", worst_of(losses(cut), losses(whole)) > 10 * LIMIT)

        two = ("--length_schedule", "0 32,0.5 128", "--checkpoint_freq", 3)
        stages, log = runs.train("stages", *stage, *two)
        half = STEPS // 2
        runs.check("the first half is as at 32 tokens", losses(stages)[:half] == losses(cut)[:half])
        runs.check("then another", worst_of(losses(stages), losses(cut)) > 10 * LIMIT)
        lengths = [record["train/sequence_length"] for record in stages]
        runs.check("metrics have each step's length", lengths == [32] * half + [128] * half, lengths)
        runs.check("stages are announced", f"32 tokens from step 1 on, 128 tokens from step {half + 1} on" in log, log[-800:])
        runs.check("and said when one begins", f"sequences of 128 tokens from step {half + 1} on, 32 before" in log, log[-800:])

        for step in (3, 6, 9):
            name = f"resumed{step}"
            runs.train(name, *stage, *two)
            resumed, _ = runs.train(name, *stage, *two, "--resume", f"checkpoints/run/step-{step:08d}")
            by_step = {record["step"]: record["train/loss"] for record in resumed}
            runs.check(f"resumed at step {step} it is the same run", [by_step[i + 1] for i in range(STEPS)] == losses(stages), by_step)
        ranks, _ = runs.train("ranks", *stage[:3], 1, *stage[4:], *two, ranks=2)
        difference = worst_of(losses(ranks), losses(stages))
        runs.check("two ranks have the same losses", difference <= LIMIT, difference)

        _, log = runs.train("uneven", *stage, "--length_schedule", "0 48", code=2)
        runs.check("a length that does not divide is refused with one that does", "divide max_seq_length 128" in log and "give 64" in log, log)
        (work / "rows.jsonl").write_text('{"prompt": "a", "response": "b"}\n' * 200)
        _, log = runs.train("packed", *stage, "--dataset", "../rows.jsonl", "--chat_template", "none", "--length_schedule", "0 32", code=2)
        runs.check("packed rows are refused", "packed whole; leave it out" in log, log)
        for line in runs.failed:
            print(f"failed: {line}")
        print(f"runs={runs.count} worst={worst:.1e} failed={len(runs.failed)}")
        sys.exit(1 if runs.failed else 0)


if __name__ == "__main__":
    main()
