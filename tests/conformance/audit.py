#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=900 gate="--short" night="" alone=night measures="src/audit src/cli/audit.cpp"
"""octavo audit against hand-checked answers: kernel names, 13 public traces, traces made here by torch.profiler, cut and hostile
ones, and 1 GB of trace in 20 s and 1 GB of memory.

usage: audit.py [--short]    --short: 128 MB of trace instead of 1 GB
"""
import collections
import gzip
import json
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import tempfile
import time

import audit_names

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("OCTAVO_BUILD", ROOT / "build" / "release"))
OCTAVO = BUILD / "bin" / "octavo"
DATA = pathlib.Path(os.environ.get("OCTAVO_TEST_DATA", ROOT.parent / "shared"))
TRACES, SHEET = DATA / "data" / "traces", DATA / "sheets" / "kernel-names.md"
USAGE, DAMAGED, UNDECIDED = 2, 5, 6
MOST_SECONDS, MOST_MB, BIG_MB = 20, 1000, 1024

# The precision of every GEMM kernel in the traces, by hand: what each name is, and the operation that it was launched by where
# the trace says one. Helpers and convolutions are no GEMMs.
NO_GEMM = re.compile(r"implicit_gemm|cudnn|splitK|fill_tensormaps|utils::transpose|fbgemm")
GEMMS = [(r"fp8_d?ptp128c(_acc)?::GemmKernel", "FP8"), (r"^sm90_xmma_gemm_bf16", "BF16"), (r"cutlass_80_tensorop_s1688gemm", "TF32"),
         (r"^(ampere|volta)_sgemm", "FP32"), (r"simt_sgemm", "FP32"), (r"^nvjet_tst", "BF16"), (r"^sm80_xmma_gemm_f32f32_f32f32", "FP32"),
         (r"^bmm_\w+_MxE2m1MxE4m3", "MXFP4"), (r"tensorop_bf16_s\d+gemm", "BF16"), (r"gemv|gemmk1|sgemm_largek|magma_sgemm", "FP32")]
# Trace: GEMM calls by precision, GPUs, words of the verdict; classes with their calls.
ANSWERS = {
    "deepseek_h800_fp8_train.json": ({"FP8": 140, "BF16": 12}, 1, ["FP8 asked for, 99% of GEMM time in FP8", "12 GEMMs in 16 bits or more", "quantizing costs"],
                                     {"attention": 16, "quantize": 160, "fp8 transpose": 100, "dequantize": 16, "collective": 32, "moe": 40, "norm": 64,
                                      "rope": 24}),
    "hta_a100_nccl.json.gz": ({"TF32": 234, "FP32": 9}, 1, ["no FP8 kernel", "doubtful"], {"collective": 21}),
    "hta_timeline_rank0.json.gz": ({"TF32": 308, "FP32": 60}, 1, ["FP8 asked for, 0% of GEMM time in FP8"],
                                   {"quantize": 2, "dequantize": 2, "amax": 2, "collective": 10}),
    "hta_trace_diff_control.json.gz": ({"TF32": 1638, "FP32": 138}, 1, ["no FP8 kernel"], {"collective": 60, "optimizer": 48}),
    "hta_trace_diff_test.json.gz": ({"FP32": 1822}, 1, ["no FP8 kernel", "without tensor cores"], {"collective": 64, "optimizer": 56}),
    "nsysai_h100_2gpu_1s.sqlite": ({"FP32": 640}, 2, ["no FP8 kernel", "FP32 100%", "without tensor cores"], {"memcpy": 904}),
    "nsysai_mfu_after.sqlite": ({"BF16": 302}, 2, ["no FP8 kernel", "BF16 100%"], {"attention": 60, "collective": 62, "memcpy": 904}),
    "nsysai_mfu_before.sqlite": ({"BF16": 337}, 2, ["no FP8 kernel", "BF16 100%"], {"attention": 68, "collective": 66, "memcpy": 1020}),
    "nsysai_mock.sqlite": ({}, 1, ["no GEMM among 3 kernels"], {"reduction": 1, "memcpy": 1}),
    "param_linear_kineto.json.gz": ({"FP32": 2480}, 1, ["no FP8 kernel", "FP32 99%"], {"softmax": 240}),
    "tracelens_b200_gptoss.json.gz": ({"BF16": 109, "MXFP4": 72}, 1, ["FP8 asked for", "in FP8 or FP4", "in BF16"],
                                      {"attention": 36, "collective": 74, "quantize": 72, "memcpy": 161}),
    "tracelens_h100_bert_small.json.gz": ({"BF16": 26}, 1, ["no FP8 kernel", "BF16 100%"], {"attention": 4, "norm": 10}),
    "tracelens_h100_qwen1.5_0.5b.json.gz": ({"BF16": 241, "FP32": 1}, 1, ["no FP8 kernel", "BF16 99%"], {"attention": 34, "gemm helper": 168}),
}
# Shapes that were read off the traces: GEMM kernels with these sizes and calls must be there.
SHAPES = {"tracelens_h100_qwen1.5_0.5b.json.gz": [("aten::addmm", 8944, 1024, 1024), ("aten::mm", 8944, 2816, 1024), ("aten::mm", 8944, 1024, 2816)]}


