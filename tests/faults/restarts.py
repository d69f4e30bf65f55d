#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=faults timeout=900 gate="--short" alone
"""Every way in which a rank or a node can end, at random moments; the last line has the results.

Four ranks on two "nodes" of this machine (a launcher each, on loopback). One of them fails in one of the ways below. What
a restart cures continues to the weights of a run that was left alone, bit for bit; what it does not cure ends both launchers
with the code that the table of docs/concepts/restarts.md has. Either way the launchers name the rank that was at fault.

usage: restarts.py [--short] [--times N] [--only KIND]    --short: nine kinds once, for CI
"""
import argparse
import os
import pathlib
import random
import signal
import socket
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import common  # noqa: E402
from common import BUILD, STOPPED  # noqa: E402
from rank_runs import Launched, make_folder  # noqa: E402

NODES, LOCAL, STEPS, TIMEOUT, PATIENCE = 2, 2, 40, 4, 180
SECRET = "of the restarts' test only, and long enough"
LIBRARY = BUILD / "lib" / "librank_faults.so"
ENVIRONMENT = 3
DONE = 0

# What the launchers must end with. "cured": 0, after a restart, with the weights of the undisturbed run.
CURED = "cured"
SIGNALS = {"SIGKILL": CURED, "SIGSEGV": CURED, "SIGBUS": CURED, "SIGABRT": CURED, "SIGQUIT": CURED, "SIGSTOP": CURED,
           "SIGFPE": ENVIRONMENT, "SIGILL": ENVIRONMENT, "SIGXCPU": ENVIRONMENT, "SIGSYS": ENVIRONMENT,
           "SIGTERM": STOPPED, "SIGHUP": STOPPED, "SIGUSR1": STOPPED, "SIGPIPE": DONE}
# In the main thread of a rank, in a step (tests/faults/rank_faults.cpp). Numbers are CUDA's errors and errno's.
FAULTS = {"exit-3": CURED, "exit-1": 1, "exit-2": 2, "exit-4": 4, "exit-5": 5, "exit-42": 42, "exit-127": 127, "exit-130": 130,
          "cuda-2": CURED, "cuda-214": CURED, "cuda-719": CURED, "cublas": CURED, "nccl": CURED, "network": CURED, "bad_alloc": CURED,
          "file-116": CURED, "file-5": CURED, "file-28": CURED, "file-13": ENVIRONMENT, "shapes": 1, "logic": 1}
LAUNCHERS = {"node-1-lost": CURED, "node-0-lost": CURED, "launcher-1-killed": CURED, "launcher-0-killed": CURED,
             "stop-node-0": STOPPED, "stop-node-1": STOPPED, "hangup-node-0": STOPPED, "reader-gone": DONE}
KINDS = SIGNALS | FAULTS | LAUNCHERS
SHORT = ("SIGKILL", "SIGFPE", "SIGHUP", "exit-4", "cuda-214", "file-116", "launcher-1-killed", "launcher-0-killed", "stop-node-1")


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


class Cluster:
    """The launchers of two nodes, and their ranks."""

    def __init__(self, folder, gone_reader=False):
        self.folder, self.port, self.faults = folder, free_port(), folder.path / "faults"
        self.faults.mkdir()
        self.gone_reader, self.earlier = gone_reader, []
        self.launchers = [self.launch(node) for node in range(NODES)]

    def launch(self, node):
        flags = ["--nproc", str(LOCAL), "--nnodes", str(NODES), "--node_rank", str(node), "--master_address", "127.0.0.1",
                 "--master_port", self.port, "--max_restarts", "5", "--auto_resume"]
        flow = None
        if self.gone_reader and node == 0:
            reader, flow = os.pipe()
            os.close(reader)
        launched = Launched(self.folder, flags, flow=flow, environment={
            "OCTAVO_RENDEZVOUS_SECRET": SECRET, "OCTAVO_RANK_FAULT": str(self.faults), "LD_PRELOAD": str(LIBRARY)})
        if flow is not None:
            os.close(flow)
        return launched

    def ranks(self):
        return {rank: pid for launcher in self.launchers for rank, pid in launcher.ranks().items()}

    def wait_for_steps(self, step):
        """Until the step's record is there; False when the run ended before."""
        path = self.folder.path / "runs" / "run" / "metrics.jsonl"
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and all(each.process.poll() is None for each in self.launchers):
            if path.exists() and path.read_bytes().count(b'"train/loss"') >= step:
                return True
            time.sleep(0.02)
        return False

    def lose(self, node, ranks_too):
        """Kills a launcher, with its ranks at once or by the kernel, and starts it again as a scheduler would."""
        launcher = self.launchers[node]
        launcher.kill(ranks_too)
        self.earlier.append(launcher)
        self.launchers[node] = self.launch(node)

    def codes(self):
        deadline = time.monotonic() + PATIENCE
        return [each.wait(max(1, deadline - time.monotonic())) for each in self.launchers]

    def said(self):
        return "\n".join(each.said() for each in [*self.earlier, *self.launchers])

    def end(self):
        for each in self.launchers:
            each.end()


