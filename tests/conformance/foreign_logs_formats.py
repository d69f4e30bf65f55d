"""What other trainers print and write, transcribed from their sources, of a run that the test makes up.

Each function gets a run, writes a log as that trainer would, and returns {field: {step: value}} with the values as the log has
them (a trainer that prints four digits is read back with four). Fields: loss, validation, seconds, tokens, rate. The format
strings are those of these files, as they are in the public repositories:

  NVIDIA/Megatron-LM   megatron/training/training.py: training_log, evaluate_and_print_results
  pytorch/torchtitan   torchtitan/components/metrics.py: MetricsProcessor.log, log_validation; tools/logging.py for the prefix
  karpathy/nanoGPT     train.py
  karpathy/nanochat    scripts/base_train.py
  karpathy/llm.c       train_gpt2.cu (screen), llmc/logger.h (main.log), train_gpt2.c (CPU)
  hiyouga/LLaMA-Factory  src/llamafactory/train/callbacks.py: LogCallback.on_log
  Lightning-AI/pytorch-lightning  src/lightning/fabric/loggers/csv_logs.py: metrics.csv
  W&B                  export of a chart: "Step","RUN - NAME","RUN - NAME__MIN","RUN - NAME__MAX"
"""
import csv
import json
import math


class Run:
    """Losses at every step, evaluations at some, times and tokens."""

    def __init__(self, random, steps=400, step_tokens=8192, first=1):
        self.steps = range(first, first + steps)
        self.step_tokens = step_tokens
        self.loss = {s: 2 + 8 * math.exp(-s / 60) + random.gauss(0, 0.05) for s in self.steps}
        self.validation = {s: self.loss[s] + random.gauss(0.1, 0.01) for s in self.steps if s % 25 == 0}
        self.seconds = {s: random.uniform(0.1, 0.2) for s in self.steps}
        self.lost = [first + 7]  # not finite
        for s in self.lost:
            self.loss[s] = math.nan

    def rate(self, step):
        return self.step_tokens / self.seconds[step]


def as_printed(form, value):
    return float(form.format(value).replace(",", ""))


def megatron(run, path, old=False):
    lines = ["using world size: 8, data-parallel size: 8", "training ..."]
    read = {"loss": {}, "validation": {}, "seconds": {}}
    for s in run.steps:
        line = "" if old else " [2025-08-01 07:19:50.123456]"
        line += " iteration {:8d}/{:8d} |".format(s, len(run.steps))
        line += " consumed samples: {:12d} |".format(s * 128)
        line += " elapsed time per iteration (ms): {:.1f} |".format(run.seconds[s] * 1000)
        if not old:
            line += f" throughput per GPU (TFLOP/s/GPU): {80.25:.1f} |"
        line += (" learning rate: {:.3E} |" if old else " learning rate: {:.6E} |").format(3e-4)
        line += " global batch size: {:5d} |".format(128)
        lost = math.isnan(run.loss[s])
        if run.loss[s] > 0.0:  # which NaN is not
            line += " {}: {:.6E} |".format("lm loss", run.loss[s])
        line += " loss scale: {:.1f} |".format(1.0)
        line += " grad norm: {:.3f} |".format(1.25)
        line += " number of skipped iterations: {:3d} |".format(0)
        line += " number of nan iterations: {:3d} |".format(int(lost))
        lines.append(line)
        read["loss"][s] = math.nan if lost else as_printed("{:.6E}", run.loss[s])
        read["seconds"][s] = as_printed("{:.1f}", run.seconds[s] * 1000) * 1e-3
        if s in run.validation:
            where = f"iteration {s}" if old else f"iteration {s} on validation set"
            text = " validation loss at {} | ".format(where)
            text += "{} value: {:.6E} | ".format("lm loss", run.validation[s])
            text += "{} PPL: {:.6E} | ".format("lm loss", math.exp(min(20, run.validation[s])))
            lines += ["-" * (len(text) + 1), text, "-" * (len(text) + 1)]
            read["validation"][s] = as_printed("{:.6E}", run.validation[s])
    lines.append(f" validation loss at iteration {run.steps[-1]} on test set | lm loss value: 9.900000E+00 | lm loss PPL: 1E+4 | ")
    path.write_text("\n".join(lines) + "\n")
    return read


