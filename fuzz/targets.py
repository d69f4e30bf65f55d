"""The targets of this folder, and how one is started."""
import functools
import os
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUILD, COVERAGE = ROOT / "build" / "fuzz", ROOT / "build" / "fuzz-coverage"
FINDINGS = ROOT / "fuzz" / "findings"
MEMORY_MB, QUARANTINE_MB = 256, 1
# A second of processor time for an input is counted by harness.h, as on a machine with other work the clock says
# little. This is for an input that never ends.
HANG_S = 15

# Target: the longest input, the dictionary, and the parser's own files, whose coverage is measured.
TARGETS = {
    "adapter": (1024, "json", ["train/state/peft_config.cpp"]),
    "arrow": (4096, None, ["data/arrow/arrow_module.cpp", "data/arrow/ipc_batches.cpp", "data/arrow/row_json.cpp"]),
    "audit": (2048, "trace", ["audit/chrome_reader.cpp", "audit/json_stream.cpp", "audit/nsight_reader.cpp", "audit/type_names.cpp"]),
    "capture": (1024, "json", ["diagnose/capture_manifest.cpp"]),
    "chat": (1024, "json", ["data/chat_template.cpp", "data/row_format.cpp"]),
    "config": (1024, "yaml", ["config/yaml.cpp"]),
    "dataset_index": (2048, "json", ["data/dataset_index.cpp"]),
    "foreign_logs": (2048, "foreign_logs", ["foreign_logs/csv.cpp", "foreign_logs/event_file.cpp", "foreign_logs/json_log.cpp",
                                            "foreign_logs/metrics.cpp", "foreign_logs/protobuf.cpp", "foreign_logs/read_log.cpp",
                                            "foreign_logs/scan.cpp", "foreign_logs/text_lines.cpp", "foreign_logs/wandb_file.cpp"]),
    "http": (5120, "http", ["monitor/http_server.cpp"]),
    "import": (512, "yaml", ["migrate/import_read.cpp"]),
    "import_programs": (2048, "programs", ["migrate/read_toml.cpp", "migrate/python_tokens.cpp", "migrate/read_python.cpp",
                                           "migrate/shell_words.cpp", "migrate/read_shell.cpp"]),
    "jinja": (1024, "jinja", ["jinja/lexer.cpp", "jinja/expression_parser.cpp", "jinja/parser.cpp", "jinja/analyze.cpp", "jinja/scope.cpp",
                              "jinja/interpreter.cpp", "jinja/operators.cpp", "jinja/format.cpp", "jinja/text_methods.cpp"]),
    "json_rows": (1024, "json", ["data/json_rows.cpp", "data/row_format.cpp"]),
    "manifest": (2048, "json", ["checkpoint/manifest.cpp", "checkpoint/index_json.cpp", "checkpoint/part_list.cpp",
                                "checkpoint/sealed_json.cpp"]),
    "model_config": (1024, "json", ["model_config/config_fields.cpp", "model_config/read.cpp"]),
    "model_index": (1024, "json", ["checkpoint/hf.cpp"]),
    "parquet": (4096, None, ["data/arrow/arrow_module.cpp", "data/arrow/parquet_batches.cpp"]),
    "python_env": (1024, "python_env", ["python_env/metadata.cpp", "python_env/requirement.cpp", "python_env/specifier.cpp",
                                        "python_env/version.cpp"]),
    "rendezvous": (1024, None, ["rendezvous/protocol.cpp", "rendezvous/server_requests.cpp", "rendezvous/table.cpp"]),
    "safetensors": (1024, "safetensors", ["checkpoint/safetensors_reader.cpp"]),
    "shard": (1024, None, ["data/shard.cpp"]),
    "sweep": (1024, "yaml", ["sweep/definition.cpp", "sweep/parameter_parse.cpp"]),
    "tokenizer": (4096, "tokenizer", ["tokenizer/hf_file.cpp", "tokenizer/hf_steps.cpp", "tokenizer/regex_syntax.cpp"]),
    "tokenizer_text": (1024, "tokenizer", ["tokenizer/pre_tokenizer.cpp", "tokenizer/bpe.cpp", "tokenizer/nfc.cpp", "tokenizer/normalizer.cpp",
                                           "tokenizer/symbols.cpp", "tokenizer/decoder.cpp"]),
}


def environment(thorough):
    """`thorough` keeps the stack of every allocation, for a report; without, an input takes half the time."""
    sanitizer = [f"quarantine_size_mb={QUARANTINE_MB}", "thread_local_quarantine_size_kb=64",
                 "allocator_may_return_null=0", "handle_abort=1", "detect_stack_use_after_return=0"]
    if not thorough:
        sanitizer += ["malloc_context_size=0", "max_malloc_fill_size=0"]
    scratch = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    made = os.environ | {"ASAN_OPTIONS": ":".join(sanitizer), "OMP_NUM_THREADS": "1"}
    return made | ({"TMPDIR": scratch} if scratch else {})


def program(target):
    """OCTAVO_FUZZERS: a copy of build/fuzz/bin, for a run of hours that a build must not disturb."""
    return pathlib.Path(os.environ.get("OCTAVO_FUZZERS", BUILD / "bin")) / f"fuzz_{target}"


def run_target(target, arguments, thorough=False):
    """Exit code, what it said, and the seconds of processor time."""
    with tempfile.TemporaryFile() as sink:
        process = subprocess.Popen([program(target), *arguments], env=environment(thorough), stdout=subprocess.DEVNULL,
                                   stderr=sink)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        sink.seek(0)
        return process.returncode, sink.read().decode(errors="replace"), usage.ru_utime + usage.ru_stime


@functools.cache
def limits(target):
    """Beyond what the process has before its first input (shadow memory, libraries) and the quarantine."""
    _, log, _ = run_target(target, ["-runs=0"])
    found = re.findall(r"rss: (\d+)Mb", log)
    if not found:
        raise SystemExit(f"fuzz_{target} does not run:\n{log[-2000:]}")
    memory = MEMORY_MB + QUARANTINE_MB + int(found[-1])
    return [f"-rss_limit_mb={memory}", f"-malloc_limit_mb={MEMORY_MB}", f"-timeout={HANG_S}"]


def cpu_seconds(target, artifact):
    """Of one input, without the start."""
    start = run_target(target, ["-runs=0"])[2]
    return run_target(target, ["-timeout=120", artifact])[2] - start


def input_folders(target):
    return [f for f in (BUILD / "corpus" / target, BUILD / "seeds" / target, FINDINGS / target) if f.exists()]
