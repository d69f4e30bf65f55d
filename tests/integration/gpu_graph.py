#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=900 gate="--short" night=""
"""cuda_graph on the fake CUDA device (src/fake_cuda), which spoils a capture as a real one does.

Three steps run eagerly, the fourth captures, and from the fifth on each micro-batch is one launch of a graph: the same
kernels, GEMMs and memsets in the same order as in the third step, no more waits of the host, no cudaMalloc. Steps
with FP8 statistics run eagerly in between; an evaluation writes nowhere that a graph still counts on; a layer that leaves
FP8 leads to another capture. What cannot be captured is said and runs eagerly. All architectures of gpu_cases.py are captured.
Two ranks (ddp): graphs for all passes of a step but the last, which has the collectives; the same GEMMs as without graphs.

usage: gpu_graph.py [--short]    --short: a part of gpu_cases.py
Last line: cases=N failed=0
"""
import collections
import json
import pathlib
import subprocess
import sys
import tempfile

import fake_cuda
import gpu_cases
import nccl_calls
import ranks
from common import BUILD, OCTAVO, ROOT

TOOL = BUILD / "bin" / "gpu_graph_tool"
STEPS, WARM_UP = 8, 3
LLAMA = {"model_type": "llama", "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2,
         "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 512,
         "max_position_embeddings": 2048, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu",
         "tie_word_embeddings": False, "attention_bias": False, "mlp_bias": False}
SMALL = ("custom", "--n_layer", 2, "--n_head", 4, "--n_embd", 256, "--batch_size", 4, "--max_seq_length", 128)
GPT2 = ("gpt2", "--vocab_size", 50257, "--batch_size", 8, "--max_seq_length", 1024)
# Where gradients move from tensor to tensor, the graphs of several micro-batches bring them back to one place: copies
# that an eager step has not, in the place of conversions that it has.
MOVES = ("multi_tensor_apply_kernel", "converting_copy")
failures, cases = [], 0


def check(name, holds, found=""):
    global cases
    cases += 1
    if not holds:
        failures.append(name)
        print(f"FAILED {name}: {found}", flush=True)


def tool(work, words, flags, capability=90):
    """Lines of JSON, and what was said."""
    # The norm is read from memory that no kernel has written: whether it clips, one launch more, would be chance.
    command = [TOOL, *words, "--model_name", *flags, "--device", "cuda", "--cuda_graph", "true", "--data_cache", work / "data",
               "--max_grad_norm", "0"]
    if "--dataset" not in flags:
        command += ["--dataset", work / "text.txt", "--tokenizer", "bytes"]
    done = subprocess.run([str(word) for word in command], cwd=work, text=True, capture_output=True, check=False,
                          env=fake_cuda.environment(capability=capability) | {"OMP_WAIT_POLICY": "passive"})
    if done.returncode != 0:
        sys.exit(f"gpu_graph_tool {flags} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")], done.stderr


def fp8(recipe, backend, stats=0):
    return ("--mixed_precision", "fp8", "--fp8_recipe", recipe, "--fp8_backend", backend, "--fp8_stats_freq", stats)


def value_of(flags, key, default):
    return int(flags[flags.index(key) + 1]) if key in flags else default


def difference(eager, graph):
    """'' when both lists of names are the same, but for gradients that move."""
    plain = [[name for name in names if not any(move in name for move in MOVES)] for names in (eager, graph)]
    if plain[0] == plain[1]:
        more = collections.Counter(graph) - collections.Counter(eager)
        return "" if all("multi_tensor_apply" in name for name in more) else str(more)[:300]
    for number, (a, b) in enumerate(zip(*plain)):
        if a != b:
            return f"kernel {number}: {a[:120]}, in the graph {b[:120]}"
    return f"{len(plain[0])} kernels, in the graph {len(plain[1])}"


