"""For tests/faults/processes.py: a clock that jumps, and memory that ends. Each function gives a text per trial: what went
wrong, or "", or None when it could not be tried."""
import json
import mmap
import os
import pathlib
import pty
import re
import resource
import signal
import struct
import subprocess
import sys
import time

import common
from common import BUILD, OCTAVO
from process_ranks import PATIENCE, metrics, steps_done, wait_until
from rank_runs import Launched, make_folder, named_as_lost, seconds_until_gone, status_bytes

ENVIRONMENT = 3  # exit code
STEPS, RANKS, TIMEOUT = 60, 2, 5
DAY = 86400
TENSORBOARD = "use_tensorboard: true\n"


class Clock:
    """The clock of the day of the processes that are started in its environment."""

    def __init__(self, path):
        path.write_bytes(bytes(16))
        library = BUILD / "lib" / "libclock_jump.so"
        if not library.exists():  # the loader would only warn, and the clock would not jump
            sys.exit(f"wanted {library}, found none; build the target clock_jump")
        self.environment = {"LD_PRELOAD": str(library), "OCTAVO_CLOCK_SHIFT": str(path)}
        with open(path, "r+b") as file:
            self.shared = mmap.mmap(file.fileno(), 16)

    def jump(self, days):
        self.shared[:8] = struct.pack("q", days * DAY)

    def waits(self):
        """Waits until a time of the day: a jump would end or prolong them."""
        return struct.unpack("q", self.shared[8:])[0]


