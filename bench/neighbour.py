#!/usr/bin/env python3
# bench:
"""A training step beside other programs: one busy process on each CPU, against the same step alone; and what it costs alone
that waiting threads sleep early.

Two models, since small steps have more waits in them than large ones: `tiny` (configs/tinyshakespeare.yaml's, 0.8M parameters) and
`gpt2` (124M, 1 x 64 tokens). Of each two processes live through the whole run and sleep between their turns: `own` waits as
octavo does by itself, `long` spins as libgomp does when nobody tells it otherwise (GOMP_SPINCOUNT=300000). A turn is:
  alone    own and long by short bursts of steps, changing places, so that the machine's moods meet both
  beside   one busy process pinned to each CPU, then own, and of the tiny model a few steps of long

  NAME_beside       the mean step beside the busy processes over the mean step alone, median of turns: at most 2.5. Two programs
                    that share a CPU fairly get half of it each: 2.0
  NAME_cost         the median step of own over that of long, both alone, median of turns: at most 1.01
  NAME_spread       slowest over fastest median of own's turns alone: far from 1, the machine was not quiet
  tiny_beside_long  what the first would be without us; no target
"""
import argparse
import os
import pathlib
import signal
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release"))
TOOL = BUILD / "bin" / "neighbour_tool"
TARGET_BESIDE, TARGET_COST = 2.5, 1.01
LONG = "300000"  # libgomp's own number of turns of its loop
OURS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY", "OMP_NUM_THREADS")  # what octavo decides by itself

TINY = "--model_name custom --n_layer 4 --n_head 4 --n_embd 128 --tokenizer bytes --max_seq_length 64 --batch_size 12"
GPT2 = "--model_name gpt2 --max_seq_length 64 --batch_size 1"
# Words, steps of a burst, bursts of each side in a turn, steps beside the busy processes, and the same of long.
MODELS = {"tiny": (TINY.split(), 10, 6, 60, 10), "gpt2": (GPT2.split(), 2, 4, 6, 0)}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=int(os.environ.get("TURNS", "6")), help="at least 5 for a result that counts [6]")
    parser.add_argument("--models", default=",".join(MODELS), help="tiny,gpt2 [both]")
    parser.add_argument("--spin-count", help="GOMP_SPINCOUNT of own instead of octavo's choice, to try another")
    options = parser.parse_args()
    options.models = options.models.split(",")
    unknown = [name for name in options.models if name not in MODELS]
    if unknown or options.turns < 1:
        parser.error(f"wanted models of {','.join(MODELS)} and turns >= 1, found {unknown}, {options.turns}")
    if not TOOL.is_file():
        sys.exit(f"wanted {TOOL}, found none; cmake --build --preset dev --target neighbour_tool")
    return options


class Worker:
    """Training steps in a process that sleeps until its turn."""

    def __init__(self, name, words, spin_count):
        self.name = name
        environment = {key: value for key, value in os.environ.items() if key not in OURS}
        if spin_count:
            environment["GOMP_SPINCOUNT"] = spin_count
        self.process = subprocess.Popen([TOOL, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        env=environment, text=True)
        self.threads = self.line()

    def line(self):
        text = self.process.stdout.readline()
        if not text:
            sys.exit(f"{self.name}: wanted a line, found its end; exit code {self.process.wait()}:\n{self.process.stderr.read()[-2000:]}")
        return text.strip()

    def steps(self, count):
        """The seconds of each step."""
        self.process.stdin.write(f"{count}\n")
        self.process.stdin.flush()
        seconds = [float(word) for word in self.line().split()]
        if len(seconds) != count:
            sys.exit(f"{self.name}: wanted the times of {count} steps, found {len(seconds)}")
        return seconds

    def end(self):
        self.process.stdin.close()
        self.process.wait()


class BusyProcesses:
    """One on each CPU that this process may use, stopped except inside `with`."""

    def __init__(self):
        cpus = sorted(os.sched_getaffinity(0))
        self.processes = [subprocess.Popen([sys.executable, "-c", f"import os\nos.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"])
                          for cpu in cpus]
        self.signal(signal.SIGSTOP)

    def signal(self, number):
        for process in self.processes:
            process.send_signal(number)

    def __enter__(self):
        self.signal(signal.SIGCONT)

    def __exit__(self, *_):
        self.signal(signal.SIGSTOP)

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()


def alone(own, long, burst, bursts):
    """The seconds of each side's steps, taken by turns: own long, long own, …"""
    seconds = {own: [], long: []}
    for index in range(bursts):
        for worker in (own, long) if index % 2 == 0 else (long, own):
            worker.steps(1)  # the one that slept finds its caches cold
            seconds[worker] += worker.steps(burst)
    return seconds[own], seconds[long]


def one_turn(own, long, busy, model):
    _, burst, bursts, beside_steps, long_steps = MODELS[model]
    mine, others = alone(own, long, burst, bursts)
    with busy:
        own.steps(1)
        beside = own.steps(beside_steps)
        beside_long = long.steps(long_steps) if long_steps else []
    found = {"alone": statistics.median(mine), "beside": statistics.mean(beside) / statistics.mean(mine),
             "cost": statistics.median(mine) / statistics.median(others)}
    if beside_long:
        found["beside_long"] = statistics.mean(beside_long) / statistics.mean(others)
    return found


def run_model(model, busy, options):
    """The results of a model by name, and those of them that miss their target."""
    words = MODELS[model][0]
    own, long = Worker(f"{model} own", words, options.spin_count), Worker(f"{model} long", words, LONG)
    print(f"{model}: {own.threads}", flush=True)
    for worker in (own, long):
        worker.steps(3)
    turns = []
    for index in range(options.turns):
        turns.append(one_turn(own, long, busy, model))
        print(f"{model} turn {index + 1}: alone {1e3 * turns[-1]['alone']:.1f} ms a step, "
              f"cost {turns[-1]['cost']:.4f}, beside {turns[-1]['beside']:.3f}" +
              (f", spinning long {turns[-1]['beside_long']:.2f}" if "beside_long" in turns[-1] else ""), flush=True)
    own.end()
    long.end()
    median = {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
    times = [turn["alone"] for turn in turns]
    results = [f"{model}_beside={median['beside']:.3f}", f"{model}_cost={median['cost']:.4f}",
               f"{model}_ms={1e3 * median['alone']:.1f}", f"{model}_spread={max(times) / min(times):.2f}"]
    if "beside_long" in median:
        results.append(f"{model}_beside_long={median['beside_long']:.2f}")
    return results, median["beside"] > TARGET_BESIDE or median["cost"] > TARGET_COST


def main():
    options = arguments()
    results, short = [], False
    busy = BusyProcesses()
    try:
        for model in options.models:
            found, missed = run_model(model, busy, options)
            results += found
            short |= missed
    finally:
        busy.end()
    print(*results, f"busy={len(busy.processes)} turns={options.turns}")
    return 1 if short else 0


if __name__ == "__main__":
    sys.exit(main())
