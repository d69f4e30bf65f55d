"""For tests/faults/processes.py: one rank of several gets a signal, stands still or lags. Each function gives a text per
trial: what went wrong, or ""."""
import json
import os
import pathlib
import re
import signal
import time

import common
import rank_death
from common import STOPPED
from rank_runs import Launched, make_folder, named_as_lost

RANKS = 3
MODES = ("ddp", "zero1", "fsdp_full")
NEVER = 100_000_000  # steps: a signal ends these runs
# Of all processes below: a launcher's own code is one for all of its ranks.
WITH_EXIT_CODES = ("strace", "-f", "--seccomp-bpf", "-qq", "-e", "trace=exit_group", "-e", "signal=none", "-o")
SAVE_LIMIT = 5  # seconds beyond one step
PATIENCE = 60


def metrics(folder):
    return folder.path / "runs" / "run" / "metrics.jsonl"


def last_step(folder):
    """The record of the last step, read from the end; {} when there is none."""
    path = metrics(folder)
    if not path.exists():
        return {}
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 100_000))
        lines = file.read().splitlines(keepends=True)
    for line in reversed(lines):
        if line.endswith(b"\n") and b"perf/step_seconds" in line and line.startswith(b"{"):
            return json.loads(line)
    return {}


def steps_done(folder):
    return last_step(folder).get("step", 0)


def wait_until(what, process, patience=PATIENCE):
    """False when the process ended or patience did."""
    deadline = time.monotonic() + patience
    while not what():
        if process.poll() is not None or time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def listens(pid):
    """Does the process catch SIGTERM and SIGUSR1 by now?"""
    try:
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = int(status.split("SigCgt:")[1].split()[0], 16)
    return all(caught >> (number - 1) & 1 for number in (signal.SIGTERM, signal.SIGUSR1))


def signalled(folder, chance):
    """Continues, and one rank is asked to stop at a random moment. Returns the problem, how long it took, what it was."""
    before, ends = folder.newest(), folder.path / "ends.txt"
    run = Launched(folder, ("--nproc", str(RANKS), "--auto_resume"), within=(*WITH_EXIT_CODES, ends))
    try:
        pids = run.wait_for_ranks(RANKS)
        if not pids or not wait_until(lambda: all(map(listens, pids.values())), run.process):
            return f"the ranks did not start:\n{run.said()[-2000:]}", 0, ""
        time.sleep(chance.uniform(0, 2))
        # The limit counts from the first step on: a rank that still starts has nothing to save.
        early = steps_done(folder) <= before
        victim, number = chance.randrange(RANKS), chance.choice([signal.SIGTERM, signal.SIGUSR1])
        os.kill(pids[victim], number)
        if early:
            wait_until(lambda: steps_done(folder) > before, run.process)
        start = time.monotonic()
        code = run.wait(PATIENCE)
        seconds = time.monotonic() - start
    finally:
        run.end()
    record = last_step(folder)
    limit = SAVE_LIMIT + record.get("perf/step_seconds", 0)
    found = []
    codes = [int(number) for number in re.findall(r"exit_group\((\d+)", ends.read_text())]
    if codes != [STOPPED] * (RANKS + 1) or code != STOPPED:
        found.append(f"exit codes {codes}, wanted {STOPPED} of each rank and the launcher:\n{run.said()[-2000:]}")
    if seconds > limit:
        found.append(f"all had stopped after {seconds:.1f} s, wanted {limit:.1f}")
    if folder.newest() != record.get("step") or folder.newest() <= before:
        found.append(f"a checkpoint of step {folder.newest()} after that of step {before}, the last step was "
                     f"{record.get('step')}")
    return "; ".join(found), seconds, f"{number.name} to rank {victim}{' as it starts' if early else ''}"


def up_to(folder, step):
    return [r for r in common.read_records(metrics(folder)) if r["step"] <= step]


def difference_from_left_alone(work, folder, mode):
    """All those stops and resumes against a run that was left alone, as far as the stopped one came."""
    steps = folder.newest()
    alone = make_folder(work / f"alone-{mode}", NEVER, NEVER, f"sharding_mode: {mode}\n")
    run = Launched(alone, ("--nproc", str(RANKS)))
    try:
        wait_until(lambda: steps_done(alone) >= steps, run.process, patience=600)
        run.process.terminate()
        run.wait(PATIENCE)
    finally:
        run.end()
    return common.record_difference(up_to(folder, steps), up_to(alone, steps))


