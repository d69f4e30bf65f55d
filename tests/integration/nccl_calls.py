#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=1800 gate="--short" night="" alone=night
"""Every mode through ProcessGroupNCCL on devices that are not there (src/fake_cuda): one process for each device, NCCL recorded.

1. The collectives of two ranks are those of the same run over Gloo, by their traces: names, order and bytes.
2. What NCCL itself was asked for: gathers and reductions on streams of their own; a gather waits for the compute stream,
   the compute stream waits for a gather before the GEMMs that need it, and the gather of the next block is asked for
   before the GEMMs of this one.
3. The peak of a 14B shape fully sharded over 8 devices of 80 GB, by libtorch's allocator, against `octavo plan`.
4. After the first step no collective is one that the host waits for.
5. One communicator is made through the store, the others by splitting it; all before the first step, and no more than the
   mode needs.

No kernel runs and no byte moves: what is shown is the order of calls, not their speed.

usage: nccl_calls.py [--short]    --short: the fourth and the fifth alone
Last line: failed=0 and, in the long form, how many collectives were compared and the error of the plan
"""
import collections
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import fake_cuda
import ranks
from common import BUILD, OCTAVO
from ranks import Job

TOOL = BUILD / "bin" / "nccl_calls_tool"
MODES = ("ddp", "zero1", "zero2", "fsdp_full", "hybrid")
QWEN_14B = {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 5120, "intermediate_size": 13824,
            "num_hidden_layers": 48, "num_attention_heads": 40, "num_key_value_heads": 8, "vocab_size": 152064,
            "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0,
            "tie_word_embeddings": False, "hidden_act": "silu", "use_sliding_window": False}
problems = []


def check(name, holds, found):
    print(f"{'ok    ' if holds else 'FAILED'} {name}: {found}", flush=True)
    if not holds:
        problems.append(name)


def fake_devices(devices):
    return {k: v for k, v in fake_cuda.environment(devices=devices).items() if k.startswith(("LD_", "OCTAVO_"))}


def collectives(trace):
    """Category, name and bytes of every collective, in the order in which they began."""
    events = json.loads(trace.read_text())["traceEvents"]
    return [(e["cat"], e["name"], e["args"]["bytes"]) for e in events
            if e["ph"] == "b" and "checkpoint" not in e["name"]]  # which a fake CUDA device has none of


def compare_modes(work, model):
    cases = [(mode, {"mixed_precision": "bf16"}) for mode in MODES]
    cases += [(mode, {"mixed_precision": "fp8", "fp8_recipe": recipe}) for mode, recipe in
              (("fsdp_full", "delayed"), ("fsdp_full", "current"), ("zero1", "delayed"), ("hybrid", "delayed"))]
    cases += [("fsdp_full", {"mixed_precision": "bf16", "gradient_checkpointing": True, "gradient_accumulation_steps": 2})]
    total = 0
    for number, (mode, keys) in enumerate(cases):
        found = []
        for device in ("cpu", "cuda"):
            job = Job(work / f"{number}-{device}", model, steps=3, batch_size=4, sharding_mode=mode, device=device,
                      trace="trace.json", fp8_stats_freq=0,
                      replica_check_freq=0, **keys)  # a fake CUDA device has no numbers to compare
            job.finish(2, environment=fake_devices(2) if device == "cuda" else None)
            found.append([collectives(job.path / name) for name in ("trace.json", "trace-rank1.json")])
        gloo, nccl = found
        total += len(nccl[0])
        what = f"{mode}, {' '.join(map(str, keys.values()))}: {len(nccl[0])} collectives over NCCL as over Gloo"
        check(what, nccl == gloo and len(nccl[0]) > 0, "equal" if nccl == gloo else difference(nccl, gloo))
    return total


def difference(found, wanted):
    for a, b in zip(found, wanted):
        for i, (x, y) in enumerate(zip(a, b)):
            if x != y:
                return f"number {i}: {x}, over Gloo {y}"
    return f"{[len(x) for x in found]} and {[len(x) for x in wanted]}"