def torchtitan(run, path, colors=False, ranks=1):
    red, green, orange, turquoise, blue, cyan, magenta, yellow, reset = (
        ("\033[31m", "\033[32m", "\033[38;2;180;60;0m", "\033[38;2;54;234;195m", "\033[34m", "\033[36m", "\033[35m", "\033[33m",
         "\033[39m") if colors else ("",) * 9)
    lines, read = [], {"loss": {}, "validation": {}, "rate": {}}
    for s in run.steps:
        tps = run.rate(s) / 8
        text = (f"{red}step: {s:2}  {green}loss: {run.loss[s]:7.4f}  {orange}grad_norm: {1.5:7.4f}  {turquoise}memory: {41.25:5.2f}GiB"
                f"({52.10:.2f}%)  {blue}tps: {round(tps):,}  {cyan}tflops: {301.33:,.2f}  {magenta}mfu: {30.47:.2f}%{reset}")
        for rank in range(ranks):
            lines.append(f"[rank{rank}]:[titan] 2025-12-17 01:18:26,708 - root - INFO - {text}")
        read["loss"][s] = as_printed("{:7.4f}", run.loss[s])
        read["rate"][s] = round(tps)
        if s in run.validation:
            lines.append(f"[rank0]:[titan] 2025-12-17 01:18:27,708 - root - INFO - {yellow}validate step: {s:2}  {green}loss: "
                         f"{run.validation[s]:7.4f}  {turquoise}memory: {40.25:5.2f}GiB({52.10:.2f}%)  {blue}tps: {round(tps):,}{reset}")
            read["validation"][s] = as_printed("{:7.4f}", run.validation[s])
    path.write_text("\n".join(lines) + "\n")
    return read


def nanogpt(run, path):
    lines, read = ["number of parameters: 10.65M"], {"loss": {}, "validation": {}, "seconds": {}}
    for s in run.steps:
        if s in run.validation:
            lines.append(f"step {s}: train loss {run.loss[s]:.4f}, val loss {run.validation[s]:.4f}")
            lines.append("saving checkpoint to out-shakespeare-char")
            read["validation"][s] = as_printed("{:.4f}", run.validation[s])
        lines.append(f"iter {s}: loss {run.loss[s]:.4f}, time {run.seconds[s] * 1000:.2f}ms, mfu {30.125:.2f}%")
        read["loss"][s] = as_printed("{:.4f}", run.loss[s])
        read["seconds"][s] = as_printed("{:.2f}", run.seconds[s] * 1000) * 1e-3
    path.write_text("\n".join(lines) + "\n")
    return read


def nanochat(run, path):
    lines, read = ["Vocab size: 65,536"], {"loss": {}, "validation": {}, "seconds": {}, "rate": {}}
    count = len(run.steps)
    for s in run.steps:
        if s in run.validation:
            lines.append(f"Step {s:05d} | Validation bpb: {run.validation[s]:.6f}")
            read["validation"][s] = as_printed("{:.6f}", run.validation[s])
        rate = int(run.rate(s))
        lines.append(f"step {s:05d}/{count:05d} ({100 * s / count:.2f}%) | loss: {run.loss[s]:.6f} | lrm: {1:.2f} | dt: "
                     f"{run.seconds[s] * 1000:.2f}ms | tok/sec: {rate:,} | bf16_mfu: {45.16:.2f} | epoch: 1 pq: 0 rg: 3 | total time: "
                     f"{s / 60:.2f}m | eta: 3.1m")
        read["loss"][s] = as_printed("{:.6f}", run.loss[s])
        read["seconds"][s] = as_printed("{:.2f}", run.seconds[s] * 1000) * 1e-3
        read["rate"][s] = rate
    lines.append("Minimum validation bpb: 0.9")
    path.write_text("\n".join(lines) + "\n")
    return read


def llmc_screen(run, path):
    """The evaluation of step n stands before the line of step n + 1, and does not say n."""
    lines, read = ["+-----------------------+----+", "| run hellaswag         | yes |"], {
        "loss": {}, "validation": {}, "seconds": {}, "rate": {}}
    for s in run.steps:
        lines.append("step %4d/%d | loss %7.6f (%+.2fz)| norm %6.4f (%+.2fz)| lr %.2e | %.2f ms | %.1f%% bf16 MFU | %.0f tok/s" % (
            s, len(run.steps), run.loss[s], 0.5, 1.25, -0.5, 6e-4, run.seconds[s] * 1000, 45.1, run.rate(s)))
        read["loss"][s] = float("%7.6f" % run.loss[s])
        read["seconds"][s] = float("%.2f" % (run.seconds[s] * 1000)) * 1e-3
        read["rate"][s] = float("%.0f" % run.rate(s))
        if s in run.validation:
            lines += ["val loss %f" % run.validation[s], "evaluating HellaSwag: 0/79\rHellaSwag: 2539/10042 = 0.252838"]
            read["validation"][s] = float("%f" % run.validation[s])
    path.write_text("\n".join(lines) + "\n")
    return read


def llmc_main_log(run, path):
    lines, read = [], {"loss": {}, "validation": {}}
    for s in run.steps:
        if s in run.validation:
            lines += ["s:%d tel:%.4f" % (s, run.validation[s]), "s:%d eval:%.4f" % (s, 0.25)]
            read["validation"][s] = float("%.4f" % run.validation[s])
        lines.append("s:%d trl:%.4f lr:%.6f norm:%.2f" % (s, run.loss[s], 6e-4, 1.25))
        read["loss"][s] = float("%.4f" % run.loss[s])
    path.write_text("\n".join(lines) + "\n")
    return read


