#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=300 gate=""
"""Micro-batches of 93 tokens, a multiple of nothing that FP8 wants: every recipe trains on them with all of its layers, says by how
much it pads, counts it in the receipt, and ends near the validation loss of BF16."""
import pathlib
import sys
import tempfile
import time

import common

STEPS, ACCUMULATION, LAYERS = 24, 2, 4
LENGTH, BATCH = 31, 3
TOKENS = LENGTH * BATCH
MULTIPLES = {"delayed": 16, "current": 16, "rowwise": 16, "blockwise": 16, "mxfp8": 32}
MAX_PERCENT = 2
CONFIG = f"""
model_name: custom
n_layer: 1
n_head: 2
n_embd: 128
max_seq_length: {LENGTH}
batch_size: {BATCH}
gradient_accumulation_steps: {ACCUMULATION}
max_steps: {STEPS}
learning_rate: 2e-3
eval_freq: {STEPS}
eval_batches: 16
num_threads: 2
run_name: run
"""


def trained(work, mode):
    """(validation loss, receipt of FP8, log) of a run."""
    fp8 = "" if mode == "bf16" else f"mixed_precision: fp8\nfp8_stats_freq: 8\nfp8_recipe: {mode}\n"
    folder = common.Folder(work / mode, CONFIG + fp8, "checkpoints_fp8" if fp8 else "checkpoints")
    folder.finish_or_exit()
    loss = next(r["val/loss"] for r in folder.records() if r["step"] == STEPS and "val/loss" in r)
    return loss, folder.receipt().get("fp8"), folder.log()


def faults_of(mode, plain, loss, receipt, log):
    missing = -TOKENS % MULTIPLES[mode]
    # The input in the forward pass and the gradient in the backward pass of each layer.
    operands = 2 * LAYERS * ACCUMULATION * STEPS
    wanted = {"operands": operands, "tokens": operands * TOKENS, "zero_rows": operands * missing}
    faults = []
    if abs(loss / plain - 1) * 100 > MAX_PERCENT:
        faults.append(f"validation loss {loss:.4f}, of BF16 {plain:.4f}")
    if receipt["layers"] != LAYERS or receipt["layers_total"] != LAYERS:
        faults.append(f"{receipt['layers']} of {receipt['layers_total']} layers in FP8, wanted {LAYERS}")
    if receipt["padding"] != wanted:
        faults.append(f"the receipt counts {receipt['padding']}, wanted {wanted}")
    if f"micro-batches of {TOKENS} tokens are padded by {missing} rows of zeros to {TOKENS + missing}" not in log:
        faults.append("the log does not say what is padded")
    return faults


def main():
    common.require_files()
    begin, bad = time.time(), 0
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        common.prepare_data(work)
        plain, _, log = trained(work, "bf16")
        bad += "padded" in log
        for mode in MULTIPLES:
            loss, receipt, log = trained(work, mode)
            faults = faults_of(mode, plain, loss, receipt, log)
            print(f"{mode}: val_loss={loss:.4f} bf16={plain:.4f}{''.join(' FAILED: ' + fault for fault in faults)}", flush=True)
            bad += len(faults)
    print(f"recipes={len(MULTIPLES)} tokens={TOKENS} failed={bad} seconds={time.time() - begin:.0f}")
    sys.exit(0 if bad == 0 else 1)


if __name__ == "__main__":
    main()