def signals(work, times, chance):
    """To any one rank: all save together and end in time. The next signal comes after a resume from that checkpoint."""
    problems, slowest = [], 0
    folders = {mode: make_folder(work / f"signals-{mode}", NEVER, NEVER, f"sharding_mode: {mode}\n")
               for mode in MODES[:times]}
    for trial in range(times):
        mode = list(folders)[trial % len(folders)]
        problem, seconds, what = signalled(folders[mode], chance)
        slowest = max(slowest, seconds)
        problems.append(problem)
        print(f"signal {trial + 1} of {times} ({mode}): {what}: {seconds:.2f} s, step {folders[mode].newest()}; "
              f"{problem or 'saved together'}", flush=True)
    for mode, folder in folders.items():
        problem = folder.unsound() or difference_from_left_alone(work, folder, mode)
        print(f"{mode}: {problem or f'{folder.newest()} steps as in a run left alone'}", flush=True)
        if problem:
            problems[list(folders).index(mode)] += problem
    return problems, {"slowest_stop_s": f"{slowest:.2f}"}


def paused(work, name, mode, length, chance, wanted):
    """Stands still for less than the time-out, then continues: nobody is lost, nothing differs."""
    folder = rank_death.new_folder(work, name, mode)
    run = Launched(folder, rank_death.FLAGS)
    try:
        pids = run.wait_for_ranks(rank_death.RANKS)
        if not pids:
            return f"{name}: the ranks did not start:\n{run.said()[-2000:]}"
        time.sleep(chance.uniform(0, length * 0.7))
        victim, pause = chance.randrange(rank_death.RANKS), chance.uniform(0.3, rank_death.TIMEOUT * 0.6)
        try:
            os.kill(pids[victim], signal.SIGSTOP)
            time.sleep(pause)
            os.kill(pids[victim], signal.SIGCONT)
        except ProcessLookupError:
            pass  # the run was over
        code = run.wait(PATIENCE)
    finally:
        run.end()
    lost = set().union(*(named_as_lost(run.log(rank)) for rank in range(rank_death.RANKS)))
    found = [f"exit code {code}"] if code != 0 else []
    found += [f"ranks {sorted(lost)} were called lost"] if lost else []
    found += ["it was started again"] if "restart " in run.said() else []
    found += ["the weights differ"] if code == 0 and folder.tensors(rank_death.STEPS) != wanted else []
    print(f"rank {victim} stood still for {pause:.1f} s ({mode}): {'; '.join(found) or 'continued'}", flush=True)
    return "; ".join(found)


def stops(work, times, chance):
    """SIGSTOP: named and started again after the time-out, or no matter when it continues before it."""
    problems, slowest, references = [], 0, {}
    for trial in range(times):
        mode = rank_death.MODES[trial % len(rank_death.MODES)]
        if mode not in references:
            references[mode] = rank_death.undisturbed(work, mode)
        wanted, length = references[mode]
        unnamed, differs, seconds = rank_death.trial(work, f"stop-{trial}", signal.SIGSTOP, mode, length * 0.8, chance,
                                                     wanted)
        slowest = max(slowest, seconds)
        problems.append("not named in time, or not started again with the same weights" if unnamed or differs else "")
        problems.append(paused(work, f"pause-{trial}", mode, length, chance, wanted))
    return problems, {"slowest_after_stop_s": f"{slowest:.1f}"}


def flags_named(folder):
    return [flag["seen"] for flag in common.read_flags(metrics(folder)) if flag["flag"] == "slow_rank"]


def straggler(work, times, chance):
    """A rank that gets two thirds of its time, and so needs half as long again, is named by the flag slow_rank."""
    problems = []
    for trial in range(times):
        folder, victim = make_folder(work / f"straggler-{trial}", NEVER, NEVER), chance.randrange(RANKS)
        run = Launched(folder, ("--nproc", str(RANKS)), ("--n_embd=128", "--max_seq_length=128", "--eval_freq=0"))
        try:
            pids = run.wait_for_ranks(RANKS)
            wait_until(lambda: steps_done(folder) >= 20, run.process)
            before, from_step, deadline = len(flags_named(folder)), steps_done(folder), time.monotonic() + 40
            while len(flags_named(folder)) == before and time.monotonic() < deadline and run.process.poll() is None:
                for _ in range(10):
                    os.kill(pids[victim], signal.SIGSTOP)
                    time.sleep(0.05)
                    os.kill(pids[victim], signal.SIGCONT)
                    time.sleep(0.1)
            steps = steps_done(folder) - from_step
            run.process.terminate()
            run.wait(PATIENCE)
        finally:
            run.end()
        named = flags_named(folder)[before:]
        problem = "" if named and f"rank {victim} " in named[0] else f"rank {victim} lagged, the flags are {named}"
        print(f"straggler: rank {victim}: {problem or f'named within {steps} steps: {named[0]}'}", flush=True)
        problems.append(problem)
    return problems, {}
