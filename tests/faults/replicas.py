#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=faults timeout=600 night="--short" alone
"""Silent corruption of a rank's memory; the last line has the results.

flips    200 bits, one after the other, in weights, masters and moments of one of three ranks during a real training:
         the comparison names rank, parameter and kind, and before and after it finds nothing. Some are looked for
         steps later. Fewer of the same in other modes: spread over ranks, low-bit state, LoRA, FP8, nodes, two ranks
runs     the real program, with a bit flipped in a rank's memory from outside: all ranks end with exit code 4,
         checkpoints hold the right weights, --resume latest continues. Without comparisons they hold the wrong one
cost     the time of comparisons at the default frequency as a share of the steps of a model of 10 million parameters

usage: replicas.py [--short]    --short: fewer of each, for CI
"""
import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import common  # noqa: E402
import rank_runs  # noqa: E402
import reshard  # noqa: E402

TOOL = common.BUILD / "bin" / "replica_faults_tool"
GUARD = 4
FREQUENCY = 100  # the default of replica_check_freq
MOST_PERCENT = 1.0
MODES = {"ddp": 200, "low": 40, "zero1": 30, "zero2": 20, "fsdp": 20, "hybrid": 30, "lora": 30, "fp8": 20, "two": 20}
SHORT_MODES = {"ddp": 40, "zero1": 10, "two": 10}
# A learning rate that changes no weight but those that are zero: what memory holds is known, and can be found in it.
CONFIG = """
model_name: custom
n_layer: 2
n_head: 2
n_embd: 64
max_seq_length: 64
batch_size: 1
max_steps: {steps}
learning_rate: 1e-30
eval_freq: 0
num_threads: 1
log_freq: 1000
run_name: run
checkpoint_freq: {checkpoint_freq}
replica_check_freq: {frequency}
"""
STEPS = 100_000  # more than a run gets to
HIT = "h.1.mlp.c_fc.weight"
PATTERN = slice(4 * 64 * 100, 4 * 64 * 101)  # of its bytes: a row
BYTE, BIT = 4 * 7 + 3, 1  # in this row; of the exponent


class Tally:
    """What was tried, and what went wrong."""

    def __init__(self):
        self.start, self.lost = time.monotonic(), 0

    def note(self, name, problem):
        self.lost += bool(problem)
        print(f"[{time.monotonic() - self.start:.0f} s] {problem or name + ': as wanted'}", flush=True)