def created(folder):
    """When each checkpoint says that it was made, in days from now."""
    texts = [json.loads((folder.checkpoints / name / "manifest.json").read_text())["created"]
             for name in folder.named("step-")]
    stamps = [time.mktime(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone for text in texts]
    return [round((stamp - time.time()) / DAY) for stamp in stamps]


def times_problem(folder):
    """What of the measured times of a run cannot be."""
    records = [json.loads(line) for line in metrics(folder).read_text().splitlines()]
    steps = [r for r in records if "perf/step_seconds" in r]
    wrong = [r["step"] for r in steps if not 0 < r["perf/step_seconds"] < PATIENCE or not 0 < r["goodput"] <= 1
             or not 0 <= r["data/wait"] <= 1]
    return f"times of steps {wrong} cannot be" if wrong else ""


def at_a_terminal(folder, clock, days):
    """One process, which shows the time left there. Returns the exit code and what it showed."""
    master, slave = pty.openpty()
    command = [OCTAVO, "train", "train.yaml", "--dataset", folder.path.parent / "data", "--log_freq", "1000"]
    process = subprocess.Popen(command, cwd=folder.path, stdout=slave, stderr=slave, start_new_session=True,
                               env=os.environ | clock.environment | {"OMP_WAIT_POLICY": "passive", "TERM": "xterm"})
    os.close(slave)
    os.set_blocking(master, False)
    shown, jumped, deadline = b"", False, time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            shown += os.read(master, 65536)
        except BlockingIOError:
            time.sleep(0.005)
        except OSError:
            break  # its end
        if not jumped and steps_done(folder) >= STEPS // 3:
            clock.jump(days)
            jumped = True
    else:
        process.kill()
    os.close(master)
    return process.wait(), shown.decode(errors="replace")


def jump_alone(work, days, wanted):
    folder = make_folder(work / f"clock-alone-{days}", STEPS, 5, TENSORBOARD)
    clock = Clock(work / f"clock-alone-{days}" / "shift")
    code, shown = at_a_terminal(folder, clock, days)
    left = re.findall(r"(\d[^,|]*?) left", shown)
    found = [f"exit code {code}:\n{shown[-2000:]}"] if code != 0 else []
    found += ["the terminal showed no time left"] if not left else []
    found += [f"time left: {text}" for text in left if " h " in text or " d " in text]
    found += [f"{clock.waits()} waits until a time of the day"] if clock.waits() else []
    if code == 0:
        # The times never go back: retention keeps those that were saved last by them.
        dates = created(folder)
        found += [f"dates of the checkpoints: {dates} days"] if dates != [max(days, 0)] * 3 else []
        found += [f"the checkpoints are {folder.named('step-')}"] if folder.newest() != STEPS or \
            folder.named("step-")[0] != f"step-{STEPS - 10:08d}" else []
        found += ["the weights differ"] if folder.tensors(STEPS) != wanted else []
        found += [times_problem(folder), folder.unsound()]
    return "; ".join(filter(None, found))


def jump_ranks(work, days, wanted, chance):
    """The clock jumps, and later, while a rank stands still and the others wait for it, the other way: they wait as
    long as they should, and the launcher starts all again."""
    folder = make_folder(work / f"clock-ranks-{days}", STEPS, 10, TENSORBOARD + f"dist_timeout: {TIMEOUT}\n")
    clock = Clock(work / f"clock-ranks-{days}" / "shift")
    run = Launched(folder, ("--nproc", str(RANKS), "--max_restarts", "2"), environment=clock.environment)
    try:
        pids, victim = run.wait_for_ranks(RANKS), chance.randrange(RANKS)
        started = wait_until(lambda: steps_done(folder) >= 13, run.process)
        clock.jump(days)
        # Away from the next save: one that waits for a part is given up after 60 s.
        wait_until(lambda: steps_done(folder) >= 22, run.process)
        if not pids or not started or run.process.poll() is not None:
            return f"the run was over too soon:\n{run.said()[-2000:]}"
        os.kill(pids[victim], signal.SIGSTOP)
        began = time.monotonic()
        time.sleep(1)
        clock.jump(-days)
        gone = seconds_until_gone([pid for rank, pid in pids.items() if rank != victim], PATIENCE)
        seconds = None if gone is None else time.monotonic() - began
        named = named_as_lost(run.log(1 - victim))
        code = run.wait(PATIENCE)
    finally:
        run.end()
    found = [f"exit code {code}:\n{run.said()[-2000:]}"] if code != 0 else []
    if seconds is None or not TIMEOUT - 1 < seconds < TIMEOUT + 8:  # a second of it since Gloo may be first
        found.append(f"the other rank left after {seconds} s, dist_timeout is {TIMEOUT}")
    found += [f"ranks {sorted(named)} were called lost, wanted {victim}"] if named != {victim} else []
    found += ["the weights differ"] if code == 0 and folder.tensors(STEPS) != wanted else []
    return "; ".join(filter(None, [*found, folder.unsound()]))


def left_alone(work, name, ranks):
    folder = make_folder(work / name, STEPS, 5)
    if ranks == 1:
        folder.finish_or_exit()
    else:
        Launched(folder, ("--nproc", str(ranks))).wait(PATIENCE)
    return folder.tensors(STEPS)


def clocks(work, times, chance):
    """The clock of the day jumps by a day, forward and back, during a run. libtorch's own waits for other ranks go by
    it; those of a single process must not."""
    problems, wanted = [], [left_alone(work, f"clock-left-alone-{ranks}", ranks) for ranks in (1, RANKS)]
    for days in (1, -1)[:times]:
        for name, problem in (("alone", jump_alone(work, days, wanted[0])),
                              ("ranks", jump_ranks(work, days, wanted[1], chance))):
            print(f"clock {days:+d} day, {name}: {problem or 'no matter'}", flush=True)
            problems.append(problem)
    return problems, {}


def cap(process, chance, from_start):
    """Bounds the memory of a run: to what it has at a random step or little more, or from its start on to less than
    it needs. False when the run was over before."""
    limit = chance.randrange(20_000_000, 100_000_000)
    if not from_start:
        if not common.wait_for_step(process, chance.randrange(6, STEPS // 2)):
            return False
        limit = status_bytes(process.pid, "VmData") + chance.choice([0, 0, 200_000, 1_000_000])
    try:
        resource.prlimit(process.pid, resource.RLIMIT_DATA, (limit, limit))
    except ProcessLookupError:
        return False
    return True


def capped(folder, chance, from_start):
    """Returns the problem, and how it ended."""
    process = folder.start("--log_freq", "1")
    if not cap(process, chance, from_start):
        return "the run ended before", ""
    try:
        process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        return "it hung", "hung"
    code = process.returncode
    said = folder.log().strip().splitlines()[-1:] or [""]
    if code not in (0, ENVIRONMENT):
        return f"exit code {code}, wanted 0 or {ENVIRONMENT}: {folder.log()[-2000:]}", f"exit code {code}"
    if code == ENVIRONMENT and not re.search("memory|thread", said[0]):
        return f"the last line does not speak of memory: {said[0]}", "no message"
    return "", "refused" if code else "enough"


def memory_alone(work, number, wanted, chance):
    """Ends with a message, keeps its checkpoints, and resumes from them when there is memory again."""
    folder = make_folder(work / f"memory-{number}", STEPS, 2)
    problem, how = capped(folder, chance, from_start=number % 2 == 1)
    found = [problem, folder.unsound()]
    if how == "refused":
        code = folder.finish(*folder.again())
        found += [f"the resume ended with exit code {code}"] if code != 0 else []
    halved = "out of memory in step" in folder.log()  # which rounds sums otherwise, and says so
    if not any(found) and not halved and folder.tensors(STEPS) != wanted:
        found.append("the weights differ")
    return "; ".join(filter(None, found)), how + (" with a smaller batch" if halved else "")


class MemoryGroup:
    """A control group of the kernel with a bound on memory, of either version; None where none can be made."""

    @staticmethod
    def make(name):
        for parent, limit in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            path = pathlib.Path(parent) / name
            try:
                path.mkdir()
                if (path / limit).exists():
                    return MemoryGroup(path, limit)
                path.rmdir()
            except OSError:
                continue
        return None

    def __init__(self, path, limit):
        self.path, self.limit = path, path / limit
        self.unbound = "-1" if limit.endswith("bytes") else "max"

    def take(self, pids):
        for pid in pids:
            (self.path / "cgroup.procs").write_text(str(pid))

    def bound(self, size):
        """The kernel refuses a bound that it cannot reach by freeing; then it has ended somebody, or will."""
        try:
            self.limit.write_text(str(size) if size else self.unbound)
        except OSError:
            pass

    def remove(self):
        for _ in range(100):
            try:
                return self.path.rmdir()
            except OSError:
                time.sleep(0.05)


def memory_ranks(work, number, wanted, chance):
    """The kernel ends a rank whose group has no memory left; the launcher starts all again, with more of it. None where
    the kernel does not."""
    group = MemoryGroup.make(f"octavo-{os.getpid()}-{number}")
    if group is None:
        return None, "no control group can be made here"
    folder = make_folder(work / f"memory-ranks-{number}", STEPS, 2)
    run = Launched(folder, ("--nproc", str(RANKS), "--max_restarts", "3"))
    try:
        pids, victim = run.wait_for_ranks(RANKS), chance.randrange(RANKS)
        step = chance.randrange(6, STEPS // 2)
        if not pids or not wait_until(lambda: steps_done(folder) >= step, run.process):
            return f"the run was over too soon:\n{run.said()[-2000:]}", ""
        group.take([pids[victim]])
        group.bound(1_000_000)
        # What it had belongs to the group it was in; what it takes from now on is too much.
        seconds = seconds_until_gone([pids[victim]], 20)
        code = run.wait(PATIENCE)
    finally:
        run.end()
        group.remove()
    if seconds is None:
        return None, "not reached"
    found = [f"exit code {code}:\n{run.said()[-2000:]}"] if code != 0 else []
    found += ["the weights differ"] if code == 0 and folder.tensors(STEPS) != wanted else []
    return "; ".join(filter(None, [*found, folder.unsound()])), "killed by the kernel and started again"


def memory(work, times, chance):
    """A cap on memory is reached: a message and exit code 3, or a kill and a restart; never a damaged checkpoint."""
    problems, hows = [], {}
    wanted = [left_alone(work, f"memory-left-alone-{ranks}", ranks) for ranks in (1, RANKS)]
    for trial in range(times):
        for of_ranks in (False, True) if trial % 4 == 0 else (False,):
            case, began = memory_ranks if of_ranks else memory_alone, time.monotonic()
            problem, how = case(work, trial, wanted[of_ranks], chance)
            hows[how] = hows.get(how, 0) + 1
            problems.append(problem)
            seconds = time.monotonic() - began
            print(f"memory, trial {trial + 1} of {times}: {problem or how}, {seconds:.0f} s", flush=True)
    print(f"memory: {hows}", flush=True)
    if not any("refused" in how for how in hows):
        problems.append("no cap was reached")
    return problems, {"memory_refused": sum(count for how, count in hows.items() if "refused" in how),
                      "memory_killed": hows.get("killed by the kernel and started again", 0)}
