"""The trainings of tests/faults/soak.py: one process that is killed and started again by the script, ranks that
`octavo launch` starts again, and one process that nobody kills."""
import json
import os
import re
import signal
import statistics
import subprocess
import threading
import time

import common
from common import STOPPED
from rank_runs import Launched, status_bytes
from restarts import CURED, FAULTS, LIBRARY

CONFIG = """
model_name: custom
n_layer: 2
n_head: 2
n_embd: 64
max_seq_length: 128
batch_size: {batch_size}
max_steps: 100000000
learning_rate: 1e-3
warmup_steps: 100
eval_freq: 0
checkpoint_freq: {checkpoint_freq}
keep_checkpoints: 3
num_threads: 1
mixed_precision: fp32
dist_timeout: 10
run_name: run
"""
# What a process dies of, and what only a launcher or the rank itself can see. All of them are cured by a restart.
SIGNALS = ("SIGKILL", "SIGSEGV", "SIGBUS", "SIGABRT", "SIGQUIT")
INSIDE = tuple(kind for kind, end in FAULTS.items() if end == CURED)
SAMPLES = 16  # of a step, over all ranks
PATIENCE = 120  # seconds for a start, a restart or a stop


def memory(pid):
    """Resident bytes of a process, all of them and those that no file backs."""
    return tuple(status_bytes(pid, name) for name in ("VmRSS", "RssAnon"))


class Life:
    """From a start to an end of the processes that train together. Start-up is over when the first step begins."""

    def __init__(self, started):
        self.started, self.first_step, self.first_step_began = started, None, None
        self.steps, self.memory = 0, None

    def startup_seconds(self, until):
        return (self.first_step_began or until) - self.started