def flip_in_mode(work, mode, count):
    """The tool's results, its progress passed on."""
    process = subprocess.Popen([TOOL, mode, str(count), work / "data"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)
    found = {}
    for line in process.stdout:
        if line.startswith("{"):
            found = json.loads(line)
        else:
            print(line, end="", flush=True)
    said = process.stderr.read()
    if process.wait() != 0 or not found:
        sys.exit(f"{mode}: the tool ended with {process.returncode}:\n{said[-5000:]}")
    print(json.dumps(found), flush=True)
    if said:
        print(said[-3000:], flush=True)
    return found


def wrong_in(found):
    """How many of the tool's tries did not end as they should."""
    return (found["tried"] - found["attributed"] + found["false_alarms"] + found["late"] - found["late_attributed"]
            + found["undone"] - found["undone_alike"])


def writable_memory(pid):
    """(begin, end) of what a process has as its own."""
    for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
        fields = line.split()
        if fields[1].startswith("rw-p") and (len(fields) < 6 or fields[5] == "[heap]"):
            begin, end = (int(part, 16) for part in fields[0].split("-"))
            yield begin, end


def places_of(pid, pattern):
    """Where a process has these bytes in its memory."""
    places = []
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for begin, end in writable_memory(pid):
            try:
                memory.seek(begin)
                content = memory.read(end - begin) or b""
            except OSError:
                continue  # reserved, or gone meanwhile
            places += [begin + match.start() for match in re.finditer(re.escape(pattern), content)]
    return places


def flip_in_memory(pid, weights):
    """Flips a bit of the master weights. Again, when an update that was under way has undone it."""
    pattern = weights[PATTERN]
    places = places_of(pid, pattern)
    for attempt in range(20):
        with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
            for place in places:
                memory.seek(place + BYTE)
                memory.write(bytes([pattern[BYTE] ^ 1 << BIT]))
            time.sleep(0.05)
            try:
                memory.seek(places[0] + BYTE)
                if memory.read(1) != pattern[BYTE:BYTE + 1]:
                    return len(places)
            except (OSError, IndexError):
                return len(places)
    return 0


def stored(folder, which="latest"):
    """The bytes of the weight in a checkpoint."""
    return reshard.read_checkpoint(folder.checkpoints / which)[("model", HIT)][2]


def steps_saved(folder):
    return [int(name.split("-")[1]) for name in folder.named("step-")]


class Case:
    """A run of some ranks in which one bit is flipped in one of them."""

    def __init__(self, work, name, weights, ranks=3, victim=0, frequency=10, checkpoint_freq=25, steps=STEPS):
        self.name, self.weights, self.ranks = name, weights, ranks
        self.folder = common.Folder(work / name, CONFIG.format(steps=steps, checkpoint_freq=checkpoint_freq,
                                                               frequency=frequency))
        launched = rank_runs.Launched(self.folder, ["--nproc", str(ranks)])
        try:
            self.places = self.hit(launched, victim)
            self.code = launched.wait(120)
        finally:
            launched.end()
        self.logs = [launched.log(rank) for rank in range(ranks)]
        path = self.folder.path / "runs" / "run" / "receipt.json"
        self.receipt = json.loads(path.read_text())["replicas"] if path.exists() else None

    def hit(self, launched, victim):
        pids = launched.wait_for_ranks(self.ranks)
        deadline = time.monotonic() + 60
        while not steps_saved(self.folder) and time.monotonic() < deadline and launched.process.poll() is None:
            time.sleep(0.02)
        return flip_in_memory(pids[victim], self.weights) if pids and launched.process.poll() is None else 0

    def resumed(self):
        """The exit code of continuing for some steps."""
        launched = rank_runs.Launched(self.folder, ["--nproc", str(self.ranks)],
                                      ["--resume", "latest", "--max_steps", str(max(steps_saved(self.folder)) + 30)])
        try:
            return launched.wait(120)
        finally:
            launched.end()

    def right(self):
        return stored(self.folder) == self.weights

    def problem(self, wants):
        missing = [what for what, holds in wants.items() if not holds]
        logs = "\n".join(log[-1500:] for log in self.logs)
        return f"{self.name}: wanted {'; '.join(missing)}; exit code {self.code}\n{logs}" if missing else ""


def has_majority(work, weights):
    for name, keys in (("every 10 steps", {}), ("before a checkpoint", {"frequency": 1_000_000})):
        case = Case(work, name.replace(" ", "-"), weights, **keys)
        words = ("rank 0 (", f"master weights of {HIT}", "alike after step", "--resume latest")
        yield name, case.problem({
            "a place to flip": case.places, f"exit code {GUARD}": case.code == GUARD,
            "every rank to name rank 0, the weight and what to do": all(w in log for log in case.logs for w in words),
            "nobody else named": not any(re.search(r"ranks? [12] \(", log) for log in case.logs),
            f"one difference in the receipt, found {case.receipt}": case.receipt and case.receipt["differences"] == 1,
            "the right weight in the last checkpoint": case.right(), "a resumption to its end": case.resumed() == 0,
            "the right weight after it": case.right()})


def two_ranks(work, weights):
    case = Case(work, "two-ranks", weights, ranks=2, victim=1)
    yield "two ranks", case.problem({
        "a place to flip": case.places, f"exit code {GUARD}": case.code == GUARD,
        "both to say that it cannot be told": all("cannot be told apart" in log for log in case.logs),
        "the weight": all(f"master weights of {HIT}" in log for log in case.logs),
        "it said at the start": "of two, the wrong one cannot be told" in case.logs[0],
        "the right weight in the last checkpoint": case.right()})


def not_compared(work, weights):
    """That the flip does harm, and that the comparisons are what finds it."""
    case = Case(work, "not-compared", weights, frequency=0, checkpoint_freq=50, steps=600)
    yield "not compared", case.problem({
        "a place to flip": case.places, "exit code 0": case.code == 0,
        "it said": "replicas are not compared" in case.logs[0], "no receipt": case.receipt is None,
        "the wrong weight in the checkpoint": not case.right()})


def known_weights(work):
    """What the runs hold in memory: a run of one step saves it."""
    folder = common.Folder(work / "known", CONFIG.format(steps=1, checkpoint_freq=0, frequency=0))
    folder.finish_or_exit()
    return stored(folder)


def percent_of_step(work, steps):
    """Of a run of three ranks with 10 million parameters: seconds of a comparison over those of 100 steps."""
    config = CONFIG.format(steps=steps, checkpoint_freq=0, frequency=FREQUENCY)
    sizes = {"n_layer": 6, "n_head": 6, "n_embd": 384, "max_seq_length": 128, "learning_rate": "1e-3"}
    for key, value in sizes.items():
        config = re.sub(rf"^{key}: .*$", f"{key}: {value}", config, flags=re.M)
    folder = common.Folder(work / "cost", config.replace(f"replica_check_freq: {FREQUENCY}\n", ""))
    launched = rank_runs.Launched(folder, ["--nproc", "3"])
    try:
        code = launched.wait(600)
    finally:
        launched.end()
    if code != 0:
        sys.exit(f"the run whose comparisons are timed ended with {code}:\n{launched.log(0)[-3000:]}")
    run = folder.path / "runs" / "run"
    receipt = json.loads((run / "receipt.json").read_text())
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    seconds = [record["perf/step_seconds"] for record in records if "perf/step_seconds" in record]
    took = receipt["replicas"]["seconds"] / receipt["replicas"]["checks"]
    step = statistics.median(seconds)  # the first takes longer, and so does one that others disturb
    percent = 100 * took / (FREQUENCY * step)
    print(f"cost: {receipt['parameters']} parameters, {receipt['replicas']['bytes'] / 1e6:.0f} MB a rank compared in "
          f"{took:.3f} s ({receipt['replicas']['checks']} times), {len(seconds)} steps of {step:.3f} s", flush=True)
    return percent, receipt["parameters"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    short = parser.parse_args().short
    common.require_files()
    tally = Tally()
    runs = 0
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        common.prepare_data(work)
        modes = {}
        for mode, count in (SHORT_MODES if short else MODES).items():
            modes[mode] = flip_in_mode(work, mode, count)
            tally.lost += wrong_in(modes[mode])
        weights = known_weights(work)
        for cases in (has_majority, two_ranks, not_compared)[:1 if short else 3]:
            for name, problem in cases(work, weights):
                tally.note(name, problem)
                runs += 1
        percent, parameters = percent_of_step(work, 8 if short else FREQUENCY)
    if percent > MOST_PERCENT:
        tally.note("cost", f"comparisons take {percent:.2f}% of the steps' time, wanted at most {MOST_PERCENT}%")
    main_mode = modes["ddp"]
    total = {key: sum(found[key] for found in modes.values()) for key in main_mode if key != "mode"}
    print(f"tried={main_mode['tried']} survived={main_mode['attributed']} lost={tally.lost} "
          f"attributed={main_mode['attributed']} false_alarms={total['false_alarms']} percent_of_step={percent:.2f} "
          f"parameters={parameters} modes={len(modes)} flips_in_all_modes={total['tried']} "
          f"attributed_in_all_modes={total['attributed']} late={total['late']} "
          f"late_attributed={total['late_attributed']} clean_checks={total['clean_checks']} runs={runs}")
    sys.exit(1 if tally.lost else 0)


if __name__ == "__main__":
    main()
