"""Rows of the published measurements as `octavo plan` sees them; shared by plan_published and bench/calibrate_plan.py.

A row has enough detail when everything that the forecast takes as given is published: the model's sizes, the GPU, its
number, sequence length, micro-batch, precision, recomputation, adapters. Experts, offloading, four bits and GPUs without CUDA
are no rows for this forecast. Every row that is left out is counted under its reason. Nothing here looks at a row's tokens/s beyond asking whether it is there.
"""
import csv
import math
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEEDED = ("n_layers", "hidden", "ffn", "n_heads", "vocab", "seq_len", "micro_batch_per_gpu", "n_gpus", "tokens_per_s_per_gpu")
EXPERTS = re.compile(r"nanochat|mixtral|moe|deepseek|grok|qwen3-.*a\d|gpt-?oss|scout|maverick|nemotron-?h|kimi|glm|llava|flux", re.I)
GPUS = {"A100 SXM 80GB": "a100", "A100 SXM 40GB": "a100_40gb", "H100 SXM 80GB": "h100", "H200 SXM": "h200", "B200": "b200",
        "B300": "b300", "GB200": "gb200", "GB300": "gb300", "H100 96GB HBM2e 500W (Meta)": "h100_500w", "L40S": "l40s",
        "RTX 4090": "rtx4090", "RTX 4060 Ti 16GB": "rtx4060ti", "RTX 5090": "rtx5090", "RTX 5060 Ti": "rtx5060ti",
        "RTX PRO 6000": "rtxpro6000"}
RECIPES = {"bf16": 0, "fp8-tensorwise-delayed": 1, "fp8-current": 2, "rowwise": 3, "blockwise128": 4, "mxfp8": 5,
           "fp8-unspecified": 1}
SHARDINGS = {"none": 0, "ddp": 1, "zero1": 2, "zero2": 3, "zero3": 4, "fsdp": 4, "fsdp2": 4, "hsdp": 4}


def data_folder():
    folder = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT.parent / "shared")) / "data" / "published"
    return folder


def read(name):
    with open(data_folder() / name, newline="") as file:
        return list(csv.DictReader(file))


# Who measured: pages of one team have near-twins of each other's rows, so they are left out together.
PROJECTS = (("nvidia-jax", r"JAX-Toolbox|maxtext|paxml"), ("transformer-engine", r"TransformerEngine"), ("nvidia", r"(?i)nvidia"),
            ("pytorch", r"pytorch/"), ("llmq", r"llmq"), ("surogate", r"surogate"), ("llm-foundry", r"llm-foundry"),
            ("fms-acceleration", r"fms-acceleration"), ("fms-fsdp", r"fms-fsdp"), ("coat", r"COAT"), ("ms-amp", r"MS-AMP"),
            ("aws", r"aws-samples"), ("nanochat", r"nanochat"))


def project_of(source):
    return next(name for name, pattern in PROJECTS if re.search(pattern, source))


def stack_of(row):
    """Who wrote the software: the classes that calibration.cpp has constants for."""
    source, notes = row["source"], row["notes"]
    if "llm-foundry" in source:
        return "foundry"  # PyTorch eager, FSDP 1, flash attention
    if "llmq" in source or "surogate" in source:
        return "native"  # hand-written CUDA, launches recorded in graphs
    if "JAX" in source or "maxtext" in source or "paxml" in source:
        return "xla"
    if "NVIDIA" in source or "nvidia" in source:
        return "fused"  # Megatron and NeMo on Transformer Engine
    if re.search(r"fms-acceleration|COAT|huggingface/", source):
        return "hf"  # transformers' trainer
    return "compiled" if row["compile"].startswith("yes") else "eager"


def gpu_name(row):
    """Pages of torchao and torchtitan that say only "H100": the machines of the same team, which the pages that do name
    theirs describe as 96 GB HBM2e, 500 W; torchao's own roofline table calls those numbers "H100" too."""
    if row["gpu"] == "H100 SXM 80GB" and re.search(r"pytorch/(ao|torchtitan)", row["source"]):
        return "h100_500w"
    return GPUS[row["gpu"]]


def gpu_of(row):
    """For plan_tool: a GPU of the table, or a file that says what is different on that page's machines."""
    if "4 x 100 Gb/s" in row["notes"]:
        return str(ROOT / "tests/conformance/plan_blind_a100.yaml")
    if "POWER-LIMITED B200" in row["notes"]:
        return str(ROOT / "tests/conformance/plan_b200_750w.yaml")
    return gpu_name(row)


def lora_rank(row):
    return int(row["lora_rank"]) if row["lora_rank"].isdigit() else None


