#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# bench:
"""What all sinks cost a step of a 10M model, and that none of them can change or stop a run.

Cost: two runs of the same model, one with metrics.jsonl alone (the default) and one with TensorBoard, W&B and a metrics
endpoint that is read ten times a second, stand still in turn (SIGSTOP) and take blocks of steps in turn, so that what else
the machine does hits both. By the clock the cost is the median over pairs of blocks of the ratio of their times, with its 95%
interval: as wide as the machine is busy. In processor time it is what the threads of the sinks take of all that the run takes
(metrics.jsonl's share too), which other work hardly changes. At most 1% in processor time, and an interval by the clock that
does not lie beyond 1%.

Failures: a run on a full disk (RLIMIT_FSIZE), one whose endpoint's port is taken, one whose endpoint is flooded, one whose
W&B uploader dies, one whose uploader finds no server, one whose reader of step lines leaves, one whose reader keeps the
pipe and reads nothing, one whose folder is gone when the receipt is due. Each must end with exit code 0 and the very weights
of the run without them, and must have counted what it lost.

usage: sinks.py [--pairs N] [--block N] [--skip-cost] [--skip-failures]
"""
import argparse
import json
import os
import pathlib
import random
import re
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "integration"))
import common  # noqa: E402

TARGET = 1  # percent
ALL = ["--use_tensorboard", "--use_wandb", "--metrics_address", "127.0.0.1:0"]
TEN_MILLION = """
model_name: custom
n_layer: 6
n_head: 6
n_embd: 384
max_seq_length: 128
batch_size: 2
max_steps: 100000
eval_freq: 0
mixed_precision: fp8
fp8_execution: rehearse
fp8_stats_freq: 100
checkpoint_freq: 0
num_threads: 2
run_name: run
"""
TINY = """
model_name: custom
n_layer: 1
n_head: 2
n_embd: 32
max_seq_length: 16
batch_size: 2
max_steps: 1500
log_freq: 50
eval_freq: 500
eval_batches: 2
sample_freq: 500
sample_tokens: 4
checkpoint_freq: 0
mixed_precision: fp8
fp8_execution: rehearse
fp8_stats_freq: 50
num_threads: 1
run_name: run
"""


def start(folder, flags, environment=None, **options):
    log = open(folder.path / "stderr.txt", "a")
    return subprocess.Popen([common.OCTAVO, "train", "train.yaml", "--dataset", folder.path.parent / "data", *flags],
                            cwd=folder.path, stdout=subprocess.PIPE, stderr=log, text=True,
                            env=os.environ | {"OMP_WAIT_POLICY": "passive", "WANDB_MODE": "offline"} | (environment or {}),
                            **options)


def endpoint(folder, patience=20):
    """The address that a run says it serves metrics at."""
    until = time.time() + patience
    while time.time() < until:
        found = re.search(r"metrics: http://(\S+):(\d+)/metrics", folder.log())
        if found:
            return found[1], int(found[2])
        time.sleep(0.05)
    sys.exit(f"no metrics endpoint:\n{folder.log()}")


# --- cost ---------------------------------------------------------------------------------------------------------------

def read_metrics(address, stop, count):
    while not stop.wait(0.1):
        try:
            with urllib.request.urlopen(f"http://{address[0]}:{address[1]}/metrics", timeout=2) as page:
                count[0] += b"octavo_train_loss " in page.read()
        except OSError:
            pass  # stands still just now


def processor_seconds(process):
    """(of all threads, of the threads of sinks)"""
    every = sinks = 0
    for task in pathlib.Path(f"/proc/{process.pid}/task").iterdir():
        seconds = int((task / "schedstat").read_text().split()[0]) / 1e9
        every += seconds
        sinks += seconds if (task / "comm").read_text().strip() in ("octavo-sinks", "octavo-http", "octavo-console") else 0
    return every, sinks


def block_seconds(process, steps):
    begin = time.perf_counter()
    process.send_signal(signal.SIGCONT)
    for _ in range(steps):
        if not process.stdout.readline():
            sys.exit("a run ended too early")
    seconds = time.perf_counter() - begin
    process.send_signal(signal.SIGSTOP)
    return seconds


def estimate(ratios, chance):
    """Median ratio less one, and its interval by resampling, in percent."""
    resampled = sorted(statistics.median(chance.choices(ratios, k=len(ratios))) for _ in range(2000))
    return [100 * (x - 1) for x in (statistics.median(ratios), resampled[50], resampled[1949])]