def llmc_cpu(run, path):
    lines, read = [], {"loss": {}, "seconds": {}}
    for s in run.steps:
        lines.append("step %d: train loss %f (took %f ms)" % (s, run.loss[s], run.seconds[s] * 1000))
        read["loss"][s] = float("%f" % run.loss[s])
        read["seconds"][s] = float("%f" % (run.seconds[s] * 1000)) * 1e-3
    path.write_text("\n".join(lines) + "\n")
    return read


def llama_factory(run, path):
    lines, read = [], {"loss": {}, "validation": {}, "tokens": {}}
    for s in run.steps:
        record = {"current_steps": s, "total_steps": len(run.steps), "loss": round(run.loss[s], 4), "lr": 1e-4, "epoch": 0.1,
                  "percentage": 2.67, "elapsed_time": "0:09:01", "remaining_time": "5:29:08", "throughput": 13061.0,
                  "total_tokens": s * run.step_tokens}
        lines.append(json.dumps(record))
        read["loss"][s] = round(run.loss[s], 4)
        read["tokens"][s] = s * run.step_tokens
        if s in run.validation:
            lines.append(json.dumps({"current_steps": s, "total_steps": len(run.steps), "eval_loss": run.validation[s], "epoch": 0.1,
                                     "percentage": 2.67, "elapsed_time": "0:09:01", "remaining_time": "5:29:08"}))
            read["validation"][s] = run.validation[s]
    path.write_text("\n".join(lines) + "\n")
    return read


def jsonl(run, path):
    """A script's own, with objects in its records."""
    lines, read = [], {"loss": dict(run.loss), "validation": dict(run.validation)}
    for s in run.steps:
        record = {"step": s, "train": {"loss": run.loss[s], "lr": 1e-4}}
        if s in run.validation:
            record["val"] = {"loss": run.validation[s]}
        lines.append(json.dumps(record))
    path.write_text("\n".join(lines) + "\n")
    return read


def resumed_jsonl(run, path):
    """Killed at step 250 and resumed from 200: 50 steps stand there twice, the first time with other losses."""
    lines = [json.dumps({"step": s, "loss": run.loss[s] + (1 if s > 200 else 0)}) for s in run.steps if s <= 250]
    lines += [json.dumps({"step": s, "loss": run.loss[s]}) for s in run.steps if s > 200]
    path.write_text("\n".join(lines) + "\n")
    return {"loss": dict(run.loss), "repeated": 50}


def wandb_chart(run, path):
    """Two runs in one export; the second has every value a thousandth higher."""
    with path.open("w", newline="") as file:
        out = csv.writer(file, quoting=csv.QUOTE_ALL)
        names = [f"{name} - train/loss{end}" for name in ("brisk-1", "calm, \"2\"") for end in ("", "__MIN", "__MAX")]
        out.writerow(["Step", *names])
        for s in run.steps:
            first = [run.loss[s], run.loss[s] - 1, run.loss[s] + 1]
            second = [value + 1e-3 for value in first] if s % 2 == 0 else ["", "", ""]
            out.writerow([s, *("NaN" if value != "" and math.isnan(value) else value for value in first + second)])
    return {"loss": dict(run.loss)}


def lightning_csv(run, path):
    """A row for a training loss, another for a validation loss of the same step."""
    with path.open("w", newline="") as file:
        out = csv.DictWriter(file, ["epoch", "step", "train_loss", "val_loss"])
        out.writeheader()
        for s in run.steps:
            out.writerow({"epoch": 0, "step": s, "train_loss": run.loss[s]})
            if s in run.validation:
                out.writerow({"epoch": 0, "step": s, "val_loss": run.validation[s]})
    return {"loss": dict(run.loss), "validation": dict(run.validation)}


# Name of the case, writer, what the reader calls it, and the run to name behind the file.
TRANSCRIBED = [
    ("megatron", megatron, "Megatron-LM's text log", ""),
    ("megatron_old", lambda run, path: megatron(run, path, old=True), "Megatron-LM's text log", ""),
    ("torchtitan", torchtitan, "torchtitan's text log", ""),
    ("torchtitan_colors", lambda run, path: torchtitan(run, path, colors=True), "torchtitan's text log", ""),
    ("torchtitan_ranks", lambda run, path: torchtitan(run, path, ranks=2) | {"repeated": 400}, "torchtitan's text log", ""),
    ("nanogpt", nanogpt, "nanoGPT's text log", ""),
    ("nanochat", nanochat, "nanochat's text log", ""),
    ("llmc_screen", llmc_screen, "llm.c's log", ""),
    ("llmc_main_log", llmc_main_log, "llm.c's log", ""),
    ("llmc_cpu", llmc_cpu, "llm.c's log", ""),
    ("llama_factory", llama_factory, "LLaMA-Factory's trainer_log.jsonl", ""),
    ("jsonl", jsonl, "JSONL", ""),
    ("jsonl_resumed", resumed_jsonl, "JSONL", ""),
    ("wandb_chart_csv", wandb_chart, "CSV table", "brisk-1"),
    ("lightning_csv", lightning_csv, "CSV table", ""),
]
