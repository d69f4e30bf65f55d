#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=faults timeout=600 night="--short" alone
"""Numbers that are not finite, and losses that spike; the last line has the results.

sites      NaN and infinity at 21 places (both operands of eight layers, four weights, a weight's gradient; two ranks in
           turn), in BF16 and every FP8 recipe, once, in FP8 only, or always: the layer, the pass and the rank are named
           (of a gradient, which is a sum over ranks, the weight), the cause is hardware, fp8 or model or data, no update is
           applied, and the next step is sound
spikes     100 steps of a real training whose data is partly noise: not applied; at most one other step in 10,000 is
rollback   three such steps in a row: the weights of the last checkpoint, bit for bit; resumed in the middle, the same run;
           a budget that is used up, and a run without checkpoints, end with exit code 4; the default leaves no step out

usage: bad_steps.py [--short]    --short: one recipe and fewer steps, for CI
"""
import argparse
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import common  # noqa: E402
import ranks  # noqa: E402
from common import STOPPED, TEXT  # noqa: E402

TOOL = common.BUILD / "bin" / "number_faults_tool"
GUARD = 4
MODELS = ["bf16", "delayed", "current", "rowwise", "blockwise", "mxfp8"]
SITES = 21
PLACES = {"input": "the forward pass at ", "gradient": "the backward pass at ", "weight": "",
          "weight gradient": "the gradient of "}
CAUSES = ["hardware", "fp8", "model or data"]  # by how long a fault lasts: once, in FP8, always
ROWS, LENGTH = 4, 64
STEP_BYTES = ROWS * LENGTH
CONFIG = """
model_name: custom
n_layer: 2
n_head: 2
n_embd: 128
tokenizer: bytes
learning_rate: 3e-3
warmup_steps: 20
eval_freq: 0
num_threads: 1
run_name: run
device: cpu
"""
# rollback, since under skip a weight that is not finite ends the run; the tool itself never goes back.
SITE_CONFIG = CONFIG + """
max_seq_length: 32
batch_size: 4
max_steps: 100000
bad_steps: rollback
bad_step_budget: 100000
"""
RUN_CONFIG = CONFIG + f"""
max_seq_length: {LENGTH}
batch_size: {ROWS}
shuffle: false
val_fraction: 0
"""


def fail(message):
    print(f"tried=0 survived=0 lost=1 reason={message!r}")
    sys.exit(1)