class Checks:
    def __init__(self):
        self.done, self.wrong = 0, 0

    def that(self, condition, text):
        self.done += 1
        if not condition:
            self.wrong += 1
            print(f"wrong: {text}"[:600])


CHECK = Checks()


def run(*arguments, code=0):
    """The result as JSON, and what was printed; wrong when the exit code is another."""
    done = subprocess.run([OCTAVO, "audit", *arguments, "--json"], capture_output=True, timeout=300)
    codes = code if isinstance(code, tuple) else (code,)
    CHECK.that(done.returncode in codes, f"{arguments}: exit {done.returncode}, wanted {codes}: {done.stderr.decode(errors='replace')[-300:]}")
    return (json.loads(done.stdout) if done.returncode in (0, UNDECIDED) and done.stdout else {}), done.stderr.decode(errors="replace")


def write_trace(path, events, **top):
    path.write_text(json.dumps({"schemaVersion": 1, **top, "traceEvents": events}))
    return path


def kernel_event(name, ts, dur=2.0, **arguments):
    return {"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur,
            "args": {"device": 0, "stream": 7, "correlation": int(ts), **arguments}}


def answers_by_name(result):
    return {row["kernel"]: row for row in [*result["gemms"], *result["kernels"]]}


def check_names(work):
    """Every name of the sheet, and more: class, precision, and whether it is said to be sure."""
    names = list(audit_names.sheet_names(SHEET.read_text()))
    CHECK.that(len(names) == 336, f"{len(names)} names in the sheet, wanted 336")
    more = [("more", name, {kind}, precision, sure) for name, kind, precision, sure in audit_names.more_names()]
    everything = [*names, *more]
    events = [kernel_event(name, 10 * i) for i, (_, name, *_) in enumerate(everything)]
    found = answers_by_name(run(write_trace(work / "names.json", events))[0])
    for number, name, classes, precision, sure in everything:
        row = found.get(name)
        if row is None:
            CHECK.that(False, f"{number} {name}: not in the answer")
            continue
        CHECK.that(classes is not None and row["class"] in classes, f"{number} {name}: {row['class']}, wanted {classes}")
        # The sheet shortens names: types that stood where the dots are cannot be read.
        hidden = "…" in name and row["precision"] == "unknown"
        better = (precision, row["precision"]) == ("FP8", "MXFP8")
        CHECK.that(precision is None or row["precision"] == precision or hidden or better, f"{number} {name}: {row['precision']}, wanted {precision}")
        CHECK.that(sure is None or row["sure"] == sure, f"{number} {name}: sure={row['sure']}, wanted {sure}")
    return len(everything)


def gpu_work(path):
    """(name, microseconds, is a kernel) of everything that ran on a GPU, read with Python's own parsers."""
    if path.suffix == ".sqlite":
        base = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
        tables = {row[0] for row in base.execute("SELECT name FROM sqlite_master")}
        for name, length in base.execute("SELECT s.value, end - start FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.demangledName"):
            yield name, length / 1000, True
        for table in {"CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"} & tables:
            for (length,) in base.execute(f"SELECT end - start FROM {table}"):
                yield table, length / 1000, False
        return
    opened = gzip.open(path) if path.suffix == ".gz" else open(path, "rb")
    with opened as file:
        for event in json.load(file)["traceEvents"]:
            if event.get("ph") == "X" and event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
                yield event["name"], event["dur"], event["cat"] == "kernel"


