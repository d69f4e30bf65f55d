#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 night="" alone
"""Two nodes as network namespaces with a cable (a veth pair) between them, two ranks on each, sharded inside a node and
replicated across: the run ends bit for bit as the same layout on one machine. A wrong secret is not authenticated. A cut cable
ends both sides within the timeout, each with a message that names what it lost."""
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import common
from rank_runs import Launched, make_folder, named_as_lost, seconds_until_gone

STEPS, TIMEOUT, LOCAL = 30, 5, 2
LIMIT = TIMEOUT + 5  # seconds from the cut until all ranks are gone
CABLE = "octavo0"  # the interface's name on both nodes
ADDRESSES = ("10.77.0.1", "10.77.0.2")
SECRET = "of the two nodes' test only, and long enough"
ENVIRONMENT = 3  # exit code


class Nodes:
    """Two network namespaces; taken away again whatever happens."""

    def __init__(self):
        self.names = [f"octavo-{os.getpid()}-{node}" for node in range(2)]

    def __enter__(self):
        try:
            for name in self.names:
                self.ip("netns", "add", name)
            self.ip("link", "add", CABLE, "netns", self.names[0], "type", "veth", "peer", "name", CABLE, "netns",
                    self.names[1])
            for name, address in zip(self.names, ADDRESSES):
                self.ip("-n", name, "link", "set", "lo", "up")
                self.ip("-n", name, "address", "add", f"{address}/24", "dev", CABLE)
                self.ip("-n", name, "link", "set", CABLE, "up")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL, check=False)

    @staticmethod
    def ip(*arguments):
        done = subprocess.run(["ip", *arguments], stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip()}; this test needs root")

    def cut(self):
        self.ip("-n", self.names[1], "link", "set", CABLE, "down")

    def within(self, node):
        return ["ip", "netns", "exec", self.names[node]]


def start_both(folder, address, within, environment, secrets=(SECRET, SECRET)):
    """A launcher on each node, on one shared folder as clusters have it."""
    runs = []
    for node in range(2):
        runs.append(Launched(
            folder, ["--nproc", str(LOCAL), "--nnodes", "2", "--node_rank", str(node), "--master_address", address],
            within=within(node), environment=environment | {"OCTAVO_RENDEZVOUS_SECRET": secrets[node]}))
    return runs


def end_all(runs):
    for run in runs:
        run.end()


def finish(runs, what):
    codes = [run.wait(120) for run in runs]
    if codes != [0, 0]:
        end_all(runs)
        sys.exit(f"{what}: wanted exit codes [0, 0], found {codes}:\n" + "\n".join(run.said()[-3000:] for run in runs))


def new_folder(work, name, steps=STEPS):
    return make_folder(work / name, steps, 10, f"sharding_mode: hybrid\ndist_timeout: {TIMEOUT}\n")


def compare(work, nodes):
    """The problems of a run over the cable beside one over loopback."""
    alone = new_folder(work, "one-machine")
    finish(start_both(alone, "127.0.0.1", lambda node: [], {}), "two launchers on one machine")
    apart = new_folder(work, "two-nodes")
    finish(start_both(apart, ADDRESSES[0], nodes.within, {"GLOO_SOCKET_IFNAME": CABLE}), "two nodes")
    problems = []
    if not alone.tensors(STEPS) or apart.tensors(STEPS) != alone.tensors(STEPS):
        problems.append("weights or moments differ from those of one machine")
    difference = common.record_difference(apart.records(), alone.records())
    if difference:
        problems.append(difference)
    losses = [record["train/loss"] for record in apart.records() if "train/loss" in record]
    if len(losses) != STEPS:
        problems.append(f"{len(losses)} losses, wanted {STEPS}")
    return problems


def check_foreign_clients(work, nodes):
    """A node with another secret, and one with none, are told so at once."""
    problems = []
    for name, secret in (("wrong", "another secret, and long enough too"), ("none", "")):
        folder = new_folder(work, f"secret-{name}")
        runs = start_both(folder, ADDRESSES[0], nodes.within, {"GLOO_SOCKET_IFNAME": CABLE}, (SECRET, secret))
        code = runs[1].wait(20)
        if code != 2 or "OCTAVO_RENDEZVOUS_SECRET" not in runs[1].said():
            problems.append(f"secret {name}: exit code {code}: {runs[1].said()[-1000:]}")
        if SECRET in runs[0].said() + runs[1].said() + "".join(runs[0].log(r) for r in range(4)):
            problems.append("a log holds the secret")
        end_all(runs)
    return problems


def cut_the_cable(work, nodes):
    """The problems, and how long the ranks continued after the cut."""
    folder = new_folder(work, "cut", steps=100_000)
    runs = start_both(folder, ADDRESSES[0], nodes.within, {"GLOO_SOCKET_IFNAME": CABLE})
    try:
        started = [run.wait_for_ranks(LOCAL) for run in runs]
        deadline = time.monotonic() + 30
        while "step   10 " not in runs[0].log(0) and time.monotonic() < deadline:
            time.sleep(0.05)
        nodes.cut()
        pids = [pid for ranks in started for pid in ranks.values()]
        seconds = seconds_until_gone(pids, LIMIT + 10)
        codes = [run.wait(60) for run in runs]
    finally:
        end_all(runs)
    problems = []
    if len(pids) != 2 * LOCAL or seconds is None or seconds > LIMIT:
        problems.append(f"{len(pids)} ranks were gone {seconds} s after the cut, wanted {LIMIT}")
    if codes != [ENVIRONMENT] * 2:
        problems.append(f"launchers ended with {codes}, wanted {ENVIRONMENT}: " +
                        "".join(run.said()[-1500:] for run in runs))
    for rank in (0, 1):
        if named_as_lost(runs[0].log(rank)) != {2, 3}:
            problems.append(f"rank {rank} named others than ranks 2 and 3: {runs[0].log(rank)[-1500:]}")
    for rank in (2, 3):
        said = runs[1].log(rank)
        if f"the launcher of node 0 at {ADDRESSES[0]}" not in said or "missed in" not in said:
            problems.append(f"rank {rank} did not name the launcher of node 0: {said[-1500:]}")
    return problems, seconds or 0


def main():
    common.require_files()
    with tempfile.TemporaryDirectory() as temporary, Nodes() as nodes:
        work = pathlib.Path(temporary)
        common.prepare_data(work)
        problems = compare(work, nodes) + check_foreign_clients(work, nodes)
        cut_problems, seconds = cut_the_cable(work, nodes)
    problems += cut_problems
    for problem in problems:
        print(problem)
    print(f"nodes=2 ranks={2 * LOCAL} steps={STEPS} problems={len(problems)} cut_to_end_s={seconds:.1f} "
          f"timeout_s={TIMEOUT}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