def cost(work, pairs, block):
    folders = [common.Folder(work / name, TEN_MILLION) for name in ("without", "with")]
    processes = [start(folders[0], []), start(folders[1], ALL)]
    stop, scrapes = threading.Event(), [0]
    try:
        for process in processes:
            block_seconds(process, 10)  # first steps allocate
        reader = threading.Thread(target=read_metrics, args=(endpoint(folders[1]), stop, scrapes), daemon=True)
        reader.start()
        clock, plain, chance = [], [], random.Random(1)
        before = processor_seconds(processes[1])
        for _ in range(pairs):
            times = [None, None]
            for i in chance.sample((0, 1), 2):
                times[i] = block_seconds(processes[i], block)
            clock.append(times[1] / times[0])
            plain.append(times[0] / block)
        every, sinks = (b - a for a, b in zip(before, processor_seconds(processes[1])))
    finally:
        stop.set()
        for process in processes:
            process.kill()
            process.communicate()
    return {"step_ms": 1e3 * statistics.median(plain), "clock": estimate(clock, chance),
            "processors": 100 * sinks / every, "scrapes": scrapes[0]}


# --- failures -----------------------------------------------------------------------------------------------------------

def weights(folder):
    last = max(folder.checkpoints.glob("step-*"))
    return {file.name: file.read_bytes() for file in sorted(last.glob("*.safetensors"))}


def losses(folder):
    return {r["step"]: r["train/loss"] for r in folder.records() if "train/loss" in r}


def counted(folder):
    receipt = json.loads((folder.path / "runs" / "run" / "receipt.json").read_text())["sinks"]
    if not receipt:  # the first one still stands there
        return {"jsonl": 0, "dropped": 0, "receipt": folder.log().count("receipt.json cannot be written")}
    return {name: sink["failures"] for name, sink in receipt["sinks"].items()} | {
        "dropped": receipt["dropped"], "untrusted": sum(receipt["sinks"].get("prometheus", {}).get(name, 0) for name in (
            "refused", "too_slow", "pushed_out", "left"))}


def full_disk(folder):
    """The metrics, the events and the W&B run grow beyond it; the checkpoint does not reach it."""
    return start(folder, ALL, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (250_000, 250_000)))


def port_taken(folder):
    taken = socket.create_server(("127.0.0.1", 0))
    folder.keep = taken
    return start(folder, [*ALL[:-1], f"127.0.0.1:{taken.getsockname()[1]}"])


def flooded(folder):
    process = start(folder, ALL)
    address = endpoint(folder)

    def flood():
        kept = []
        while process.poll() is None:
            try:
                one = socket.create_connection(address, timeout=1)
                one.send(random.choice([b"", b"\0" * 5000, b"GET /metrics HTTP/1.1\r\n\r\n", b"POST / HTTP/1.1\r\n\r\n",
                                        b"GET /metrics"]))
                kept = kept[-40:] + [one]
            except OSError:
                time.sleep(0.01)
    threading.Thread(target=flood, daemon=True).start()
    return process


def uploader(folder, script):
    (folder.path / "bin").mkdir()
    (folder.path / "bin" / "wandb").write_text(script)
    (folder.path / "bin" / "wandb").chmod(0o755)
    return {"WANDB_MODE": "online", "WANDB_API_KEY": "x" * 40, "PATH": f"{folder.path / 'bin'}:{os.environ['PATH']}"}


def uploader_dies(folder):
    return start(folder, ALL, uploader(folder, "#!/bin/sh\nsleep 0.3\nkill -9 $$\n"))


