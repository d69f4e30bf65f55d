#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 gate="--short" night="" measures="src/foreign_logs src/monitor"
"""Logs of other trainers are read back value by value: those that TensorBoard's writer of torch, wandb (offline) and
transformers' Trainer write here themselves, and those of Megatron-LM, torchtitan, nanoGPT, nanochat, llm.c, LLaMA-Factory,
Lightning and W&B's exports, written with the format strings of their sources (foreign_logs_formats.py names them).

--short: without the Trainer and wandb, which take most of the time.
"""
import argparse
import json
import math
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

from foreign_logs_formats import TRANSCRIBED, Run

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release"))
TOOL = BUILD / "bin" / "foreign_logs_tool"
COLUMNS = {"loss": 1, "seconds": 2, "tokens": 3, "rate": 4}
USAGE, DAMAGED = 2, 5


class Tally:
    def __init__(self):
        self.values, self.formats, self.wrong = 0, 0, []


def read(path, *names):
    done = subprocess.run([TOOL, path, *names], capture_output=True, text=True)
    return done.returncode, json.loads(done.stdout) if done.returncode == 0 else done.stderr


def same(found, wanted):
    if wanted is None or (isinstance(wanted, float) and not math.isfinite(wanted)):
        return found is None
    return found == wanted or (found is not None and math.isclose(found, wanted, rel_tol=1e-15))


def check(tally, label, path, wanted, form, names=()):
    """`wanted`: {field: {step: value}}, and `repeated` where steps stand there twice."""
    tally.formats += 1
    code, found = read(path, *names)
    if code != 0:
        tally.wrong.append(f"{label}: exit code {code}: {found}")
        return
    if found["format"] != form:
        tally.wrong.append(f"{label}: taken for {found['format']}, wanted {form}")
    if found["repeated"] != wanted.get("repeated", 0) or found["bad_lines"] != 0:
        tally.wrong.append(f"{label}: repeated={found['repeated']} bad_lines={found['bad_lines']}")
    rows = {"validation": {step: value for step, value in found["evaluations"]}}
    rows |= {field: {row[0]: row[column] for row in found["steps"]} for field, column in COLUMNS.items()}
    for field in ("loss", "validation", *(name for name in COLUMNS if name != "loss" and name in wanted)):
        values = wanted.get(field, {})
        if set(rows[field]) != set(values):
            tally.wrong.append(f"{label}: {len(rows[field])} steps with {field}, wanted {len(values)}")
            continue
        bad = [step for step, value in values.items() if not same(rows[field][step], value)]
        tally.values += len(values)
        tally.wrong += [f"{label}: {field} at step {step}: {rows[field][step]!r}, wanted {values[step]!r}" for step in bad[:3]]


