#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=faults timeout=900 gate="--short" alone
"""Nodes that are lost and come back, at random; the last line has the results.

Four "nodes" of two ranks on this machine (a launcher each, on loopback) train as `octavo launch --nodes 1:4`. Launchers are
killed with their ranks and started again at random moments, one or two at once, also while the run still copes with the event
before. Every now and then it is node 0, which has the rendezvous: its launcher comes back at once, as a scheduler would have
it. In every second run a fifth launcher waits as a spare. Each run must end as one that was left alone:

lost, repeated   samples, by the numbers in metrics.jsonl: every step has those of the undisturbed run, in its order
batches          steps that do not have the global batch
loss_difference  of the last steps, from that of the undisturbed run: at most 1e-5, in FP32. The rest is the order of sums
shrunk, grown    restarts with fewer and with more ranks, as the receipt counts them
goodput          seconds of the steps that were kept / seconds from the first start to the end, in percent. With a loss or a
                 return every few steps it is low: what is measured is that it is never stuck

usage: elastic.py [--short] [--events N] [--seed N]    --short: one run with six events, for CI
"""
import argparse
import json
import pathlib
import random
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import common  # noqa: E402
from rank_runs import Launched  # noqa: E402
from restarts import free_port  # noqa: E402

NODES, LOCAL, STEPS, BATCH, PATIENCE = 4, 2, 100, 24, 120
FIRST, LAST, EVENTS = 6, STEPS - 20, 14  # steps between which events come, and how many in one run
MOST_DIFFERENCE, LEAST_CHANGES = 1e-5, 50
SECRET = "of the elastic test only, and long enough"
CONFIG = f"""
model_name: custom
n_layer: 1
n_head: 2
n_embd: 32
max_seq_length: 32
batch_size: 1
gradient_accumulation_steps: {BATCH // (NODES * LOCAL)}
max_steps: {STEPS}
learning_rate: 1e-3
eval_freq: 0
checkpoint_freq: 5
keep_checkpoints: 3
num_threads: 1
mixed_precision: fp32
sharding_mode: ddp
dist_timeout: 20
record_samples: true
run_name: run
"""


class Cluster:
    """The launchers of the nodes that are there, and their ranks."""

    def __init__(self, folder, spares):
        self.folder, self.port, self.spares = folder, free_port(), spares
        self.began, self.earlier = time.monotonic(), []
        self.launchers = {node: self.launch(node) for node in range(NODES + spares)}

    def launch(self, node):
        flags = ["--nproc", LOCAL, "--nodes", f"1:{NODES}", "--spares", self.spares, "--node_wait", "1", "--node_rank", node,
                 "--master_address", "127.0.0.1", "--master_port", self.port, "--max_restarts", "1000", "--auto_resume"]
        return Launched(self.folder, flags, environment={"OCTAVO_RENDEZVOUS_SECRET": SECRET})

    def is_over(self):
        return self.launchers[0].process.poll() is not None

    def wanted_ranks(self):
        return LOCAL * min(NODES, len(self.launchers))

    def lose(self, node):
        launcher = self.launchers.pop(node)
        launcher.kill()
        self.earlier.append(launcher)

    def bring_back(self, node):
        self.launchers[node] = self.launch(node)

    def step(self):
        """The last that metrics.jsonl has."""
        path = self.folder.path / "runs" / "run" / "metrics.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        for line in reversed(lines):
            try:
                return json.loads(line)["step"]
            except (ValueError, KeyError):
                continue
        return 0

    def ranks_now(self):
        """How many ranks those of node 0 were told of; 0 when there are none."""
        for pid in self.launchers[0].ranks().values():
            try:
                variables = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            return next((int(v.split(b"=")[1]) for v in variables if v.startswith(b"OCTAVO_RANKS=")), 0)
        return 0

    def settle(self, more):
        """Until the ranks are as many as the nodes allow and have made some steps more; False when the run is over."""
        deadline = time.monotonic() + PATIENCE
        reached = None
        while time.monotonic() < deadline:
            if self.is_over():
                return False
            if reached is None and self.ranks_now() == self.wanted_ranks():
                reached = self.step()
            step = self.step()
            if reached is not None and step < reached:
                reached = step  # records of steps that are done again are dropped
            if reached is not None and step >= reached + more:
                return True
            time.sleep(0.05)
        raise TimeoutError(f"{self.ranks_now()} ranks at step {self.step()}, wanted {self.wanted_ranks()}, {PATIENCE} s after an event")

    def codes(self):
        deadline = time.monotonic() + PATIENCE
        return {node: each.wait(max(1, deadline - time.monotonic())) for node, each in self.launchers.items()}

    def said(self):
        return "\n".join(f"--- launcher {each.log_name.name}\n{each.said()[-3000:]}" for each in [*self.earlier, *self.launchers.values()])

    def end(self):
        for each in self.launchers.values():
            each.end()


