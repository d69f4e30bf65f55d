#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../.deps/venv/bin/python" "$0" "$@"'
# bench:
"""What saving GPT-2 124M costs (masters and moments in FP32, 1.5 GB).

Background: steps with a save started before them and steps without take turns, and the difference of neighbours counts.
What a save has not finished when its step ends counts in full. At most 5% of a step.
Foreground: saves, `dd conv=fsync` and `dd oflag=direct conv=fsync` of as many bytes to the same folder take turns; dd
reads random bytes from memory. At least 0.8 of `dd conv=fsync`; the rate against direct writes is said beside it.

usage: checkpoint.py [FOLDER]    FOLDER: on the disk to measure (default: where temporary files go)
"""
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release"))
TOOL = BUILD / "bin" / "checkpoint_tool"
MEMORY = pathlib.Path("/dev/shm")
BATCH, LENGTH = 8, 512
ACCUMULATION = int(os.environ.get("ACCUMULATION", "3"))  # 12,288 tokens in a step
TURNS = int(os.environ.get("TURNS", "6"))
WRITES = int(os.environ.get("WRITES", "5"))
MOST_COST, LEAST_RATE = 5.0, 0.8


class Tool:
    def __init__(self, folder):
        environment = os.environ | {"OMP_WAIT_POLICY": "passive"}  # spinning crawls on a shared machine
        self.process = subprocess.Popen([TOOL, folder, str(BATCH), str(LENGTH), str(ACCUMULATION)], env=environment,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def do(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"checkpoint_tool ended with exit code {self.process.wait()}")
        return [float(number) for number in line.split()]

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def dd(source, target, *flags):
    """Bytes per second."""
    start = time.monotonic()
    subprocess.run(["dd", f"if={source}", f"of={target}", "bs=8M", "conv=fsync", "status=none", *flags], check=True)
    seconds = time.monotonic() - start
    size = target.stat().st_size
    target.unlink()
    return size / seconds


def background(tool):
    tool.do("step")
    tool.do("saved")  # warm up: caches, first touches
    plain, saved, differences, held, late = [], [], [], [], []
    for turn in range(TURNS):
        one, two = ("step", "saved") if turn % 2 == 0 else ("saved", "step")
        results = {one: tool.do(one), two: tool.do(two)}
        plain.append(results["step"][0])
        saved.append(results["saved"][0] + results["saved"][2])
        differences.append(saved[-1] - plain[-1])
        held.append(results["saved"][1])
        late.append(results["saved"][2])
        print(f"turn {turn + 1}: step {plain[-1]:.2f} s, with a save {saved[-1]:.2f} s, of which still {held[-1]:.3f} s,"
              f" after the step {late[-1]:.3f} s", flush=True)
    step = statistics.median(plain)
    # The middle of the differences, and the difference of the middles: whichever is worse.
    cost = max(statistics.median(differences), statistics.median(saved) - step)
    return step, cost, statistics.median(held)


def foreground(tool, folder, size):
    rates = {"octavo": [], "dd": [], "direct": []}
    with tempfile.NamedTemporaryFile(dir=MEMORY) as source:
        for _ in range(size // (1 << 24) + 1):
            source.write(os.urandom(1 << 24))
        source.truncate(size)
        source.flush()
        for turn in range(WRITES):
            seconds, written = tool.do("save")
            rates["octavo"].append(written / seconds)
            rates["dd"].append(dd(source.name, folder / "dd"))
            rates["direct"].append(dd(source.name, folder / "dd", "oflag=direct"))
            print(f"write {turn + 1}: " + ", ".join(f"{name} {rate[-1] / 1e6:.0f} MB/s" for name, rate in rates.items()),
                  flush=True)
    return {name: statistics.median(rate) for name, rate in rates.items()}


def main():
    if not TOOL.exists():
        sys.exit(f"wanted {TOOL}, found none; ninja -C {BUILD} checkpoint_tool")
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as temporary:
        folder = pathlib.Path(temporary)
        tool = Tool(folder / "checkpoints")
        step, cost, held = background(tool)
        size = int(tool.do("save")[1])
        rates = foreground(tool, folder, size)
        tool.end()
    percent = 100 * max(cost, 0) / step
    rate, direct = rates["octavo"] / rates["dd"], rates["octavo"] / rates["direct"]
    print(f"cost_percent={percent:.2f} held_seconds={held:.3f} step_seconds={step:.2f} tokens={BATCH * LENGTH * ACCUMULATION}"
          f" bytes={size} rate={rate:.3f} rate_direct={direct:.3f} octavo_mb_s={rates['octavo'] / 1e6:.0f} dd_mb_s={rates['dd'] / 1e6:.0f}"
          f" dd_direct_mb_s={rates['direct'] / 1e6:.0f} turns={TURNS}")
    sys.exit(0 if percent <= MOST_COST and rate >= LEAST_RATE else 1)


if __name__ == "__main__":
    main()