def run_ranks(work, name, count=2):
    port, processes = ranks.free_port(), []
    flags = ["--mixed_precision", "bf16"] if name == "bf16" else ["--mixed_precision", "fp8", "--fp8_recipe", name]
    for r in range(count):
        variables = os.environ | {"RANK": str(r), "WORLD_SIZE": str(count), "LOCAL_RANK": str(r), "GROUP_RANK": "0",
                                  "LOCAL_WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                                  "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
        processes.append(subprocess.Popen([TOOL, "sites.yaml", "--dataset", TEXT, *flags], cwd=work, env=variables,
                                          text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    results = []
    for process in processes:
        out, err = process.communicate(timeout=600)
        if process.returncode != 0:
            fail(f"a rank of {name} ended with {process.returncode}: {err[-1500:]}")
        results.append(json.loads(out.splitlines()[-1]))
    return sorted(results, key=lambda r: r["rank"])


def wrong_with(fault):
    """What is not as it must be, of a fault; "" when all is."""
    for key in ("injected", "skipped", "unchanged", "resumes"):
        if not fault[key]:
            return f"not {key}"
    incident = fault["incident"]
    places, ranks_named = [PLACES[fault["tensor"]] + fault["name"]], [[fault["rank"]]]
    if fault["tensor"] == "weight gradient":  # a sum over ranks, that no further GEMM reads: its name is all there is
        if not incident["what"].startswith(f"{places[0]} is not finite"):
            return f"what {incident['what']}"
        places, ranks_named = ["", *places], [[], *ranks_named]
    if incident["place"] not in places:
        return f"place {incident['place']}"
    if incident["ranks"] not in ranks_named:
        return f"ranks {incident['ranks']}"
    cause = "hardware" if fault["tensor"] == "weight" else CAUSES[fault["lasts"]]
    return "" if incident["cause"] == cause else f"cause {incident['cause']}, wanted {cause}"


def sites(work, names):
    (work / "sites.yaml").write_text(SITE_CONFIG)
    places, faults, wrong, updates = {}, 0, 0, 0
    for name in names:
        begin = time.monotonic()
        for report in run_ranks(work, name):
            for fault in report["faults"]:
                faults += 1
                updates += not (fault["skipped"] and fault["unchanged"])
                problem = wrong_with(fault)
                place = places.setdefault((fault["tensor"], fault["name"]), True)
                places[fault["tensor"], fault["name"]] = place and not problem
                if problem:
                    wrong += 1
                    print(f"{name}, seen by rank {report['rank']}: {fault}: {problem}")
        print(f"{name}: done in {time.monotonic() - begin:.0f} s", flush=True)
    return {"sites": len(places), "sites_named": sum(places.values()), "faults": faults, "faults_wrong": wrong,
            "updates": updates}


class Text:
    """Tinyshakespeare in its order, with noise in the bytes of some steps (counted from 1)."""

    def __init__(self, steps, seed):
        clean = TEXT.read_bytes()
        self.bytes = bytearray((clean * (steps * STEP_BYTES // len(clean) + 2))[:(steps + 2) * STEP_BYTES])
        self.random = random.Random(seed)
        self.noisy = set()

    def spoil(self, step, share):
        begin = (step - 1) * STEP_BYTES + 1  # the first byte is the last that the step before predicts
        for at in self.random.sample(range(begin, begin + STEP_BYTES - 1), int(share * (STEP_BYTES - 1))):
            self.bytes[at] = self.random.randrange(128, 256)
        self.noisy.add(step)


class Folder(common.Folder):
    def __init__(self, work, name, text, steps, extra=""):
        (work / name).mkdir()
        super().__init__(work / name / "run", RUN_CONFIG + f"max_steps: {steps}\n" + extra)
        (work / name / "data").write_bytes(text.bytes)

    def incidents(self):
        path = self.path / "runs" / "run" / "incidents.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def spikes(work, steps, count):
    text = Text(steps, seed=7)
    # Apart, so that none is the third in a row, and after the window has its losses.
    for step in text.random.sample(range(150, steps, 3), count):
        text.spoil(step, text.random.uniform(0.3, 1.0))
    folder = Folder(work, "spikes", text, steps, "bad_steps: skip\nbad_step_budget: 1000\ncheckpoint_freq: 0\n")
    begin = time.monotonic()
    if (code := folder.finish()) != 0:
        fail(f"the run with spikes ended with {code}: {folder.log()[-1500:]}")
    found = {i["step"] for i in folder.incidents()}
    print(f"spikes: {steps} steps in {time.monotonic() - begin:.0f} s; missed {sorted(text.noisy - found)}, "
          f"false {sorted(found - text.noisy)}", flush=True)
    return {"spikes": count, "caught": len(found & text.noisy), "clean_steps": steps - count,
            "false": len(found - text.noisy)}


def rollback(work):
    steps, cases = 260, []  # of what must hold, and what is said otherwise
    text = Text(steps, seed=11)
    for step in (201, 202, 203):
        text.spoil(step, 1.0)
    policy = "bad_steps: rollback\ncheckpoint_freq: 50\nkeep_checkpoints: 0\n"

    ends_there = Folder(work, "ends_there", text, 203, policy)
    ends_there.finish_or_exit()
    kinds = [i["kind"] for i in ends_there.incidents()]
    cases.append((kinds == ["spike"] * 3 + ["rollback"] and ends_there.tensors(203) == ends_there.tensors(200),
                  f"weights after a rollback: {kinds}"))
    last = ends_there.incidents()[-1:]
    cases.append((last and last[0]["samples"] == [200 * ROWS, 203 * ROWS], f"samples left out: {last}"))

    whole, stopped = Folder(work, "whole", text, steps, policy), Folder(work, "stopped", text, steps, policy)
    whole.finish_or_exit()
    code = common.interrupt(stopped.start(), 170, signal.SIGTERM)
    if code == STOPPED:
        stopped.finish_or_exit("--resume", "latest")
    cases.append((code == STOPPED and stopped.tensors(steps) == whole.tensors(steps), f"resumed run differs ({code})"))
    receipt = whole.receipt()
    cases.append((receipt["incidents"]["rollbacks"] == 1 and receipt["skipped_steps"] == 3,
                  f"receipt: {receipt['incidents']}"))

    budget = Folder(work, "budget", text, steps, policy + "bad_step_budget: 2\n")
    cases.append((budget.finish() == GUARD and "bad_step_budget" in budget.log() and len(budget.incidents()) == 3, "budget"))
    bare = Folder(work, "bare", text, steps, "bad_steps: rollback\ncheckpoint_freq: 0\n")
    cases.append((bare.finish() == GUARD and "no checkpoint to go back to" in bare.log(), "without checkpoints"))
    default = Folder(work, "default", text, steps, "checkpoint_freq: 0\n")
    cases.append((default.finish() == 0 and not default.incidents(), "the default"))
    wrong = [otherwise for holds, otherwise in cases if not holds]
    print(f"rollback: wrong {wrong}", flush=True)
    return {"rollback_cases": len(cases), "rollback_wrong": len(wrong)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    common.require_files()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="octavo-bad-steps-") as name:
        work = pathlib.Path(name)
        totals = sites(work, ["delayed"] if short else MODELS)
        totals |= spikes(work, 2000 if short else 10000 + 100, 20 if short else 100)
        totals |= rollback(work)
    lost = (totals["sites"] - totals["sites_named"] + totals["faults_wrong"] + totals["rollback_wrong"]
            + max(0, totals["spikes"] - totals["caught"] - (0 if short else 1))
            + max(0, totals["false"] - (0 if short else 1)))
    tried = totals["faults"] + totals["spikes"] + totals["rollback_cases"]
    print(" ".join(f"{k}={v}" for k, v in totals.items()),
          f"tried={tried} survived={tried - lost} lost={lost} seconds={time.monotonic() - begin:.0f}")
    sys.exit(0 if lost == 0 and totals["sites"] == SITES else 1)


if __name__ == "__main__":
    main()