def check_run(work, name, flags, capability=90, fallback=0, longer=0):
    """`fallback`, `longer`: the step after which a layer leaves FP8, or sequences have another length."""
    lines, said = tool(work, [STEPS, fallback], flags, capability)
    changed = fallback or longer
    steps, receipt = lines[:-1], lines[-1]
    passes = value_of(flags, "--gradient_accumulation_steps", 1)
    statistics = value_of(flags, "--fp8_stats_freq", 0)
    third = steps[WARM_UP - 1]
    is_eager = {n for n in range(1, STEPS + 1)
                if n <= WARM_UP or (statistics and n % statistics == 0) or (changed and n == changed + 1)}
    captured_at = {WARM_UP + 1} | ({changed + 2} if changed else set())
    for number, step in enumerate(steps, 1):
        what = f"{name}, step {number}"
        check(f"{what}: graph launches", step["graph_launches"] == (0 if number in is_eager else passes),
              step["graph_launches"])
        check(f"{what}: captured", (step["captured_nodes"] > 0) == (number in captured_at), step["captured_nodes"])
        check(f"{what}: unexpected calls", number == 1 or step["unexpected"] == 0, step["unexpected"])
        check(f"{what}: evaluation", step.get("overlaps", 0) == 0, f"{step.get('overlaps')} writes where graphs are")
        if number in is_eager:
            continue
        check(f"{what}: host waits", step["host_waits"] == third["host_waits"], (step["host_waits"], third["host_waits"]))
        check(f"{what}: one copy for each batch", step["to_device"] == third["to_device"], step["to_device"])
        if number not in captured_at:
            check(f"{what}: cudaMalloc", step["mallocs"] == 0, step["mallocs"])
        if not changed or number <= changed:
            found = difference(third["names"], step["names"])
            check(f"{what}: kernels", not found if passes > 1 else third["names"] == step["names"], found)
    eager, layers = len(is_eager), receipt["layers"]
    check(f"{name}: receipt", (receipt["eager_steps"], receipt["replayed_steps"], receipt["refused"]) ==
          (eager, STEPS - eager, "") and receipt["captures"] == len(captured_at) * min(passes, 2), receipt)
    evaluations = STEPS // value_of(flags, "--eval_freq", STEPS + 1) * value_of(flags, "--eval_batches", 0)
    if "--lora_rank" not in flags and "--gradient_checkpointing" not in flags:
        check(f"{name}: GEMMs counted", receipt["gemms"] == layers * (3 * STEPS * passes + evaluations), receipt)
    check(f"{name}: statistics are said", ("statistics run eagerly" in said) == bool(statistics), said[-300:])
    check(f"{name}: another capture is said", ("captured again" in said) == bool(changed), said[-300:])
    print(f"{name}: {len(third['names'])} kernels, {steps[-1]['graph_launches']} graph launches a step", flush=True)


def check_architectures(work, cases):
    """The step after the capture launches one graph with the kernels of the third step, in their order."""
    work.mkdir()
    gpu_cases.prepare(work)
    for case, lines in gpu_cases.run(work, TOOL, ["cases", WARM_UP + 2], cases, "--cuda_graph", "true"):
        if "error" in lines:
            check(case.name, False, lines["error"][:1500])
            continue
        third, last, receipt = lines[WARM_UP - 1], lines[WARM_UP + 1], lines[-1]
        check(f"{case.name}: one graph", last["graph_launches"] == 1 and last["mallocs"] == 0 and last["unexpected"] == 0,
              {key: value for key, value in last.items() if key != "names"})
        check(f"{case.name}: kernels", third["names"] == last["names"], difference(third["names"], last["names"]))
        check(f"{case.name}: receipt", receipt["captures"] == 1 and receipt["refused"] == "", receipt)