def event(cluster, chance):
    """One loss or return, or two at once; how many nodes it was."""
    up = [node for node in cluster.launchers if node != 0]
    down = [node for node in range(NODES + cluster.spares) if node not in cluster.launchers]
    if chance.random() < 0.04:
        cluster.lose(0)
        cluster.bring_back(0)
        return "node 0 lost and back", 1
    loses = not down or (up and chance.random() < 0.5)
    nodes = chance.sample(up if loses else down, min(len(up if loses else down), 2 if chance.random() < 0.2 else 1))
    for node in nodes:
        (cluster.lose if loses else cluster.bring_back)(node)
    return f"{'lost' if loses else 'back'}: {', '.join(map(str, nodes))}", len(nodes)


def steps_of(folder):
    path = folder.path / "runs" / "run" / "metrics.jsonl"
    return [record for record in map(json.loads, path.read_text().splitlines()) if "train/loss" in record]


def judged(folder, codes, reference, totals):
    """What is not as it was left alone."""
    found = [] if set(codes.values()) == {0} else [f"the launchers ended with {codes}"]
    steps = steps_of(folder)
    if [record["step"] for record in steps] != list(range(1, STEPS + 1)):
        return [*found, f"{len(steps)} steps, wanted 1 to {STEPS}, each once"]
    for record, wanted in zip(steps, reference):
        seen, due = record["data/samples"], wanted["data/samples"]  # in the order of the data
        totals["lost"] += len(set(due) - set(seen))
        totals["repeated"] += len(seen) - len(set(seen)) + len(set(seen) - set(due))
        totals["batches"] += len(seen) != BATCH
        if seen != due:
            found.append(f"step {record['step']} has the samples {seen}, wanted {due}")
    logs = [log.read_text(errors="replace") for log in folder.path.glob("logs/rank-*.log")]
    if any("continue with the same command" in log for log in logs):
        found.append("a rank told people to continue the run, which its launcher does")
    difference = abs(steps[-1]["train/loss"] - reference[-1]["train/loss"])
    totals["difference"] = max(totals["difference"], difference)
    if difference > MOST_DIFFERENCE:
        found.append(f"the last loss is {steps[-1]['train/loss']}, wanted {reference[-1]['train/loss']}")
    restarts = folder.receipt()["restarts"]
    totals["shrunk"] += restarts["shrunk"]
    totals["grown"] += restarts["grown"]
    totals["useful"] += sum(record["perf/step_seconds"] for record in steps)
    unsound = folder.unsound()
    return [*found, unsound] if unsound else found


def trial(work, number, most_events, chance, reference, totals):
    """A run with up to so many events; whether it ended as it should."""
    folder = common.Folder(work / f"run-{number}", CONFIG)
    cluster = Cluster(folder, spares=number % 2)
    done, said = 0, []
    try:
        going = cluster.settle(FIRST)
        while going and done < most_events and cluster.step() < LAST:
            text, nodes = event(cluster, chance)
            said.append(f"{text} after step {cluster.step()}")
            done += nodes
            going = cluster.settle(chance.randrange(1, 4)) if chance.random() < 0.9 else not cluster.is_over()
        found = judged(folder, cluster.codes(), reference, totals)
    except TimeoutError as error:
        found = [str(error)]
    finally:
        cluster.end()
    seconds = time.monotonic() - cluster.began
    totals["events"] += done
    totals["seconds"] += seconds
    print(f"run {number}: {done} events ({'; '.join(said)}): {'; '.join(found) or 'as if left alone'}, {seconds:.0f} s", flush=True)
    if found:
        print(cluster.said())
        for log in sorted(folder.path.glob("logs/*")):
            print(f"--- {log.name}\n{log.read_text(errors='replace')[-2000:]}")
    return not found


def undisturbed(work):
    folder = common.Folder(work / "reference", CONFIG)
    cluster = Cluster(folder, spares=0)
    try:
        codes = cluster.codes()
    finally:
        cluster.end()
    if set(codes.values()) != {0} or len(steps_of(folder)) != STEPS:
        sys.exit(f"the undisturbed run ended with {codes}:\n{cluster.said()}")
    return steps_of(folder)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--events", type=int, default=200)
    parser.add_argument("--seed", type=int, default=30)
    options = parser.parse_args()
    common.require_files()
    events, least = (6, 1) if options.short else (options.events, min(LEAST_CHANGES, options.events // 4))
    totals = dict.fromkeys(("events", "lost", "repeated", "batches", "shrunk", "grown"), 0) | {"difference": 0.0, "useful": 0.0, "seconds": 0.0}
    chance, runs, survived = random.Random(options.seed), 0, 0
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        common.prepare_data(work)
        reference = undisturbed(work)
        while totals["events"] < events and survived == runs:
            survived += trial(work, runs, min(EVENTS, events - totals["events"]), chance, reference, totals)
            runs += 1
    short = totals["events"] < events or min(totals["shrunk"], totals["grown"]) < least
    print(f"events={totals['events']} runs={runs} survived={survived} shrunk={totals['shrunk']} grown={totals['grown']} "
          f"samples_lost={totals['lost']} samples_repeated={totals['repeated']} wrong_batches={totals['batches']} "
          f"loss_difference={totals['difference']:.1e} goodput={100 * totals['useful'] / max(totals['seconds'], 1e-9):.1f} "
          f"seconds={totals['seconds']:.0f}")
    sys.exit(1 if survived < runs or short else 0)


if __name__ == "__main__":
    main()