def run_ranks(work, flags, count, steps, local=None):
    """What nccl_calls_tool printed, by rank; `local` of them on a node."""
    local = local or count
    port, processes = ranks.free_port(), []
    for r in range(count):
        variables = os.environ | fake_devices(count) | {
            "RANK": str(r), "WORLD_SIZE": str(count), "LOCAL_RANK": str(r % local), "LOCAL_WORLD_SIZE": str(local),
            "GROUP_RANK": str(r // local), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        processes.append(subprocess.Popen([TOOL, str(steps), *map(str, flags)], cwd=work, env=variables, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    results = []
    for process in processes:
        out, err = process.communicate(timeout=300)
        if process.returncode != 0:
            sys.exit(f"a rank ended with {process.returncode}:\n{err[-3000:]}")
        results.append(json.loads(out.splitlines()[-1]))
    return sorted(results, key=lambda r: r["rank"])


def train_flags(work, model, *more):
    return ["--model_name", model, "--tokenizer", "bytes", "--dataset", work / "data", "--device", "cuda",
            "--fp8_stats_freq", "0", *more]


def check_streams(work, model):
    flags = train_flags(work, model, "--batch_size", 4, "--max_seq_length", 32, "--sharding_mode", "fsdp_full",
                        "--mixed_precision", "bf16", "--fp8_all_gather", "false")
    for found in run_ranks(work, flags, 2, 3):
        events, rank = found["events"], found["rank"]
        streams = collections.defaultdict(set)
        for e in events:
            if e["kind"] in ("collective", "gemm"):
                streams[e["name"].split()[0] if e["kind"] == "collective" else "gemm"].add(e["stream"])
        gather, reduce, compute = streams["ncclAllGather"], streams["ncclReduceScatter"], streams["gemm"]
        check(f"rank {rank}: one stream each for gathers, reductions and GEMMs",
              len(gather) == len(reduce) == len(compute) == 1 and len(gather | reduce | compute) == 3,
              f"{sorted(gather)} {sorted(reduce)} {sorted(compute)}")
        order_of(rank, events, gather.pop(), reduce.pop(), compute.pop())


def order_of(rank, events, gather, reduce, compute):
    """Checks the waits, call by call: a call of one unit is a run of collectives of one kind on one stream."""
    late = unordered = behind = 0
    recorded = {stream: -1 for stream in (gather, reduce, compute)}
    waited = {stream: -1 for stream in (gather, reduce, compute)}
    calls, pending = 0, []
    for i, e in enumerate(events):
        if e["kind"] == "record":
            recorded[e["stream"]] = i
        elif e["kind"] == "wait":
            waited[e["stream"]] = i
            if e["stream"] == compute and pending:
                pending.pop(0)  # the oldest gather has been waited for
        elif e["kind"] == "collective" and e["stream"] in (gather, reduce):
            first = i == 0 or events[i - 1]["kind"] != "collective"
            if first:
                calls += 1
                # What the compute stream did so far is recorded there and waited for here.
                if not (recorded[compute] >= 0 and waited[e["stream"]] > 0 and recorded[compute] < waited[e["stream"]]):
                    unordered += 1
                if e["stream"] == gather:
                    pending.append(i)
        elif e["kind"] == "gemm" and len(pending) > 1:
            behind += 1  # GEMMs run while two gathers are not waited for
    ahead = sum(1 for i, e in enumerate(events) if e["kind"] == "gemm" and any(
        x["kind"] == "collective" and x["stream"] == gather for x in events[max(0, i - 12):i]))
    check(f"rank {rank}: every call waits for the compute stream", unordered == 0 and calls > 8, f"{calls} calls")
    check(f"rank {rank}: no GEMM before the gather of its block was waited for", behind == 0, f"{behind} GEMMs")
    check(f"rank {rank}: gathers are asked for before the GEMMs that hide them", ahead > 0, f"{ahead} GEMMs")


def check_14b(work):
    model = ranks.write_model(work / "qwen", **QWEN_14B)
    worst = 0
    for precision in ("bf16", "fp8"):
        keys = ["--sharding_mode", "fsdp_full", "--batch_size", 1, "--max_seq_length", 4096, "--mixed_precision",
                precision, "--gradient_checkpointing", "true"]
        found = run_ranks(work, train_flags(work, model, *keys), 8, 3)
        plan = subprocess.run([OCTAVO, "plan", "--model_name", model, "--num_gpus", "8", "--json", *map(str, keys)],
                              check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
        forecast = json.loads(plan)["memory"][precision]["peak"]
        peak = max(r["peak"] for r in found)
        error = forecast / peak - 1
        worst = max(worst, abs(error))
        check(f"14B in {precision} over 8 devices of 80 GB", peak < 80e9 and abs(error) <= 0.05,
              f"{peak / 1e9:.2f} GB a device (reserved {max(r['reserved'] for r in found) / 1e9:.2f}), "
              f"planned {forecast / 1e9:.2f}: {error:+.1%}")
    return worst


def check_host(work, model):
    """Token counts and times of ranks ride on the sums that a step has on its device."""
    for mode, more in (("ddp", ["--mixed_precision", "bf16"]), ("fsdp_full", ["--mixed_precision", "fp8"]),
                       ("zero1", ["--mixed_precision", "bf16", "--gradient_accumulation_steps", 2])):
        flags = train_flags(work, model, "--batch_size", 4, "--max_seq_length", 32, "--sharding_mode", mode, "--max_steps", 9, *more)
        for found in run_ranks(work, flags, 2, 5):
            first, *later = found["on_host"]
            check(f"{mode}, rank {found['rank']}: collectives on the host", first <= 1 and not any(later), found["on_host"])


def wanted_communicators(mode, rank, local):
    """(How it is made, the rank's number in it) for all ranks, for weights, for gradients and for other nodes."""
    whole = ("ncclCommInitRank", rank)
    if mode != "hybrid":
        return [whole] + [("ncclCommSplit color=0", rank)] * (1 if mode == "ddp" else 2)
    node, of_node = divmod(rank, local)
    return [whole] + [(f"ncclCommSplit color={node}", of_node)] * (2 if local > 1 else 0) + [(f"ncclCommSplit color={of_node}", node)]


def check_communicators(work, model):
    for mode, count, local in (("ddp", 2, 2), ("zero2", 2, 2), ("fsdp_full", 4, 4), ("hybrid", 4, 2), ("hybrid", 2, 1)):
        flags = train_flags(work, model, "--batch_size", 4, "--max_seq_length", 32, "--sharding_mode", mode, "--mixed_precision", "bf16")
        for found in run_ranks(work, flags, count, 2, local):
            names = [event["name"].split(" ranks=") for event in found["start"] if event["kind"] == "communicator"]
            made = [(how, int(numbers.split("rank=")[1])) for how, numbers in names]
            later = [event["name"] for event in found["events"] if event["kind"] == "communicator"]
            check(f"{mode}, rank {found['rank']} of {count}: communicators",
                  made == wanted_communicators(mode, found["rank"], local) and not later, f"{made}, in a later step {later}")


def main():
    fake_cuda.require_libraries()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        model = ranks.prepared(work)
        check_host(work, model)
        check_communicators(work, model)
        if "--short" in sys.argv:
            print(f"failed={len(problems)}")
            sys.exit(1 if problems else 0)
        total = compare_modes(work, model)
        check_streams(work, model)
        worst = check_14b(work)
        print(f"collectives={total} failed={len(problems)} plan_error={worst:.4f}")
        sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