def as_float(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


def transcribed(tally, work, seed):
    made = Run(random.Random(seed))
    for name, write, form, inside in TRANSCRIBED:
        path = work / f"{name}.txt"  # whose name says nothing
        wanted = write(made, path)
        check(tally, name, f"{path}#{inside}" if inside else path, wanted, form)
        text = path.read_text()
        path.write_text(text + text.splitlines()[-1][: 20])  # a line that is being written
        code, found = read(f"{path}#{inside}" if inside else path)
        if code != 0:
            tally.wrong.append(f"{name}: with half a line at its end: {found}")


def tensorboard_logs(tally, work):
    from tensorboard.compat.proto import event_pb2, summary_pb2
    from tensorboard.summary.writer.event_file_writer import EventFileWriter
    from tensorboard.util import tensor_util
    from torch.utils.tensorboard import SummaryWriter
    made = Run(random.Random(7))
    single = {"loss": {s: as_float(v) for s, v in made.loss.items()},
              "validation": {s: as_float(v) for s, v in made.validation.items()}}

    def write(folder, tags, first=0, last=10**9, wrong=0.0, **options):
        with SummaryWriter(folder, **options) as writer:
            for s in made.steps:
                if first <= s <= last:
                    writer.add_scalar(tags[0], made.loss[s] + wrong, s)
                    writer.add_scalar("lr", 1e-3, s)
                    if s in made.validation:
                        writer.add_scalar(tags[1], made.validation[s] + wrong, s)
            writer.add_text("note", "hello", 3)

    for name, tags in (("transformers", ("train/loss", "eval/loss")), ("megatron", ("lm loss", "lm loss validation")),
                       ("torchtitan", ("loss_metrics/global_avg_loss", "validation_metrics/loss"))):
        write(work / f"tb_{name}", tags)
        check(tally, f"tensorboard_{name}", work / f"tb_{name}", single, "TensorBoard event files")
    # Killed at 250 and resumed from 200: what the first session wrote of later steps does not count.
    write(work / "tb_resumed", ("train/loss", "eval/loss"), last=200)
    write(work / "tb_resumed", ("train/loss", "eval/loss"), first=201, last=250, wrong=1.0, filename_suffix=".b")
    write(work / "tb_resumed", ("train/loss", "eval/loss"), first=201, purge_step=201, filename_suffix=".c")
    check(tally, "tensorboard_resumed", work / "tb_resumed", single, "TensorBoard event files")
    # Scalars as tensors: torch's new style in FP64, and TensorFlow 2's bytes.
    with SummaryWriter(work / "tb_new") as writer:
        for s in made.steps:
            writer.add_scalar("my own", made.loss[s], s, new_style=True, double_precision=True)
    check(tally, "tensorboard_tensors", work / "tb_new", {"loss": made.loss}, "TensorBoard event files", ["my own"])
    writer = EventFileWriter(str(work / "tb_tf2"))
    for s in made.steps:
        tensor = tensor_util.make_tensor_proto(made.loss[s], dtype="float32")
        value = summary_pb2.Summary.Value(tag="loss", tensor=tensor)
        writer.add_event(event_pb2.Event(wall_time=1e9 + s, step=s, summary=summary_pb2.Summary(value=[value])))
    writer.close()
    check(tally, "tensorboard_tf2", work / "tb_tf2", {"loss": single["loss"]}, "TensorBoard event files")


def wandb_logs(tally, work):
    import wandb
    made = Run(random.Random(11))
    folder = work / "wandb_script"
    folder.mkdir()
    with wandb.init(mode="offline", dir=str(folder), project="p") as run:
        for s in made.steps:
            row = {"iter": s, "train/loss": made.loss[s], "lr": 1e-3, "note": "text"}
            run.log(row | ({"val/loss": made.validation[s]} if s in made.validation else {}))
    check(tally, "wandb_offline", folder, {"loss": made.loss, "validation": made.validation}, "W&B offline files")
    folder = work / "wandb_steps"
    folder.mkdir()
    with wandb.init(mode="offline", dir=str(folder), project="p") as run:
        for s in made.steps:  # the step of the call is the step; nested values are joined by points
            run.log({"train": {"loss": made.loss[s]}}, step=s)
    check(tally, "wandb_steps", next(folder.rglob("run-*.wandb")), {"loss": made.loss}, "W&B offline files", ["train.loss"])


def trainer_logs(tally, work):
    """A tiny GPT-2, trained here; what its state says is what every log must have."""
    sys.modules["transformer_engine"] = None  # peft would import it, and this one needs its other half
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, PrinterCallback, Trainer, TrainingArguments
    torch.manual_seed(0)
    torch.set_num_threads(2)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=16, n_embd=16, n_layer=1, n_head=2))
    rows = [{"input_ids": ids, "labels": ids} for ids in torch.randint(0, 64, (64, 16))]
    arguments = TrainingArguments(
        output_dir=str(work / "hf"), max_steps=120, per_device_train_batch_size=4, logging_steps=1, eval_strategy="steps", eval_steps=10,
        save_steps=60, report_to=["tensorboard", "wandb"], include_num_input_tokens_seen=True, use_cpu=True, disable_tqdm=True,
        logging_nan_inf_filter=False)
    trainer = Trainer(model=model, args=arguments, train_dataset=rows, eval_dataset=rows[:8])
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    trainer.save_state()
    import wandb
    wandb.finish()
    history = trainer.state.log_history
    wanted = {"loss": {row["step"]: row["loss"] for row in history if "loss" in row},
              "validation": {row["step"]: row["eval_loss"] for row in history if "eval_loss" in row},
              "tokens": {row["step"]: row["num_input_tokens_seen"] for row in history if "loss" in row}}
    if len(wanted["loss"]) != 120 or len(wanted["validation"]) != 12:
        tally.wrong.append(f"the Trainer logged {len(wanted['loss'])} losses and {len(wanted['validation'])} evaluations")
    check(tally, "trainer_state", work / "hf" / "trainer_state.json", wanted, "transformers' trainer_state.json")
    half = {field: {s: v for s, v in values.items() if s <= 60} for field, values in wanted.items()}
    check(tally, "trainer_checkpoint", work / "hf" / "checkpoint-60", half, "transformers' trainer_state.json")
    single = {field: {s: as_float(v) for s, v in values.items()} for field, values in wanted.items()}
    events = next((work / "hf").rglob("*.tfevents.*"))
    check(tally, "trainer_tensorboard", events, single, "TensorBoard event files")
    check(tally, "trainer_wandb", next((work / "wandb").rglob("run-*.wandb")), wanted, "W&B offline files")


def refused(tally, work):
    """Neither a log nor a crash."""
    for name, content in (("empty", b""), ("text", b"hello\n" * 100), ("zeros", bytes(4096)), ("json", b'{"a": [1, 2]}\n'),
                          ("random", random.Random(3).randbytes(10000)), ("table", b"a,b\n1,2\n")):
        (work / name).write_bytes(content)
        code, said = read(work / name)
        if code not in (USAGE, DAMAGED) or not said:
            tally.wrong.append(f"{name}: exit code {code}: {said}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--short", action="store_true")
    options = parser.parse_args()
    tally = Tally()
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        os.environ.update({"WANDB_MODE": "offline", "WANDB_DIR": str(work), "WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false"})
        os.environ.update({f"WANDB_{part}_DIR": str(work / part.lower()) for part in ("CACHE", "CONFIG", "DATA")})
        for seed in (1, 2):
            transcribed(tally, work, seed)
        tally.formats = len(TRANSCRIBED)
        refused(tally, work)
        tensorboard_logs(tally, work)
        if not options.short:
            wandb_logs(tally, work)
            trainer_logs(tally, work)
    for line in tally.wrong[:20]:
        print(line[:1000])
    print(f"values={tally.values} formats={tally.formats} wrong={len(tally.wrong)}")
    return 1 if tally.wrong or tally.values < 5000 else 0


if __name__ == "__main__":
    sys.exit(main())