def no_server(folder):
    """wandb itself, with a server that is not there."""
    venv = ROOT / ".deps" / "venv" / "bin"
    closed = socket.create_server(("127.0.0.1", 0))
    port = closed.getsockname()[1]
    closed.close()
    environment = {"WANDB_MODE": "online", "WANDB_API_KEY": "x" * 40, "PATH": f"{venv}:{os.environ['PATH']}",
                   "WANDB_BASE_URL": f"http://127.0.0.1:{port}", "WANDB_ERROR_REPORTING": "false"}
    environment |= {f"WANDB_{name}_DIR": str(folder.path / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
    return start(folder, ALL, environment)


def reader_gone(folder):
    process = start(folder, ALL)
    process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    return process


def reader_stuck(folder):
    process = start(folder, [*ALL, "--log_freq", "1"])
    folder.keep, process.stdout = process.stdout, None
    return process


def folder_gone(folder):
    """A file stands where the run's folder was; files that are open stay so."""
    process = start(folder, ALL)
    process.stdout.readline()
    runs = folder.path / "runs"
    runs.rename(folder.path / "runs-away")
    runs.write_text("")

    def put_back():
        runs.unlink()
        (folder.path / "runs-away").rename(runs)
    folder.put_back = put_back
    return process


# The injection, the counter that must have moved, and whether metrics.jsonl must be whole.
FAILURES = [(full_disk, "jsonl", False), (full_disk, "tensorboard", False), (full_disk, "wandb", False),
            (port_taken, "prometheus", True), (flooded, "untrusted", True), (uploader_dies, "wandb", True),
            (no_server, "wandb", True), (reader_gone, "console", True), (reader_stuck, "console", True),
            (folder_gone, "receipt", True)]


def inject(work, inject_failure, wanted_weights, wanted_losses):
    """(complaints, counters)"""
    folder = common.Folder(work / inject_failure.__name__, TINY, "checkpoints_fp8")
    process = inject_failure(folder)
    try:
        process.communicate(timeout=120)
        code = process.returncode
    except subprocess.TimeoutExpired:
        process.kill()
        code = "hangs"
    name = inject_failure.__name__
    getattr(folder, "put_back", lambda: None)()
    if code != 0:
        return [f"{name}: exit code {code}\n{folder.log()[-1500:]}"], {}
    wrong = []
    if weights(folder) != wanted_weights:
        wrong.append(f"{name}: the weights are not those of the run without it")
    found = losses(folder)
    if any(found[step] != wanted_losses[step] for step in found):
        wrong.append(f"{name}: losses differ")
    counters = counted(folder)
    if len(found) + counters["jsonl"] + counters["dropped"] < len(wanted_losses):
        wrong.append(f"{name}: {len(found)} records are there and {counters['jsonl']} counted as lost")
    return wrong, counters


def failures(work):
    reference = common.Folder(work / "reference", TINY, "checkpoints_fp8")
    reference.finish_or_exit()
    wanted_weights, wanted_losses = weights(reference), losses(reference)
    wrong, seen = [], {}
    for injection, counter, whole in FAILURES:
        if injection not in seen:
            complaints, seen[injection] = inject(work, injection, wanted_weights, wanted_losses)
            wrong += complaints
        counters = seen[injection]
        print(f"{injection.__name__}: {counters}", flush=True)
        if counters.get(counter, 0) == 0:
            wrong.append(f"{injection.__name__}: {counter} counted nothing")
        if whole and counters.get("jsonl", 0) + counters.get("dropped", 0) > 0:
            wrong.append(f"{injection.__name__}: metrics.jsonl suffered")
    return wrong, len(seen)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--block", type=int, default=10)
    parser.add_argument("--skip-cost", action="store_true")
    parser.add_argument("--skip-failures", action="store_true")
    options = parser.parse_args()
    common.require_files()
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        common.prepare_data(work)
        wrong, injected = ([], 0) if options.skip_failures else failures(work)
        results = {} if options.skip_cost else cost(work, options.pairs, options.block)
    if results and not 0 < results["processors"] <= TARGET:
        wrong.append(f"all sinks cost {results['processors']:.2f}% of a step's processor time, wanted at most {TARGET}%")
    if results and results["clock"][1] > TARGET:
        wrong.append(f"all sinks cost at least {results['clock'][1]:.2f}% of a step by the clock, wanted at most {TARGET}%")
    if results and results["scrapes"] == 0:
        wrong.append("nobody could read the metrics")
    for line in wrong:
        print(line)
    text = ""
    if results:
        text = (f"step_ms={results['step_ms']:.1f} scrapes={results['scrapes']} processor_percent="
                f"{results['processors']:.3f} clock_percent={results['clock'][0]:.2f} "
                f"clock_low={results['clock'][1]:.2f} clock_high={results['clock'][2]:.2f} ")
    print(f"{text}failures_injected={injected} wrong={len(wrong)} {'FAILED' if wrong else 'ok'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