# Parts of a pipeline's stage ("VP") where a row's note has none: on the page itself (dgxc-benchmarking's tables of TP, PP and VP), or, of pages
# without that column, on NVIDIA's pages of the same model and pipeline. (model, stages, LoRA): parts.
PARTS = {("Llama3.1-405B", 3, False): 7, ("Llama3.1-405B", 4, False): 8, ("Llama3.1-405B", 8, False): 8, ("Llama3.1-405B", 9, False): 7,
         ("Nemotron4-340B", 4, False): 12, ("Nemotron4-340B", 8, False): 12, ("Llama3-70B", 4, False): 5, ("Llama3-70B", 8, False): 5,
         ("Llama3-70B", 4, True): 20, ("Llama2-13B", 4, False): 10, ("Llama2-70B", 4, False): 20, ("Nemotron3-22B", 4, False): 10}


def stage_parts(row, pipeline):
    if pipeline == 1 or "VP=n/a" in row["notes"]:
        return 1
    found = re.search(r"\bVP=?(\d+)", row["notes"])
    if found:
        return int(found.group(1))
    if "torchtitan" in row["source"]:  # two stages of each GPU in its interleaved schedule unless told otherwise
        return 2 if "Interleaved" in row["notes"] else 1
    if "task=SFT" in row["notes"] or "task=LoRA" in row["notes"]:
        return 1  # a page with the column, empty
    return PARTS.get((row["model"], pipeline, bool(lora_rank(row))), 1)


def model_parallel(row):
    """(tensor, pipeline, parts of a stage, context): over how many GPUs one copy of the model is cut."""
    sizes = {name: int(size) for name, size in re.findall(r"(tp|pp|cp)(\d+)", row["parallelism"])}
    pipeline = sizes.get("pp", 1)
    return sizes.get("tp", 1), pipeline, stage_parts(row, pipeline), sizes.get("cp", 1)


def micro_batch(row):
    """Sequences of a micro-batch. torchtitan's local batch is what a pipeline shares out into as many micro-batches as it has stages
    (its pipeline_parallel_microbatches, unset)."""
    size = int(row["micro_batch_per_gpu"])
    pipeline = model_parallel(row)[1]
    return size // pipeline if "torchtitan" in row["source"] and pipeline > 1 else size


def parallelism(row):
    """(sharding as Sharding of src/plan/step_time.h, GPUs that share a copy or 0 for all), or None when it is not stated."""
    text = row["parallelism"]
    if any(int(size) > 1 for size in re.findall(r"ep(\d+)", text)):
        return None
    if re.match(r"tp\d+(-pp\d+)?(-cp\d+)?(-epn/a|-ep1)?(-ddp)?$", text) or re.match(r"tp\d+-pp\d+-dp\d+$", text):
        return 2, 0  # Megatron's distributed optimizer is ZeRO-1
    found = re.match(r"fsdp(\d+)?-tp\d+(-pp\d+)?(-cp\d+)?$|tp\d+-fsdp(\d+)$|fsdp(\d+)-cp\d+$", text)
    if found:
        # Under a pipeline, torchtitan keeps weights gathered and sums gradients once a step: that is ZeRO-1's traffic.
        return (2 if "-pp" in text else 4), 0
    if re.match(r"zero1-(\d+)$", text):
        return 2, int(text.split("-")[1])
    if text.startswith("tp1-pp1"):
        return (4, 0) if "fsdp" in text else (2, 0)  # Megatron's distributed optimizer is ZeRO-1
    if text == "fsdp(zero2)":
        return 3, 0
    group = re.match(r"fsdp(\d+)(xdp\d+|-cp1)?$", text)
    if group and text != "fsdp2":
        return 4, int(group.group(1))
    text = re.sub(r"\(.*\)", "", text).split("+")[0]
    if text == "hsdp":
        return 4, 8
    return (SHARDINGS[text], 0) if text in SHARDINGS else None


def why_not(row):
    """Why a row is none for this forecast; "" when it is one."""
    for name in NEEDED:
        if not row[name]:
            return f"no {name}"
    if row["gpu"] not in GPUS:
        return "GPU not named" if "named" in row["gpu"] else "no CUDA GPU of the table"
    if EXPERTS.search(row["model"]) or "per-expert" in row["notes"]:
        return "experts or not a plain decoder"
    if row["precision"] not in RECIPES:
        return "precision: " + re.sub(r" .*", "", row["precision"])
    if parallelism(row) is None:
        return "expert parallel, or parallelism not stated"
    if "offload" in row["parallelism"] or "offload" in row["notes"].lower():
        return "offloads to the host"
    if lora_rank(row) is None:
        return "LoRA rank not published"
    if not row["recompute"] and stack_of(row) not in ("fused", "xla"):
        return "recomputation not stated"  # NVIDIA's recipes say when they recompute
    if "max BS" in row["notes"]:
        return "batch of the speed not stated"
    if "Unsloth" in row["notes"]:
        return "a stack of its own (Unsloth)"
    return ""