def gemm_precision(name):
    plain = name.removeprefix("void ")
    return None if NO_GEMM.search(plain) else next((precision for pattern, precision in GEMMS if re.search(pattern, plain)), None)


def check_trace(path, answer):
    calls, devices, words, classes = answer
    result, _ = run(path)
    total = result["total"]
    work = list(gpu_work(path))
    sum_ms = sum(length for _, length, _ in work) / 1000
    CHECK.that(total["work"]["calls"] == len(work), f"{path.name}: {total['work']['calls']} kernels, wanted {len(work)}")
    CHECK.that(abs(total["work"]["ms"] - sum_ms) <= 0.01 * sum_ms, f"{path.name}: {total['work']['ms']} ms, wanted {sum_ms}")
    by_class = sum(row["ms"] for row in result["classes"].values())
    CHECK.that(abs(by_class - sum_ms) <= 0.01 * sum_ms, f"{path.name}: classes add up to {by_class} ms, wanted {sum_ms}")
    by_row = sum(row["ms"] for row in [*result["gemms"], *result["kernels"]])
    CHECK.that(abs(by_row - sum_ms) <= 0.01 * sum_ms, f"{path.name}: kernels add up to {by_row} ms, wanted {sum_ms}")
    wanted = collections.Counter(filter(None, (gemm_precision(name) for name, _, is_kernel in work if is_kernel)))
    CHECK.that(dict(wanted) == calls, f"{path.name}: the trace has GEMMs {dict(wanted)}, the answer says {calls}")
    found = {name: row["calls"] for name, row in result["gemm_precisions"].items()}
    CHECK.that(found == calls, f"{path.name}: GEMM calls {found}, wanted {calls}")
    for row in result["gemms"]:
        right = gemm_precision(row["kernel"])
        CHECK.that(row["precision"] == right, f"{path.name}: {row['kernel'][:80]}: {row['precision']}, wanted {right}")
    CHECK.that("unknown gemm" not in result["classes"], f"{path.name}: unknown GEMMs")
    CHECK.that(total["devices"] == devices, f"{path.name}: {total['devices']} GPUs, wanted {devices}")
    text = "; ".join([result["verdict"], *result["reasons"]])
    for word in words:
        CHECK.that(word in text, f"{path.name}: wanted '{word}' in: {text}")
    for name, count in classes.items():
        got = result["classes"].get(name, {}).get("calls", 0)
        CHECK.that(got == count, f"{path.name}: {got} of {name}, wanted {count}")
    for op, m, n, k in SHAPES.get(path.name, []):
        shapes = [row for row in result["gemms"] if row["op"] == op and row.get("shape") == {"batch": 1, "m": m, "n": n, "k": k}]
        CHECK.that(shapes, f"{path.name}: wanted {op} of {m} x {n} x {k}")


def check_links():
    """The trap of old kineto: External id repeats the correlation, and hits operations that launched nothing."""
    result, _ = run(TRACES / "param_linear_kineto.json.gz")
    linked = result["total"]["linked"]
    CHECK.that(result["files"][0]["linked"]["ids_are_correlations"] and linked["by_id"] == 0, f"param: {linked}")
    ops = {row["op"] for row in result["gemms"]}
    CHECK.that(ops <= {"aten::addmm", "aten::mm", "aten::linear"} and ops, f"param: GEMMs of {ops}")
    result, _ = run(TRACES / "tracelens_h100_qwen1.5_0.5b.json.gz")
    lost = result["total"]["unattributed"]["calls"]
    CHECK.that(lost == 436 + 73, f"qwen: {lost} kernels and sets without a launch, wanted 436 and 73")
    ops = {row["op"] for row in result["gemms"] if row["op"]}
    CHECK.that(ops <= {"aten::addmm", "aten::mm", "aten::bmm"}, f"qwen: GEMMs of {ops}")
    result, _ = run("--compare", TRACES / "nsysai_mfu_before.sqlite", TRACES / "nsysai_mfu_after.sqlite")
    lines = {line["class"]: line for line in result["classes"]}
    CHECK.that((lines["GEMM BF16"]["a_calls"], lines["GEMM BF16"]["b_calls"]) == (337, 302), f"compare: {lines['GEMM BF16']}")


