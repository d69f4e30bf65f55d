#!/usr/bin/env python3
# bench: measures="src/dist src/rendezvous src/launch"
"""What the control plane says as ranks grow: the real launchers, rendezvous, start of ranks, loader and reports of N ranks,
each a process of this machine, without a model (bench/scale_sim_tool.cpp). Every message over TCP is counted at libc.

A rank's messages at its start must be at most c log2 N, a step none, a report of all ranks' numbers at most c log2 N, with the
same c for every N: `most` is of the rank with the most (the first one, which is in a group of every level of the tree), `mean`
over all ranks. Reads are counted too: who hears from everybody does not escape by saying little. The fit is a + b log2 N over
the rank with the most, for 16,384 ranks; the store's own work grows with N, since every rank asks it, and is printed so.

Not in it: the groups of tensors. On GPUs each of them costs a rank one store operation for NCCL's id, and NCCL connects by
itself; ranks on CPUs connect Gloo groups of all ranks for tensors, in which everybody reads everybody's address.

usage: scale_sim.py [--ranks N…]
Last line: ranks=N start_s=X start_store_c=X start_message_c=X step_messages=0 report_c=X … failed=0
"""
import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
TOOL = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release")) / "bin" / "scale_sim_tool"
STEPS, REPORTS = 20, 5
FAR = 16_384
MOST_SECONDS = 60  # of the start of 1,024 ranks
MOST = {"start_store_c": 8, "start_message_c": 40, "start_read_c": 80, "report_c": 6, "report_read_c": 12}


def simulated(ranks):
    with tempfile.TemporaryDirectory(prefix="scale_sim.") as folder:
        done = subprocess.run([TOOL, *map(str, (ranks, STEPS, REPORTS, folder))], stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            log = pathlib.Path(folder) / "log"
            bad = [line for line in log.read_text().splitlines() if not line.startswith("info")] if log.exists() else []
            sys.exit("\n".join(bad[:20]) + f"\n{ranks} ranks: exit code {done.returncode}")
    return json.loads(done.stdout)


def most(result, phase, key):
    return result["of_ranks"][phase][key]["most"]


def show(result):
    ranks, launchers = result["of_ranks"], result.get("of_launchers")
    print(f"{result['ranks']} ranks: started in {result['start_seconds']:.1f} s, {result['memory_gb']:.1f} GB; a report takes "
          f"{1e3 * result['report_seconds']:.0f} ms here; the store's process used {result['store_cpu_seconds']:.2f} s of CPU")
    for phase, count in (("start", 1), ("steps", STEPS), ("reports", REPORTS), ("end", 1)):
        words = (f"{name} {ranks[phase][key]['mean'] / count:.1f} mean {ranks[phase][key]['most'] / count:g} most"
                 for key, name in (("store_operations", "store operations"), ("sent", "messages"), ("received", "reads"),
                                   ("bytes", "bytes")))
        print(f"  a rank, {phase:8}" + ", ".join(words))
    if launchers:
        print("  a node's launcher: store operations " +
              ", ".join(f"{launchers[phase]['store_operations']['most']} at {phase}" for phase in ("start", "steps", "end")))
    print(f"  the store: {result['of_store']['sent']['most']} messages, {result['of_store']['sent']['most'] / result['ranks']:.1f} for "
          f"each rank; node 0's launcher, which asks how each node ended: {result['of_store']['store_operations']['most']}", flush=True)


def fitted(points):
    """a, b of a + b log2 N, by least squares; and the largest error of it, relative."""
    logs = [(math.log2(ranks), value) for ranks, value in points]
    mean_x, mean_y = (sum(column) / len(logs) for column in zip(*logs))
    slope = sum((x - mean_x) * (y - mean_y) for x, y in logs) / sum((x - mean_x) ** 2 for x, _ in logs)
    first = mean_y - slope * mean_x
    return first, slope, max(abs(first + slope * x - y) / y for x, y in logs)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, nargs="+", default=[16, 64, 256, 1024])
    options = parser.parse_args()
    results = []
    for ranks in options.ranks:
        results.append(simulated(ranks))
        show(results[-1])
    worst, far = dict.fromkeys(MOST, 0.0), {}
    for name, phase, key, count in (("start_store_c", "start", "store_operations", 1), ("start_message_c", "start", "sent", 1),
                                    ("start_read_c", "start", "received", 1), ("report_c", "reports", "sent", REPORTS),
                                    ("report_read_c", "reports", "received", REPORTS)):
        points = [(result["ranks"], most(result, phase, key) / count) for result in results]
        worst[name] = max(value / math.log2(ranks) for ranks, value in points)
        if len(points) > 2:
            first, slope, error = fitted(points)
            far[name] = first + slope * math.log2(FAR)
            print(f"{phase}, {key}: {first:.1f} + {slope:.1f} log2 N (within {100 * error:.0f}%), {far[name]:.0f} at {FAR} ranks; "
                  f"at most {worst[name]:.1f} log2 N")
    last = results[-1]
    share = last["store_cpu_seconds"] / last["ranks"]
    print(f"the store: {last['of_store']['sent']['most'] / last['ranks'] * FAR:.0f} messages and {share * FAR:.0f} s of one core at "
          f"{FAR} ranks (as the ranks grow)")
    steps = sum(most(result, "steps", "sent") for result in results)
    start = last["start_seconds"]
    failed = sum(worst[name] > limit for name, limit in MOST.items()) + (steps > 0) + (start > MOST_SECONDS) + (last["ranks"] < 1024)
    print(f"ranks={last['ranks']} start_s={start:.1f} " + " ".join(f"{name}={worst[name]:.1f}" for name in MOST) +
          f" step_messages={steps} store_operations_16384={far.get('start_store_c', 0):.0f} failed={failed}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
