#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 night="" alone
"""Collectives run under the computation: the order of events in the traces (--trace) of two ranks over Gloo.

fsdp_full, with and without gradient_checkpointing: the gather of block n + 1 begins before block n has computed, in the
backward pass that of block n - 1 before block n is done; the reduce-scatter of block n begins before block n - 1 goes
backward and is waited for only after it. zero2 and ddp reduce under the backward pass too, and ddp not before the last
micro-batch of a step. A span ends when its result was waited for. A trace that is out of order must be found out.

Last line: traces=N orders=N failed=0
"""
import copy
import json
import pathlib
import sys
import tempfile

import ranks
from ranks import Job

RANKS, STEPS, BLOCKS, MICRO_BATCHES = 2, 3, ranks.LLAMA["num_hidden_layers"], 2


class Slice:
    def __init__(self, name, begin, end):
        self.name, self.begin, self.end = name, begin, end

    def holds(self, time):
        return self.begin <= time <= self.end


class Trace:
    """The slices and spans of one rank, in the order in which they began."""

    def __init__(self, events):
        self.slices = [Slice(e["name"], e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X"]
        ends = {e["id"]: e["ts"] for e in events if e["ph"] == "e"}
        begins = [e for e in events if e["ph"] == "b"]
        self.whole = set(ends) == {e["id"] for e in begins}
        self.spans = [Slice(e["name"], e["ts"], ends.get(e["id"], e["ts"])) for e in begins]
        self.bytes = sum(e["args"]["bytes"] for e in begins)
        for part in (self.slices, self.spans):
            part.sort(key=lambda s: s.begin)

    def named(self, name, inside):
        return [s for s in self.slices if s.name == name and inside.holds(s.begin)]

    def spans_of(self, name, inside):
        return [s for s in self.spans if s.name == name and inside.holds(s.begin)]

    def backward_of(self, block, backward):
        """From the first to the last layer of a block inside a backward pass."""
        layers = [s for s in self.slices if s.name.startswith(f"layers.{block}.") and backward.holds(s.begin)]
        return Slice(f"backward of block {block}", layers[0].begin, max(s.end for s in layers))


class Orders:
    """Claims about a trace, counted."""

    def __init__(self, label):
        self.label, self.count, self.problems = label, 0, []

    def before(self, what, first, then, second):
        self.count += 1
        if not first < second:
            self.problems.append(f"{self.label}: {what} is {first - second:.0f} us after {then}")

    def number(self, what, found, wanted):
        self.count += 1
        if found != wanted:
            self.problems.append(f"{self.label}: {what}: wanted {wanted}, found {found}")


def passes_of(trace, step):
    """(forward, backward) of each micro-batch of a step."""
    whole = next(s for s in trace.slices if s.name == f"step {step}")
    return list(zip(trace.named("forward", whole), trace.named("backward", whole), strict=True))


def check_gathers(trace, forward, backward, orders):
    for block in range(1, BLOCKS):
        gather = trace.spans_of(f"all-gather layers.{block}", forward)
        orders.number(f"gathers of block {block} in the forward pass", len(gather), 1)
        computing = trace.named(f"block {block - 1}", forward)[0]
        orders.before(f"the gather of block {block}", gather[0].begin, f"block {block - 1} was computed", computing.end)
        orders.before(f"the gather of block {block}", gather[0].end, "it is used",
                      trace.named(f"block {block}", forward)[0].begin)
    for block in range(BLOCKS - 1):
        gather = trace.spans_of(f"all-gather layers.{block}", backward)
        orders.number(f"gathers of block {block} in the backward pass", len(gather), 1)
        orders.before(f"the gather of block {block}, backward", gather[0].begin, f"block {block + 1} was done",
                      trace.backward_of(block + 1, backward).end)
    # It is still there from the forward pass.
    orders.number("gathers of the last block in the backward pass",
                  len(trace.spans_of(f"all-gather layers.{BLOCKS - 1}", backward)), 0)


def check_reductions(trace, backward, verb, orders):
    for block in range(BLOCKS):
        reduction = trace.spans_of(f"{verb} layers.{block}", backward)
        orders.number(f"reductions of block {block}", len(reduction), 1)
        if not reduction:
            continue
        own = trace.backward_of(block, backward)
        orders.before(f"the last layer of block {block}", own.end, "its gradients leave", reduction[0].begin)
        if block > 0:
            next_one = trace.backward_of(block - 1, backward)
            orders.before(f"the {verb} of block {block}", reduction[0].begin,
                          f"block {block - 1} goes backward", next_one.begin)
            orders.before(f"block {block - 1}'s backward pass", next_one.end,
                          f"the {verb} of block {block} is waited for", reduction[0].end)


def check(trace, mode, label):
    orders = Orders(label)
    orders.number("spans that end", trace.whole, True)
    for step in range(1, STEPS + 1):
        passes = passes_of(trace, step)
        orders.number("micro-batches", len(passes), MICRO_BATCHES)
        for number, (forward, backward) in enumerate(passes):
            is_last = number == MICRO_BATCHES - 1
            if mode == "fsdp_full":
                check_gathers(trace, forward, backward, orders)
            if mode == "ddp" and not is_last:
                found = [s.name for s in trace.spans if backward.holds(s.begin)]
                orders.number("collectives before the last micro-batch", found, [])
            else:
                check_reductions(trace, backward, "all-reduce" if mode == "ddp" else "reduce-scatter", orders)
    return orders


def check_the_check(events):
    """Each claim fails when its event is elsewhere."""
    missed = []
    for name, phase, shift in (("all-gather layers.1", "b", 1e6), ("reduce-scatter layers.2", "b", 1e6),
                               ("reduce-scatter layers.1", "e", -1e6), ("all-gather layers.0", "b", 1e6)):
        changed = copy.deepcopy(events)
        for event in changed:
            if event["name"] == name and event["ph"] == phase:
                event["ts"] += shift
        try:
            found = check(Trace(changed), "fsdp_full", name).problems
        except (IndexError, StopIteration):
            found = [name]
        if not found:
            missed.append(f"{name} moved by {shift:.0f} us and nobody saw it")
    return missed


def main():
    traces, orders, problems, bytes_sent = 0, 0, [], {}
    with tempfile.TemporaryDirectory(prefix="octavo-overlap-") as folder:
        work = pathlib.Path(folder)
        model = ranks.prepared(work)
        for mode, recomputed in (("fsdp_full", False), ("fsdp_full", True), ("zero2", False), ("ddp", False)):
            name = mode + ("-recomputed" if recomputed else "")
            job = Job(work / name, model, steps=STEPS, batch_size=4, gradient_accumulation_steps=MICRO_BATCHES,
                      sharding_mode=mode, gradient_checkpointing=recomputed, trace="trace.json").finish(RANKS)
            for rank in range(RANKS):
                file = job.path / ("trace.json" if rank == 0 else f"trace-rank{rank}.json")
                events = json.loads(file.read_text())["traceEvents"]
                if any(e["pid"] != rank for e in events):
                    problems.append(f"{name}: events of another rank than {rank}")
                trace = Trace(events)
                found = check(trace, mode, f"{name}, rank {rank}")
                bytes_sent.setdefault(name, trace.bytes)
                traces, orders, problems = traces + 1, orders + found.count, problems + found.problems
                if name == "fsdp_full":
                    problems += check_the_check(events)
    if bytes_sent["fsdp_full"] != bytes_sent["fsdp_full-recomputed"]:
        problems.append(f"recomputation changed the bytes: {bytes_sent}")
    for problem in problems:
        print("FAILED", problem)
    print(f"traces={traces} orders={orders} failed={len(problems)}")
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
