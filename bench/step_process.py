"""One side of a benchmark: a process that runs as many training steps as it is told on a line, and prints their seconds and, as
key=value, its results."""
import math
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build/release"))
STEP_BENCH = BUILD / "bin/step_bench"
PYTORCH_STEP = ROOT / "bench/pytorch_gpt2_step.py"
BATCH, LENGTH, THREADS = 4, 256, 2


def octavo(*options):
    """octavo's side: the command of its GPT-2 124M step."""
    return [str(STEP_BENCH), str(BATCH), str(LENGTH), *options]


def pytorch(source, mode):
    """PyTorch's side: the command of a Python program that defines the step."""
    return [sys.executable, "-c", source, str(PYTORCH_STEP), mode, str(BATCH), str(LENGTH)]


def check_machine(workers, gb_each, remedy):
    if not STEP_BENCH.is_file():
        sys.exit(f"wanted {STEP_BENCH}, found none; cmake --build --preset dev --target step_bench")
    with open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) / 1e6
    if free < workers * gb_each:
        sys.exit(f"wanted {workers * gb_each:.0f} GB of memory for {workers} processes, found {free:.0f}; {remedy}")


def stolen_seconds():
    """What the host of this virtual machine took of its CPUs since the start: 0 on a machine of one's own."""
    with open("/proc/stat") as file:
        return int(file.readline().split()[8]) / os.sysconf("SC_CLK_TCK")


class StepProcess:
    """`needs`: the results that every turn must have. A turn of which the host took more than MOST_STOLEN is taken again."""
    MOST_STOLEN, MOST_AGAIN = 0.02, 20
    taken_again = 0  # turns of all sides; a benchmark prints it

    def __init__(self, name, command, environment=None, needs=(), cwd=None):
        self.name, self.needs, self.results = name, needs, {}
        env = dict(os.environ if environment is None else environment, OMP_NUM_THREADS=str(THREADS))
        if command[0] == sys.executable:
            env["LD_PRELOAD"] = "libtcmalloc_minimal.so.4"
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env, cwd=cwd, text=True)

    def turn(self, steps):
        """The seconds of each step."""
        for again in range(self.MOST_AGAIN + 1):
            stolen, start = stolen_seconds(), time.monotonic()
            seconds = self.steps(steps)
            if stolen_seconds() - stolen <= self.MOST_STOLEN * THREADS * (time.monotonic() - start) or again == self.MOST_AGAIN:
                return seconds
            StepProcess.taken_again += 1

    def steps(self, steps):
        try:
            self.process.stdin.write(f"{steps}\n")
            self.process.stdin.flush()
            words = self.process.stdout.readline().split()
        except BrokenPipeError:
            words = []
        seconds = [float(word) for word in words if "=" not in word]
        self.results = {key: float(value) for key, value in (word.split("=") for word in words if "=" in word)}
        missing = [key for key in self.needs if key not in self.results]
        if len(seconds) != steps or missing or not math.isfinite(self.results.get("loss", 0.0)):
            self.process.stdin.close()
            sys.exit(f"{self.name}: wanted the times of {steps} steps, {', '.join(self.needs) or 'no results'} and a finite loss, "
                     f"found {words}; exit code {self.process.wait()}; build step_bench from this tree")
        return seconds

    def end(self):
        self.process.stdin.close()
        self.process.wait()
