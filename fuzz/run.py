"""Runs the libFuzzer targets of this folder, with AddressSanitizer and UBSan, and keeps what they find.

A target may take one second and 256 MB for an input. The limit that libFuzzer gets is higher by what the process has before
its first input (the sanitizer's shadow memory, and the libraries of torch or Arrow) and by the sanitizer's quarantine, which
holds freed memory back on purpose. Findings are kept in fuzz/findings/TARGET and replayed with --replay ever after.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD, COVERAGE = ROOT / "build" / "fuzz", ROOT / "build" / "fuzz-coverage"
FINDINGS = ROOT / "fuzz" / "findings"
MEMORY_MB, QUARANTINE_MB, TIMEOUT_S = 256, 16, 1
MOST_FINDINGS = 5  # of one target in one run

# Target: the longest input, the dictionary, and the parser's own files, whose coverage is measured.
TARGETS = {
    "adapter": (4096, "json", ["train/peft_config.cpp"]),
    "arrow": (8192, None, ["data/arrow/arrow_module.cpp", "data/arrow/ipc_batches.cpp", "data/arrow/row_json.cpp"]),
    "chat": (4096, "json", ["data/chat_template.cpp", "data/row_format.cpp"]),
    "config": (4096, "yaml", ["config/yaml.cpp"]),
    "dataset_index": (4096, "json", ["data/dataset_index.cpp"]),
    "http": (8192, "http", ["monitor/http_server.cpp"]),
    "import": (4096, "yaml", ["config/import_read.cpp"]),
    "json_rows": (4096, "json", ["data/json_rows.cpp", "data/row_format.cpp"]),
    "manifest": (8192, "json", ["checkpoint/manifest.cpp", "checkpoint/index_json.cpp", "checkpoint/part_list.cpp",
                                "checkpoint/sealed_json.cpp"]),
    "model_config": (4096, "json", ["models/config_fields.cpp", "models/llama/config.cpp"]),
    "model_index": (4096, "json", ["checkpoint/hf.cpp"]),
    "parquet": (8192, None, ["data/arrow/arrow_module.cpp", "data/arrow/parquet_batches.cpp"]),
    "rendezvous": (4096, None, ["rendezvous/protocol.cpp", "rendezvous/server_requests.cpp"]),
    "safetensors": (4096, "safetensors", ["checkpoint/safetensors_reader.cpp"]),
    "shard": (4096, None, ["data/shard.cpp"]),
    "sweep": (4096, "yaml", ["sweep/definition.cpp", "sweep/parameter_parse.cpp"]),
    "tokenizer": (32768, "tokenizer", ["tokenizer/hf_file.cpp", "tokenizer/regex_syntax.cpp"]),
    "tokenizer_text": (4096, "tokenizer", ["tokenizer/pre_tokenizer.cpp", "tokenizer/bpe.cpp", "tokenizer/nfc.cpp"]),
}


def environment():
    sanitizer = f"quarantine_size_mb={QUARANTINE_MB}:allocator_may_return_null=0:handle_abort=1"
    scratch = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return os.environ | {"ASAN_OPTIONS": sanitizer, "OMP_NUM_THREADS": "1"} | ({"TMPDIR": scratch} if scratch else {})


def program(target):
    return BUILD / "bin" / f"fuzz_{target}"


def run_or_exit(command):
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout[-4000:]}")


def build(targets):
    run_or_exit(["cmake", "--preset", "fuzz"])
    run_or_exit(["cmake", "--build", "--preset", "fuzz", "--target", *(f"fuzz_{t}" for t in targets)])


def base_memory(target):
    """Megabytes that the process has before its first input."""
    done = subprocess.run([program(target), "-runs=0"], env=environment(), stderr=subprocess.PIPE, text=True)
    found = re.findall(r"rss: (\d+)Mb", done.stderr)
    if not found:
        sys.exit(f"fuzz_{target} does not run:\n{done.stderr[-2000:]}")
    return int(found[-1])


def limits(target, seconds=TIMEOUT_S):
    memory = MEMORY_MB + QUARANTINE_MB + base_memory(target)
    return [f"-rss_limit_mb={memory}", f"-malloc_limit_mb={MEMORY_MB}", f"-timeout={seconds}"]


def run_measured(command):
    """Exit code, what it said, and the seconds of processor time: on a machine with other work the clock says little."""
    with tempfile.TemporaryFile() as sink:
        process = subprocess.Popen(command, env=environment(), stdout=subprocess.DEVNULL, stderr=sink)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        sink.seek(0)
        return process.returncode, sink.read().decode(errors="replace"), usage.ru_utime + usage.ru_stime


def cpu_seconds(target, artifact):
    """Of one input, without the start."""
    start = run_measured([program(target), "-runs=0"])[2]
    return run_measured([program(target), *limits(target, 60), artifact])[2] - start


class Result:
    def __init__(self):
        self.executions, self.seconds, self.cpu_seconds, self.edges, self.false_alarms = 0, 0.0, 0.0, 0, 0
        self.findings = {"crash": [], "timeout": [], "oom": [], "leak": []}

    def take(self, log):
        count = re.findall(r"stat::number_of_executed_units:\s*(\d+)", log)
        self.executions += int(count[-1]) if count else 0
        covered = re.findall(r"cov: (\d+)", log)
        self.edges = max([self.edges, *map(int, covered[-1:])])

    def keep(self, target, log):
        """Sorts in what the run left behind; False when it was a false alarm."""
        artifact = re.findall(r"Test unit written to (\S+)", log)
        if not artifact:
            return False
        path = pathlib.Path(artifact[-1])
        kind = path.name.split("-")[0]
        if kind == "timeout" and cpu_seconds(target, path) < TIMEOUT_S:
            path.unlink()
            self.false_alarms += 1
            return False
        self.findings[kind].append((path, log))
        return True


def fuzz(target, options):
    longest, dictionary, _ = TARGETS[target]
    corpus, kept = BUILD / "corpus" / target, FINDINGS / target
    for folder in (corpus, kept):
        folder.mkdir(parents=True, exist_ok=True)
    command = [program(target), corpus, BUILD / "seeds" / target, kept, *limits(target), f"-max_len={longest}",
               "-print_final_stats=1", "-report_slow_units=1000", f"-artifact_prefix={kept}/", "-use_value_profile=0"]
    if dictionary:
        command.append(f"-dict={ROOT / 'fuzz' / (dictionary + '.dict')}")
    result, begin = Result(), time.monotonic()
    while True:
        left = options.seconds - (time.monotonic() - begin)
        budget = ([f"-runs={options.executions - result.executions}"] if options.executions
                  else [f"-max_total_time={max(1, int(left))}"])
        code, log, cpu = run_measured([*command, *budget])
        result.take(log)
        result.cpu_seconds += cpu
        if code != 0 and not result.keep(target, log) and result.false_alarms == 0:
            sys.exit(f"fuzz_{target} ended with {code}:\n{log[-3000:]}")
        found = sum(map(len, result.findings.values()))
        over = result.executions >= options.executions if options.executions else time.monotonic() - begin >= options.seconds
        if over or found >= MOST_FINDINGS or result.false_alarms > 20 or (found and code != 0):
            break
    result.seconds = time.monotonic() - begin
    return result


def replay(target, _):
    """Every seed and every finding once."""
    inputs = [p for folder in (BUILD / "seeds" / target, FINDINGS / target) if folder.exists() for p in sorted(folder.iterdir())]
    result, begin = Result(), time.monotonic()
    done = subprocess.run([program(target), *limits(target), *inputs], env=environment(), stdout=subprocess.DEVNULL,
                          stderr=subprocess.PIPE)
    log = done.stderr.decode(errors="replace")
    result.executions = len(inputs)
    if done.returncode != 0:
        running = re.findall(r"Running: (\S+)", log)
        kind = "timeout" if "libFuzzer: timeout" in log else "oom" if "out-of-memory" in log else "crash"
        if not (kind == "timeout" and cpu_seconds(target, running[-1]) < TIMEOUT_S):
            result.findings[kind].append((running[-1] if running else target, log))
    result.seconds = time.monotonic() - begin
    return result


def build_for_coverage(targets):
    """A second build, without sanitizers, that counts lines."""
    flags = "-fprofile-instr-generate -fcoverage-mapping"
    for command in (["cmake", "--preset", "fuzz", "-B", COVERAGE, "-DOCTAVO_SANITIZE=fuzzer-no-link",
                     f"-DCMAKE_CXX_FLAGS={flags}"],
                    ["cmake", "--build", COVERAGE, "--target", *(f"fuzz_{t}" for t in targets)]):
        run_or_exit(command)


def coverage(target, _):
    """Lines of the parser's files that the corpus, the seeds and the findings reach."""
    folders = [f for f in (BUILD / "corpus" / target, BUILD / "seeds" / target, FINDINGS / target) if f.exists()]
    binary, raw, merged = COVERAGE / "bin" / f"fuzz_{target}", COVERAGE / f"{target}.raw", COVERAGE / f"{target}.profile"
    subprocess.run([binary, "-runs=0", *folders], env=environment() | {"LLVM_PROFILE_FILE": str(raw)}, capture_output=True,
                   check=True)
    subprocess.run(["llvm-profdata-14", "merge", raw, "-o", merged], check=True)
    files = [ROOT / "src" / f for f in TARGETS[target][2]]
    exported = subprocess.run(["llvm-cov-14", "export", "-summary-only", f"-instr-profile={merged}", binary, "-object",
                               COVERAGE / "lib" / "libfuzz_light.so", *files], capture_output=True, check=True)
    lines = []
    for file in json.loads(exported.stdout)["data"][0]["files"]:
        count = file["summary"]["lines"]
        lines.append(f"  {pathlib.Path(file['filename']).relative_to(ROOT)}: {count['percent']:.1f}% of {count['count']} lines")
    print("\n".join([f"{target}:", *lines]), flush=True)
    return Result()