def check_made_here(work):
    """A trace of torch.profiler on the CPU, with kernels of real names launched by its operations: sizes, types, modules."""
    import torch

    model = torch.nn.Sequential(torch.nn.Linear(48, 80), torch.nn.Linear(80, 1000))
    with torch.profiler.profile(record_shapes=True, with_stack=True) as profiler:
        model(torch.randn(32, 48)).sum().backward()
        torch.bmm(torch.randn(2, 3, 4), torch.randn(2, 4, 5))
    plain, made = work / "cpu.json", work / "made.json"
    profiler.export_chrome_trace(str(plain))
    trace = json.loads(plain.read_text())
    names = {"aten::addmm": "nvjet_sm90_tst_256x160_64x4_1x2_h_bz_coopA_TNT", "aten::mm": "nvjet_sm90_sss_tf32_128x128_NNT",
             "aten::bmm": "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>"}
    ops = [event for event in trace["traceEvents"] if event.get("cat") == "cpu_op" and event["name"] in names]
    for i, op in enumerate(ops):
        launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": op["pid"], "tid": op["tid"],
                  "ts": op["ts"] + 0.98 * op["dur"], "dur": 0.001, "args": {"correlation": 9000 + i}}
        known = {"External id": op["args"]["External id"]} if i % 2 else {}  # linked by id and by time in turns
        trace["traceEvents"] += [launch, kernel_event(names[op["name"]], op["ts"] + 1e6 + 10 * i, 3.0, **(known | {"correlation": 9000 + i}))]
    made.write_text(json.dumps(trace))
    result, _ = run(made)
    rows = [(row["op"], *(row.get("shape", {}).get(side) for side in ("batch", "m", "n", "k"))) for row in result["gemms"]
            for _ in range(row["calls"])]
    wanted = []
    for op in ops:
        dims = op["args"]["Input Dims"]
        a, b = dims[1:3] if op["name"] == "aten::addmm" else dims[:2]
        wanted.append((op["name"], b[0] if len(b) == 3 else 1, a[-2], b[-1], a[-1]))
    CHECK.that(sorted(map(str, rows)) == sorted(map(str, wanted)) and len(wanted) >= 4, f"made here: {rows}, wanted {wanted}")
    disputed = {row["op"] for row in result["gemms"] if row["disputed"]}
    CHECK.that(disputed == {"aten::addmm"}, f"made here: FP32 operands and a BF16 kernel are disputed, found {disputed}")
    modules = {module for row in result["gemms"] for module in row["modules"]}
    CHECK.that({"Linear_0", "Linear_1"} <= modules, f"made here: modules {modules}")