def usable_rows(rows):
    """The rows with enough detail, plus GPT-3 5B, whose vocabulary (GPT-3's, padded; its head is 3% of the work) and recomputation are
    not on the page. Those serve as pairs alone: both sides leave the same out."""
    chosen = []
    for row in rows:
        if row["model"] == "GPT3-5B" and not row["vocab"]:
            row = dict(row, vocab="51200", pair_only=True)
        if not why_not(row):
            chosen.append(row)
    return chosen


def exact_pairs(rows):
    """(place of the BF16 row, of the FP8 row, speed-up, the pair) among `rows`."""
    place = {row["id"]: index for index, row in enumerate(rows)}
    return [(place[pair["bf16_id"]], place[pair["lowp_id"]], float(pair["speedup"]), pair) for pair in read("published_pairs.csv")
            if pair["match"].startswith("exact") and pair["bf16_id"] in place and pair["lowp_id"] in place]


def weight_codes(row):
    """When codes of a weight are made (WeightCodes of src/plan/step_time.h). surogate quantizes frozen weights in every pass unless
    SUROGATE_ENABLE_FP8_WEIGHT_CACHE is set (its source at 524fb776)."""
    return 2 if "surogate" in row["source"] and lora_rank(row) else 0


def workload(row):
    """The row as a line for plan_tool."""
    tokens = micro_batch(row) * int(row["seq_len"])
    gpus = int(row["n_gpus"])
    steps = 1
    tensor, pipeline, parts, context = model_parallel(row)
    if row["global_batch_tokens"]:
        steps = max(1, round(float(row["global_batch_tokens"]) / (tokens * gpus / (tensor * pipeline * context))))
    elif micro_batch(row) != int(row["micro_batch_per_gpu"]):
        steps = pipeline
    elif stack_of(row) == "native":
        steps = max(1, round(524288 / (tokens * gpus)))  # llmq's benchmarks all take half a million tokens
    heads = int(row["n_heads"])
    head = 128 if row["model"].startswith("Qwen3") else int(row["hidden"]) // heads
    gated = bool(re.match(r"llama|qwen|mistral", row["model"], re.I))
    sharding, group = parallelism(row)
    recompute = {"": 0, "none": 0, "selective": 1, "full": 2}[row["recompute"]]
    if "save_qkv_proj" in row["notes"]:
        recompute = 2  # MaxText keeps one GEMM of four and makes the rest again
    native = stack_of(row) == "native"
    targets = 2 if "linear_qkv only" in row["notes"] else 1 if "q/k/v/o" in row["notes"] else 0
    fields = [gpu_of(row), gpus, row["n_layers"], row["hidden"], row["ffn"], heads, row["n_kv_heads"] or heads, head,
              row["vocab"], int(gated), row["seq_len"], micro_batch(row), steps, RECIPES[row["precision"]],
              sharding, group, recompute, lora_rank(row), targets, 16 if native else 28, stack_of(row), tensor, pipeline, parts, context,
              weight_codes(row)]
    return " ".join(str(field) for field in fields)


# Transformer Engine's profile of one layer's GEMMs, kernels alone: 15872 tokens, 4096 wide, four times as wide inside.
PROFILED = ((15872, 12288, 4096), (15872, 4096, 4096), (15872, 16384, 4096), (15872, 4096, 16384))


def profiled_layers():
    """((lines for plan_tool, milliseconds), …) of the layer totals whose kernels were timed alone."""
    layers = []
    for row in read("published_gemm.csv"):
        gpu = {"B300 SXM6 AC": "b300", "H200 NVL": "h200_nvl"}.get(row["gpu"])
        if gpu and row["mode"].startswith("pre-quantised") and row["precision"] in ("bf16", "fp8-current"):
            fp8 = int(row["precision"] != "bf16")
            lines = [f"gemm {gpu} {a} {b} {c} {fp8}" for m, n, k in PROFILED
                     for a, b, c in ((m, n, k), (m, k, n), (n, k, m))]
            layers.append((row["source"], lines, float(row["total_ms"])))
    return layers


class Tool:
    """plan_tool as a process: constants in, forecasts out."""

    def __init__(self, rows, binary, parts=False):
        import tempfile
        self.file = tempfile.NamedTemporaryFile("w", suffix=".rows")
        self.file.write("".join((row if isinstance(row, str) else workload(row)) + "\n" for row in rows))
        self.file.flush()
        self.parts = parts
        self.process = subprocess.Popen([str(binary), self.file.name] + (["--parts"] if parts else []), text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __call__(self, constants):
        self.process.stdin.write(" ".join(f"{name}={value:.6g}" for name, value in constants.items()) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().split()
        if self.parts:
            return [[float(value) for value in row.split(",")] for row in answer]
        return [float(value) for value in answer]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def quantile(values, share):
    values = sorted(values)
    place = share * (len(values) - 1)
    low = math.floor(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (place - low)