class Chain:
    """A training that is killed again and again, and continues. `measured` is the life's step at which memory is read."""

    def __init__(self, work, name, ranks, checkpoint_freq, measured):
        self.folder = common.Folder(work / name, CONFIG.format(batch_size=SAMPLES // ranks,
                                                               checkpoint_freq=checkpoint_freq))
        self.name, self.measured, self.lives, self.problems = name, measured, [], []
        self.kills, self.kept_before_kill, self.tail = 0, [], []
        self.began, self.ended, self.kinds = None, None, set()

    def listen(self, stream):
        """Reads what the run says, until it has nothing more to say."""
        for raw in stream:
            line = raw if isinstance(raw, str) else raw.decode(errors="replace")
            step = re.match(r"step\s+(\d+) .*dt: ([0-9.]+)ms", line)
            if step:
                self.on_step(int(step.group(1)), float(step.group(2)) / 1000)
            else:
                self.tail = [*self.tail[-200:], line]
                self.on_line(line)

    def on_line(self, line):
        if "CHECKPOINT NOT USABLE" in line:
            self.problems.append(f"{self.name}: {line.strip()}")

    def on_step(self, step, seconds):
        life = self.lives[-1]
        if life.first_step is None:
            life.first_step, life.first_step_began = step, time.monotonic() - seconds
        life.steps += 1
        if life.steps == self.measured:
            try:
                life.memory = memory(self.trainer())
            except (OSError, KeyError):
                pass  # it ended meanwhile

    def wait_for(self, what):
        """Until it is so; False when patience or the run ended first."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self.stop_target().poll() is None and not what():
            time.sleep(0.02)
        return bool(what())

    def wait_until_training(self):
        if not self.wait_for(lambda: self.lives[-1].first_step is not None):
            raise RuntimeError(f"{self.name} did not start:\n{''.join(self.tail[-40:])}")
        if self.kept_before_kill and self.lives[-1].first_step <= self.kept_before_kill[-1]:
            self.problems.append(f"{self.name} continued with step {self.lives[-1].first_step}, the checkpoint of "
                                 f"step {self.kept_before_kill[-1]} had been there")

    def disturb(self, chance):
        """A fault of a random kind in the midst of its work; then it continues. Returns the kind."""
        self.kept_before_kill.append(self.folder.newest())
        self.kills += 1
        kind = chance.choice(self.KINDS)
        self.kinds.add(kind)
        self.fail(kind, chance)
        self.continue_run()
        self.wait_until_training()
        return kind

    def stop(self):
        self.stop_target().send_signal(signal.SIGTERM)
        try:
            code = self.stop_target().wait(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            code = None
        if code != STOPPED:
            self.problems.append(f"{self.name} stopped with exit code {code}, wanted {STOPPED}")
        self.ended = time.monotonic()

    def abandon(self):
        """Ends what still runs when something went wrong."""
        target = self.began and self.ended is None and self.stop_target()
        if target:
            target.send_signal(signal.SIGCONT)
            target.terminate()  # a launcher takes its ranks with it
            target.wait(timeout=PATIENCE)

    def check_end(self):
        """Every step is there once, up to the last checkpoint; returns the seconds of those steps."""
        kept, wanted = 0.0, 1
        for line in open(self.folder.path / "runs" / "run" / "metrics.jsonl"):
            record = json.loads(line)
            if "train/loss" not in record:
                continue
            if record["step"] != wanted:
                self.problems.append(f"{self.name}: a record of step {record['step']}, wanted {wanted}")
            wanted, kept = record["step"] + 1, kept + record["perf/step_seconds"]
        if wanted - 1 != self.folder.newest():
            self.problems.append(f"{self.name}: records up to {wanted - 1}, a checkpoint of {self.folder.newest()}")
        unsound = self.folder.unsound()
        if unsound:
            self.problems.append(f"{self.name}: {unsound}")
        return kept

    def startup_seconds(self):
        ends = [*(life.started for life in self.lives[1:]), self.ended]
        return sum(life.startup_seconds(end) for life, end in zip(self.lives, ends))

    def growth_over_restarts(self):
        """MB from the first lives to the last, measured at the same step of a life."""
        found = [life.memory[0] for life in self.lives if life.memory]
        if len(found) < 2:
            return 0.0
        some = max(1, min(5, len(found) // 2))
        return (statistics.median(found[-some:]) - statistics.median(found[:some])) / 1e6


class OneProcess(Chain):
    KINDS = SIGNALS

    def __init__(self, work, name="alone", **more):
        super().__init__(work, name, 1, **more)
        self.process, self.listener = None, None

    def start(self):
        self.began = time.monotonic()
        self.begin(())
        self.wait_until_training()

    def begin(self, flags):
        self.lives.append(Life(time.monotonic()))
        self.process = self.folder.start(*flags)
        self.listener = threading.Thread(target=self.listen, args=(self.process.stdout,), daemon=True)
        self.listener.start()

    def continue_run(self):
        self.process.wait()
        self.listener.join()
        self.begin(self.folder.again())

    def trainer(self):
        return self.process.pid

    def fail(self, kind, chance):
        os.kill(self.process.pid, signal.Signals[kind])

    def stop_target(self):
        return self.process

    def check_end(self):
        for line in self.folder.log().splitlines():
            self.on_line(line)
        return super().check_end()


class Ranks(Chain):
    """Two of them. The launcher lives as long as the chain."""

    KINDS = (*SIGNALS, "SIGSTOP", *INSIDE)

    def __init__(self, work, **more):
        super().__init__(work, "ranks", 2, **more)
        self.launched, self.launcher_memory, self.faults = None, [], self.folder.path / "faults"
        self.waited = 0.0  # seconds that the launcher gave storage and networks to come back
        self.faults.mkdir()

    def start(self):
        self.began = time.monotonic()
        self.lives.append(Life(self.began))
        self.launched = Launched(self.folder, ("--nproc", "2", "--max_restarts", "100000"), flow=subprocess.PIPE,
                                 environment={"OCTAVO_RANK_FAULT": str(self.faults), "LD_PRELOAD": str(LIBRARY)})
        threading.Thread(target=self.listen, args=(self.launched.process.stdout,), daemon=True).start()
        self.wait_until_training()

    def on_line(self, line):
        super().on_line(line)
        restart = re.search(r"restart \d+ of \d+(?:.*, in ([0-9.]+) s)?", line)
        if restart:
            self.waited += float(restart[1] or 0)
            self.lives.append(Life(time.monotonic()))
            self.launcher_memory.append(memory(self.launched.process.pid)[0])

    def launcher_growth(self):
        """MB from the first restart to the last."""
        found = self.launcher_memory
        return (found[-1] - found[0]) / 1e6 if found else 0.0

    def continue_run(self):
        if not self.wait_for(lambda: len(self.lives) > self.kills):
            raise RuntimeError(f"{self.name} was not started again:\n{''.join(self.tail[-40:])}")

    def trainer(self):
        return self.launched.ranks()[0]

    def fail(self, kind, chance):
        victim, ranks = chance.randrange(2), self.launched.wait_for_ranks(2)
        if kind not in INSIDE:
            os.kill(ranks[victim], signal.Signals[kind])
            return
        waiting = self.faults / f".{victim}"
        waiting.write_text(kind)
        waiting.rename(self.faults / str(victim))

    def stop_target(self):
        return self.launched and self.launched.process


class Undisturbed(OneProcess):
    """Lives through the whole soak, and mostly sleeps, since only its memory and its numbers matter."""

    AWAKE, ASLEEP = 1.0, 4.0

    def __init__(self, work, **more):
        super().__init__(work, "undisturbed", **more)
        self.samples, self.leave = [], threading.Event()
        self.pacer = threading.Thread(target=self.pace, daemon=True)

    def start(self):
        super().start()
        self.pacer.start()
        self.wait_for(lambda: self.lives[-1].steps >= 20)

    def newest_steps(self):
        """Some of the last records."""
        with open(self.folder.path / "runs" / "run" / "metrics.jsonl", "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 10_000))
            lines = file.read().splitlines()[1:-1]
        return [record for record in map(json.loads, lines) if "train/loss" in record]

    def pace(self):
        while not self.leave.is_set():
            self.process.send_signal(signal.SIGCONT)
            self.leave.wait(self.AWAKE)
            self.samples.append((time.monotonic() - self.began, *memory(self.process.pid)))
            if not self.leave.is_set():
                self.process.send_signal(signal.SIGSTOP)
                self.leave.wait(self.ASLEEP)
        self.process.send_signal(signal.SIGCONT)

    def stop(self):
        self.leave.set()
        self.pacer.join()
        super().stop()

    def growth(self):
        """Percent from after the warm-up, a tenth of its life, to the end; of all memory and of what no file backs."""
        rows = [row for row in self.samples if row[0] >= self.samples[-1][0] / 10]
        some = max(1, len(rows) // 20)
        return [100 * (statistics.median(r[i] for r in rows[-some:]) / statistics.median(r[i] for r in rows[:some]) - 1)
                for i in (1, 2)]