def check_cut(work):
    whole = (TRACES / "deepseek_h800_fp8_train.json").read_bytes()
    before = -1
    for tenth in range(1, 11):
        path = work / "cut.json"
        path.write_bytes(whole[:len(whole) * tenth // 10 - 5])
        result, _ = run(path, code=(0, UNDECIDED))
        kernels = result["total"]["work"]["calls"]
        CHECK.that(result["total"]["cut"] and kernels >= before, f"cut at {tenth}/10: cut={result['total']['cut']}, {kernels} kernels")
        before = kernels
    CHECK.that(before > 900, f"cut 5 bytes before its end: {before} kernels, wanted nearly all")
    packed = (TRACES / "tracelens_b200_gptoss.json.gz").read_bytes()
    (work / "cut.json.gz").write_bytes(packed[:len(packed) * 4 // 5])
    result, _ = run(work / "cut.json.gz", code=(0, UNDECIDED))
    CHECK.that(result["total"]["cut"], "a cut gzip file is not said to be cut")


def hostile_files():
    yield "empty", b"", USAGE
    yield "text", b"hello, this is no trace\n", USAGE
    yield "no_events", b'{"a": [1, 2, {"b": "c"}]}', USAGE
    yield "deep", b"[" * 100_000, DAMAGED
    yield "deep_arguments", b'[{"ph":"X","args":{"x":' + b"[" * 5000 + b"]" * 5000 + b"}}]", DAMAGED
    yield "brackets", b'{"x": [}}, "traceEvents": []}', DAMAGED
    yield "two_values", b'{"traceEvents": []} {"traceEvents": []}', DAMAGED
    yield "garbage", b'{"traceEvents": [\x00\xff\xfe]}', DAMAGED
    yield "gzip_garbage.gz", b"\x1f\x8b\x08\x00" + bytes(range(256)) * 8, DAMAGED
    yield "bomb.gz", gzip.compress(b'{"x": "' + b" " * (400 << 20), 9), DAMAGED
    yield "sqlite_garbage", b"SQLite format 3\0" + bytes(4096), DAMAGED
    yield "pickle", b"\x80\x04\x95\x10\x00\x00\x00\x00\x00\x00\x00cos\nsystem\n.", USAGE


# A small process starts the program: a child's peak begins with that of whoever forked it, and this script holds whole traces.
MEASURE = """import os, subprocess, sys, time
begin = time.monotonic()
process = subprocess.Popen(sys.argv[2:])
_, status, usage = os.wait4(process.pid, 0)
open(sys.argv[1], "w").write(f"{os.waitstatus_to_exitcode(status)} {time.monotonic() - begin} {usage.ru_maxrss / 1024}")"""


def measured(arguments):
    """Exit code, standard output, seconds, peak megabytes and standard error of one run."""
    with tempfile.NamedTemporaryFile() as numbers:
        done = subprocess.run([sys.executable, "-S", "-c", MEASURE, numbers.name, OCTAVO, "audit", *arguments], capture_output=True)
        code, seconds, peak = pathlib.Path(numbers.name).read_text().split()
    return int(code), done.stdout.decode(errors="replace"), float(seconds), float(peak), done.stderr.decode(errors="replace")


def check_hostile(work):
    refused = 0
    for name, content, code in hostile_files():
        path = work / name
        path.write_bytes(content)
        found, _, seconds, peak, message = measured([path])
        refused += found == code
        CHECK.that(found == code and "octavo: [audit]" in message, f"hostile {name}: exit {found}, wanted {code}: {message[:200]}")
        CHECK.that(seconds < 10 and peak < 512, f"hostile {name}: {seconds:.1f} s, {peak:.0f} MB")
    names = write_trace(work / "names.json", [kernel_event(f"\x1b[31mevil\x07{i}" + "x" * 3000, i) for i in range(3000)])
    found, text, *_ = measured([names])
    CHECK.that(found == 0 and "\x1b" not in text and "\x07" not in text, "control characters of a kernel's name reach the terminal")
    wild = work / "wild.json"
    wild.write_text('[{"ph":"X","cat":"kernel","name":"k","ts":1e300,"dur":1},{"ph":"X","cat":"kernel","name":"k","ts":-5,"dur":1e18},'
                    '{"ph":"X","cat":"kernel","name":"nvjet_qqtst_1","ts":9e14,"dur":9e14,"args":{"bytes":9223372036854775807}}]')
    result, _ = run(wild)
    CHECK.that(result["total"]["malformed"] == 2 and result["total"]["work"]["calls"] == 1, f"wild times: {result.get('total')}")
    base = work / "view.sqlite"
    with sqlite3.connect(base) as made:
        made.execute("CREATE TABLE StringIds (id INT, value TEXT)")
        made.execute("CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE c(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM c) "
                     "SELECT start, start + 1 AS end FROM c")
    made.close()
    found, _, seconds, *_ = measured([base])
    CHECK.that(found == UNDECIDED and seconds < 5, f"a view that never ends: exit {found} after {seconds:.1f} s")
    return refused


def write_big(path, megabytes):
    """A trace as kineto writes one: an operation, its launch and its kernel, again and again, with sizes and flows."""
    layers = [("aten::mm", "nvjet_sm90_tst_256x160_64x4_1x2_h_bz_coopA_TNT", "c10::BFloat16"),
              ("aten::_scaled_mm", "nvjet_sm90_qqtst_128x256_128x6_2x1_v_bz_TNT", "c10::Float8_e4m3fn"),
              ("aten::mul", "void at::native::vectorized_elementwise_kernel<4, at::native::BinaryFunctor<float, float, float, "
               "at::native::binary_internal::MulFunctor<float> >, at::detail::Array<char*, 3> >(int, float)", "float"),
              ("aten::amax", "triton_red_fused_abs_max_2", "c10::BFloat16")]
    kernels, written = 0, 0
    with open(path, "w") as file:
        written += file.write('{"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}],\n"traceEvents": [\n')
        while written < megabytes << 20:
            lines = []
            for i in range(1000):
                number = kernels + i
                op, name, type_name = layers[number % len(layers)]
                ts = 1_740_461_679_000_000 + 20 * number
                lines.append(
                    f'{{"ph": "X", "cat": "cpu_op", "name": "{op}", "pid": 24248, "tid": 24248,\n    "ts": {ts}.125, "dur": 9.500,\n    "args": '
                    f'{{"External id": {number + 1},"Record function id": 0, "Concrete Inputs": ["", "", ""], "Input type": ["{type_name}", '
                    f'"{type_name}", "Scalar"], "Input Strides": [[4096, 1], [1, 4096], []], "Input Dims": [[8192, 4096], [4096, {4096 + 16 * (number % 64)}], '
                    f'[]], "Ev Idx": {number}}}\n  }},\n  {{"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "pid": 24248, "tid": 24248,\n    '
                    f'"ts": {ts + 3}.500, "dur": 4.250,\n    "args": {{"External id": {number + 1}, "cbid": 211, "correlation": {number + 7000000}}}\n  }},\n  '
                    f'{{"ph": "s", "id": {number}, "pid": 24248, "tid": 24248, "ts": {ts + 3}.500, "cat": "ac2g", "name": "ac2g"}},\n  {{"ph": "X", "cat": '
                    f'"kernel", "name": "{name}", "pid": 0, "tid": 7,\n    "ts": {ts + 10}.000, "dur": 8.125,\n    "args": {{"External id": {number + 1}, '
                    f'"queued": 0, "device": 0, "context": 1, "stream": 7, "correlation": {number + 7000000}, "registers per thread": 168, '
                    f'"shared memory": 213248, "blocks per SM": 1.000000, "warps per SM": 12.000000, "grid": [132, 1, 1], "block": [384, 1, 1], '
                    f'"est. achieved occupancy %": 19}}\n  }},\n  {{"ph": "f", "id": {number}, "pid": 0, "tid": 7, "ts": {ts + 10}.000, "cat": "ac2g", '
                    f'"name": "ac2g", "bp": "e"}},\n')
            written += file.write("".join(lines))
            kernels += 1000
        file.write('{"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "python"}}\n]}\n')
    return kernels


def check_big(work, megabytes):
    path = work / "big.json"
    kernels = write_big(path, megabytes)
    code, text, seconds, peak, message = measured([path, "--json"])
    path.unlink()
    CHECK.that(code == 0, f"big: exit {code}: {message[-300:]}")
    result = json.loads(text) if code == 0 else {"total": {"work": {"calls": 0, "ms": 0}}, "gemm_precisions": {}}
    CHECK.that(result["total"]["work"]["calls"] == kernels, f"big: {result['total']['work']['calls']} kernels, wanted {kernels}")
    CHECK.that(abs(result["total"]["work"]["ms"] - kernels * 8.125 / 1000) < 1, "big: times do not add up")
    CHECK.that(result["gemm_precisions"].get("FP8", {}).get("calls") == kernels // 4, "big: FP8 GEMMs")
    CHECK.that(seconds <= MOST_SECONDS * megabytes / BIG_MB + 1, f"big: {seconds:.1f} s for {megabytes} MB")
    CHECK.that(peak <= MOST_MB, f"big: {peak:.0f} MB of memory")
    return seconds, peak


def main():
    missing = [path for path in (OCTAVO, TRACES, SHEET) if not path.exists()]
    if missing:
        print(f"wanted {missing[0]}, found none; build octavo, set OCTAVO_TEST_DATA")
        sys.exit(1 if OCTAVO in missing or os.environ.get("CI") == "true" else 0)
    megabytes = 128 if "--short" in sys.argv else BIG_MB
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        names = check_names(work)
        for trace, answer in ANSWERS.items():
            check_trace(TRACES / trace, answer)
        check_links()
        check_made_here(work)
        check_cut(work)
        refused = check_hostile(work)
        seconds, peak = check_big(work, megabytes)
    print(f"names={names} traces={len(ANSWERS)} checks={CHECK.done} refused={refused} big_mb={megabytes} seconds={seconds:.2f} peak_mb={peak:.0f} "
          f"wrong={CHECK.wrong}")
    sys.exit(1 if CHECK.wrong else 0)


if __name__ == "__main__":
    main()