def check_refusals(work, llama):
    rows = work / "rows.jsonl"
    rows.write_text("".join(json.dumps({"instruction": f"Count to {n}.", "output": " ".join(map(str, range(n)))}) + "\n"
                            for n in range(1, 200)))
    lora = (*llama, "--lora_rank", 8)
    for name, flags, reason in (
            ("packed documents", (*SMALL[:-2], "--max_seq_length", 1024, "--dataset", rows, "--tokenizer", "bytes"),
             "documents begin elsewhere"),
            ("document_mask", (*SMALL, "--document_mask", "true"), "documents begin elsewhere"),
            ("lora_dropout", (*lora, "--lora_dropout", 0.1), "lora_dropout"),
            ("lora_base fp8", (*lora, "--lora_base", "fp8"), "decoded on the host"),
            ("nvfp4", (*SMALL, *fp8("nvfp4", "te")), "stochastic rounding")):
        lines, said = tool(work, [5, 0], flags, capability=100 if name == "nvfp4" else 90)
        check(f"{name}: every step runs eagerly", all(line["graph_launches"] == 0 for line in lines[:-1]))
        check(f"{name}: says why once", said.count("every step runs eagerly") == 1 and reason in said, said[-500:])
        check(f"{name}: receipt", lines[-1]["eager_steps"] == 5 and reason in lines[-1]["refused"], lines[-1])
    lines, said = tool(work, ["spoil", 0], SMALL)
    check("a wait inside a capture", lines[-1]["captures"] == 0 and lines[-1]["eager_steps"] == 7 and
          lines[0]["passes"] == 7 and lines[0]["fresh"] and "could not be captured" in said, (lines, said[-300:]))
    for device, code in (("cpu", 2), ("auto", 2)):  # this process has no GPU
        done = subprocess.run([OCTAVO, "train", "--model_name", *map(str, SMALL), "--device", device, "--cuda_graph", "true",
                               "--dataset", work / "text.txt", "--tokenizer", "bytes", "--data_cache", work / "data"],
                              cwd=work, text=True, capture_output=True, check=False)
        check(f"device {device}", done.returncode == code and "cuda_graph" in done.stderr and "GPU" in done.stderr,
              (done.returncode, done.stderr[-300:]))


def check_ranks(work):
    """Graphs beside collectives: none in a graph, all of them after the step's last one."""
    model = ranks.prepared(work)
    for precision in ("bf16", "fp8"):
        def found(*more):
            flags = nccl_calls.train_flags(work, model, "--batch_size", 2, "--max_seq_length", 32, "--max_steps", 20,
                                           "--mixed_precision", precision, *more)
            return nccl_calls.run_ranks(work, flags, 2, STEPS)

        several = ("--sharding_mode", "ddp", "--gradient_accumulation_steps", 3)
        for eager, graph in zip(found(*several), found(*several, "--cuda_graph", "true")):
            name = f"2 ranks, {precision}, rank {graph['rank']}"
            kinds = [event["kind"] for event in graph["events"]]
            launches = [at for at, kind in enumerate(kinds) if kind == "graph"]
            # Magnitudes of delayed scales are joined after each pass, by one small collective.
            sums = [at for at, event in enumerate(graph["events"]) if event["kind"] == "collective" and event["bytes"] > 8192]
            check(f"{name}: graph launches", len(launches) == 2, len(launches))
            check(f"{name}: gradients travel after the last graph", sums and launches and min(sums) > max(launches), (launches, sums))
            gemms = [sorted(event["name"] for event in run["events"] if event["kind"] == "gemm") for run in (eager, graph)]
            check(f"{name}: GEMMs", gemms[0] and gemms[0] == gemms[1], [len(names) for names in gemms])
            check(f"{name}: collectives", *same_collectives(eager["events"], graph["events"]))
            check(f"{name}: receipt", graph["graph"]["captures"] == 2 and graph["graph"]["replayed_steps"] == STEPS - WARM_UP and
                  graph["graph"]["refused"] == "", graph["graph"])
        for rank in found("--sharding_mode", "ddp", "--cuda_graph", "true"):
            check(f"2 ranks, {precision}, one pass: eager", rank["graph"]["eager_steps"] == STEPS and rank["graph"]["captures"] == 0,
                  rank["graph"])
        for rank in found("--sharding_mode", "fsdp_full", "--cuda_graph", "true"):
            check(f"2 ranks, {precision}, fsdp_full: refused", "collectives in every pass" in rank["graph"]["refused"], rank["graph"])