def describe(target, result):
    speed = result.executions / result.seconds if result.seconds else 0
    core = result.executions / result.cpu_seconds if result.cpu_seconds else 0
    counts = " ".join(f"{kind}={len(found)}" for kind, found in result.findings.items())
    print(f"{target:15} executions={result.executions} per_second={speed:.0f} per_core_second={core:.0f} edges={result.edges} {counts} "
          f"false_alarms={result.false_alarms}", flush=True)
    for kind, found in result.findings.items():
        for path, log in found:
            reason = re.findall(r"^.*(?:finding:|ERROR:|runtime error:).*$", log, re.MULTILINE)[:2]
            frames = re.findall(r"^\s+#\d+ \S+ in (.*octavo.*)$", log, re.MULTILINE)[:4]
            print(f"  {kind} {path}\n    " + "\n    ".join([*reason, *frames]), flush=True)


def main():
    parser = argparse.ArgumentParser(prog="fuzz/run", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; all when none is given")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (60)")
    parser.add_argument("--executions", type=int, default=0, help="of each target, instead of seconds")
    parser.add_argument("--jobs", type=int, default=2, help="targets at a time (2)")
    parser.add_argument("--no_build", action="store_true", help="run what is built, though the sources may be newer")
    parser.add_argument("--replay", action="store_true", help="every seed and every earlier finding once")
    parser.add_argument("--coverage", action="store_true", help="which lines of the parsers the corpus reaches")
    options = parser.parse_args()
    unknown = set(options.targets) - set(TARGETS)
    if unknown:
        parser.error(f"wanted targets of {', '.join(TARGETS)}, found {', '.join(sorted(unknown))}")
    targets = options.targets or list(TARGETS)
    if not options.no_build:
        (build_for_coverage if options.coverage else build)(targets)
    subprocess.run([sys.executable, ROOT / "fuzz" / "make_seeds.py", BUILD / "seeds"], check=True)
    work = replay if options.replay else coverage if options.coverage else fuzz
    results = []
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        waiting = {pool.submit(work, target, options): target for target in targets}
        for done in concurrent.futures.as_completed(waiting):
            results.append(done.result())
            if not options.coverage:
                describe(waiting[done], done.result())
    total = lambda kind: sum(len(r.findings[kind]) for r in results)
    crashes, timeouts, oom = total("crash") + total("leak"), total("timeout"), total("oom")
    print(f"targets={len(results)} executions={sum(r.executions for r in results)} crashes={crashes} timeouts={timeouts} oom={oom}")
    sys.exit(1 if crashes or timeouts or oom else 0)


if __name__ == "__main__":
    main()