def new_folder(work, name):
    return make_folder(work / name, STEPS, 5, f"sharding_mode: ddp\ndist_timeout: {TIMEOUT}\n")


def undisturbed(work):
    folder = new_folder(work, "reference")
    cluster = Cluster(folder)
    try:
        codes = cluster.codes()
    finally:
        cluster.end()
    if codes != [0] * NODES or not folder.tensors(STEPS):
        sys.exit(f"the undisturbed run ended with {codes}:\n{cluster.said()[-3000:]}")
    return folder.tensors(STEPS), folder.records()


def disturb(cluster, kind, chance):
    """Returns the rank that must be named, or None where nobody is at fault."""
    victim = chance.randrange(NODES * LOCAL)
    if kind in SIGNALS:
        os.kill(cluster.ranks()[victim], signal.Signals[kind])
        return None if SIGNALS[kind] in (STOPPED, DONE) else victim
    if kind in FAULTS:
        waiting = cluster.faults / f".{victim}"
        waiting.write_text(kind)
        waiting.rename(cluster.faults / str(victim))
        return victim
    if kind.startswith(("node-", "launcher-")):
        cluster.lose(int(kind.split("-")[1]), ranks_too=kind.startswith("node-"))
    elif kind.startswith(("stop-", "hangup-")):
        number = signal.SIGHUP if kind.startswith("hangup") else signal.SIGTERM
        cluster.launchers[int(kind[-1])].process.send_signal(number)
    return None


def judged(cluster, kind, victim, codes, reference):
    """What is not as the table says."""
    weights, records = reference
    wanted, said, found = KINDS[kind], cluster.said(), []
    code = 0 if wanted == CURED else wanted
    if codes != [code] * NODES:
        found.append(f"the launchers ended with {codes}, wanted {code}")
    if victim is not None and f"rank {victim} " not in said:
        found.append(f"rank {victim} was not named")
    restarted = "restart 1 of 5" in said
    if kind not in LAUNCHERS and restarted != (wanted == CURED):
        found.append("it was started again" if restarted else "it was not started again")
    if wanted in (CURED, DONE) and codes == [0] * NODES:
        if cluster.folder.tensors(STEPS) != weights:
            found.append("the weights differ")
        difference = common.record_difference(cluster.folder.records(), records)
        found += [difference] if difference else []
    unsound = cluster.folder.unsound()
    return [*found, unsound] if unsound else found


def trial(work, name, kind, chance, reference):
    cluster = Cluster(new_folder(work, name), gone_reader=kind == "reader-gone")
    began = time.monotonic()
    moment = chance.randrange(1, STEPS - 15)
    try:
        if not cluster.wait_for_steps(moment):
            found, victim = [f"it did not come to step {moment}"], None
        else:
            victim = disturb(cluster, kind, chance)
            found = judged(cluster, kind, victim, cluster.codes(), reference)
    finally:
        cluster.end()
    who = f"rank {victim}" if victim is not None else "no rank"
    print(f"{kind} ({who}) after step {moment}: {'; '.join(found) or KINDS[kind]}, {time.monotonic() - began:.1f} s", flush=True)
    if found:
        print(cluster.said()[-6000:])
        for rank in range(NODES * LOCAL):
            print(f"--- rank {rank}\n{cluster.launchers[0].log(rank)[-1500:]}")
    return not found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--times", type=int, default=5, help="of each kind")
    parser.add_argument("--only", choices=KINDS)
    parser.add_argument("--seed", type=int, default=30)
    options = parser.parse_args()
    common.require_files()
    if not LIBRARY.exists():
        sys.exit(f"wanted {LIBRARY}, found none; build the target rank_faults")
    kinds = [options.only] if options.only else list(SHORT if options.short else KINDS)
    times = 1 if options.short else options.times
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)  # a shell ignores it for what it runs in the background, and it is inherited
    chance, survived, began = random.Random(options.seed), 0, time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        common.prepare_data(work)
        reference = undisturbed(work)
        for number in range(times):
            for kind in kinds:
                survived += trial(work, f"{kind}-{number}", kind, chance, reference)
    tried = times * len(kinds)
    print(f"tried={tried} survived={survived} lost={tried - survived} kinds={len(kinds)} "
          f"cured_kinds={sum(KINDS[kind] == CURED for kind in kinds)} seconds={time.monotonic() - began:.0f}")
    sys.exit(1 if survived < tried else 0)


if __name__ == "__main__":
    main()