def same_collectives(eager, graph):
    listed = [collections.Counter((event["name"].partition(" comm=")[0], event["bytes"]) for event in events if event["kind"] == "collective")
              for events in (eager, graph)]
    return listed[0] == listed[1], str((listed[0] - listed[1], listed[1] - listed[0]))[:300]


def main():
    fake_cuda.require_libraries()
    if not TOOL.exists():
        sys.exit(f"wanted {TOOL}, found none; ninja gpu_graph_tool")
    with tempfile.TemporaryDirectory(prefix="octavo-gpu-graph-") as folder:
        work = pathlib.Path(folder)
        (work / "text.txt").write_text((ROOT / "docs" / "reference" / "configuration.md").read_text() * 4)
        (work / "llama").mkdir()
        (work / "llama" / "config.json").write_text(json.dumps(LLAMA))
        llama = (work / "llama", "--batch_size", 2, "--max_seq_length", 256)
        evaluated = ("--eval_freq", 3, "--eval_batches", 1)  # also right before the capture
        low_memory = ("--gradient_checkpointing", "true", "--master_dtype", "bf16", "--moment_dtype", "fp8",
                      "--gradient_dtype", "bf16", "--gradient_accumulation_steps", 2)
        check_architectures(work / "cases", gpu_cases.short_cases() if "--short" in sys.argv else gpu_cases.all_cases())
        check_run(work, "GPT-2 124M, BF16", (*GPT2, *evaluated))
        for name, model in (("GPT-2 124M", GPT2), ("Llama", llama)):
            for backend in ("aten", "te"):
                for recipe, statistics in (("delayed", 6), ("blockwise", 0)):
                    check_run(work, f"{name}, {recipe}, {backend}", (*model, *fp8(recipe, backend, statistics), *evaluated))
        check_run(work, "Llama, BF16", (*llama, *evaluated))
        check_run(work, "Llama, mxfp8, te, 10.0", (*llama, *fp8("mxfp8", "te")), capability=100)
        check_run(work, "small GPT-2, BF16, 3 micro-batches", (*SMALL, "--gradient_accumulation_steps", 3, *evaluated))
        (work / "other.txt").write_text((ROOT / "docs" / "reference" / "metrics.md").read_text())
        sources = f"{work / 'text.txt'},{work / 'other.txt'}"
        mixture = ("--dataset", sources, "--dataset_weights", "0.7,0.3", "--tokenizer", "bytes", "--max_steps", 20)
        check_run(work, "Llama, BF16, a mixture", (*llama, *mixture, *evaluated))
        check_run(work, "small GPT-2, BF16, 3 micro-batches of a mixture", (*SMALL, *mixture, "--gradient_accumulation_steps", 3))
        check_run(work, "small GPT-2, current, te, 3 micro-batches",
                  (*SMALL, *fp8("current", "te", 6), "--gradient_accumulation_steps", 3, *evaluated))
        check_run(work, "Llama, low memory, BF16", (*llama, *low_memory))
        check_run(work, "Llama, low memory, delayed, te", (*llama, *fp8("delayed", "te"), *low_memory, *evaluated))
        check_run(work, "Llama, adapters, BF16", (*llama, "--lora_rank", 8, *evaluated))
        check_run(work, "Llama, adapters, current, te", (*llama, *fp8("current", "te", 6), "--lora_rank", 8, *evaluated))
        check_run(work, "Llama, adapters, delayed, aten", (*llama, *fp8("delayed", "aten"), "--lora_rank", 8, *evaluated))
        check_run(work, "Llama, activation penalty", (*llama, "--penalty_type", "kurtosis", "--penalty_weight", 0.01))
        check_run(work, "small GPT-2, current, aten, fallback", (*SMALL, *fp8("current", "aten")), fallback=5)
        check_run(work, "Llama, BF16, longer sequences", (*llama, "--max_steps", STEPS, "--length_schedule", f"0 64,{5 / STEPS} 256"), longer=5)
        check_refusals(work, llama)
        check_ranks(work)
    print(f"cases={cases} failed={len(failures)}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
