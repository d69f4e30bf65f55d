#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=1200 night=""
"""Every command, script and file of the five guides (guides_commands.json): the commands that octavo has for it run in miniature, offline,
with tiny models and data under the guides' own names, and end as the file says; and so do the guides' own flags, typed as they stand.

The commands of docs/migrate.md, which are for other programs, run in the same way. With words, only the guides (G3) or lines (G3:307) that
they name. What the file says does not work yet must really not work."""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

from common import DATA, ROOT, TEXT, page_commands, page_environment, require_files
from configs_stand_ins import tiny_data_sets, tiny_models
from finetuning import in_cache

FILE = pathlib.Path(__file__).with_name("guides_commands.json")
MAX_SECONDS = 200  # of one command
# Flags that make a run small. A flag of the command gives way, except for its own length in epochs.
COMMON = {"max_steps": 2, "eval_batches": 1, "val_fraction": 0.2}
SMALL = {
    "gpt2": COMMON | {"max_steps": 4, "batch_size": 2, "target_effective_batch_size": 8, "max_seq_length": 64, "sample_tokens": 4},
    "adaptive": COMMON | {"max_batch_size": 4, "target_effective_batch_size": 8, "max_seq_length": 64, "sample_tokens": 4},
    "web": COMMON | {"max_batch_size": 4, "target_effective_batch_size": 8, "max_seq_length": 64, "n_layer": 2, "n_head": 2, "n_embd": 64},
    "letters": COMMON | {"max_batch_size": 4, "max_seq_length": 64, "n_layer": 2, "n_head": 2, "n_embd": 64},
    "math": COMMON | {"batch_size": 2, "max_seq_length": 512, "max_skipped_rows": 1},
    "alpaca": COMMON | {"batch_size": 1, "max_seq_length": 256, "max_skipped_rows": 1},
    "bench": {"batch_size": 1, "max_seq_length": 64, "bench_seconds": 1, "bench_steps": 1},
    "sweep": COMMON | {"batch_size": 2, "max_seq_length": 64, "n_layer": 2, "n_head": 2, "n_embd": 64},
}
RESUMED_STEPS = 6  # more than the run had that is resumed


def small(command):
    """The words of a command with the flags of its size."""
    words = command["run"]
    for key, value in SMALL.get(command.get("small"), {}).items():
        if key == "max_steps" and "--num_epochs" in words:
            continue
        if key == "max_steps" and "--resume" in words:
            value = RESUMED_STEPS
        words, there = re.subn(rf"(--{key}) \S+", rf"\1 {value}", words)
        words += "" if there else f" --{key} {value}"
    if " diagnose " in words or " bench " in words:
        words = re.sub(r" --(max_steps|eval_batches) \S+", "", words)
    return re.sub(r"--nproc [48]\b", "--nproc 2", words)


def problem_of(command, folder, home):
    """What is wrong with how a command ended; "" when it ended as it should."""
    environment = page_environment() | {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "OMP_WAIT_POLICY": "passive", "WANDB_MODE": "offline"}
    words = small(command)
    try:
        done = subprocess.run(["bash", "-c", words], cwd=folder, env=environment, text=True, capture_output=True, timeout=MAX_SECONDS)
    except subprocess.TimeoutExpired:
        return f"{words}: not done after {MAX_SECONDS} s"
    output, wanted = done.stdout + done.stderr, command.get("code", 0)
    if done.returncode != wanted or command.get("says", "") not in output:
        return f"{words}: wanted exit code {wanted} and '{command.get('says', '')}', found {done.returncode}: {output[-700:]}"
    trained = wanted == 0 and re.search(r"octavo (train|launch) ", words) and not re.search(r"--slurm|--list_checkpoints", words)
    return f"{words}: wanted a step, found none: {output[-700:]}" if trained and not re.search(r"^step +\d+ \||: resumed from", output, re.M) else ""


def make_folder(folder, entries, home):
    """Where the commands of one guide run: configs/, the guide's own files, a text, a model."""
    folder.mkdir()
    (folder / "configs").symlink_to(ROOT / "configs")
    (folder / "tinyshakespeare.txt").write_text(TEXT.read_text()[:20000])
    (folder / "corpus.txt").symlink_to("tinyshakespeare.txt")
    (folder / "model").symlink_to(next((home / "hub" / "models--meta-llama--Meta-Llama-3-8B-Instruct" / "snapshots").iterdir()))
    for entry in entries:
        if entry["kind"] == "file":
            (folder / entry["text"]).write_text(entry["content"])


def more_names(home):
    """Names of the guides that no file of configs/ has."""
    hub = home / "hub"
    (hub / "models--meta-llama--Meta-Llama-3.1-8B").symlink_to(hub / "models--meta-llama--Llama-3.1-8B-Instruct")
    data = next((hub / "datasets--nvidia--OpenMathInstruct-2" / "snapshots").iterdir()) / "data"
    for split in ("train", "test"):
        shutil.copy(data / "train_1M-00000-of-00001.parquet", data / f"{split}-00000-of-00001.parquet")
    plays, text = in_cache(home, "datasets", "karpathy/tiny_shakespeare"), TEXT.read_text()
    for split, begin, end in (("train", 0, 20000), ("validation", 20000, 24000), ("test", 24000, 28000)):
        (plays / f"{split}.jsonl").write_text(json.dumps({"text": text[begin:end]}) + "\n")
    with open(DATA / "data" / "eval" / "hellaswag_val.jsonl") as lines:
        (in_cache(home, "datasets", "Rowan/hellaswag") / "validation.jsonl").write_text("".join(line for line, _ in zip(lines, range(8))))


def run_guide(guide, entries, work, home):
    """(runs, lines about what went wrong) of one guide, its commands in the order of the file."""
    ours, theirs = work / guide, work / f"{guide}-as-it-stands"
    for folder in (ours, theirs):
        make_folder(folder, entries, home)
    runs, wrong = 0, []
    for entry in entries:
        commands = [(command, ours) for command in entry["octavo"]]
        if (stands := entry.get("as_it_stands")) and stands not in entry["octavo"]:
            commands.append((stands, ours if stands.get("after_ours") else theirs))
        for command, folder in commands:
            if "not_run" in command:
                continue
            runs += 1
            if problem := problem_of(command, folder, home):
                wrong.append(f"{guide}:{entry['lines'][0]}: {problem}")
    return runs, wrong


def page_entries(files):
    """The commands of docs/migrate.md as one more guide, with the files of the guides to import."""
    sizes = (("alpaca|llama3_fp8_sft", "alpaca"), ("OpenMath", "math"), ("corpus", "gpt2"))
    commands = [{"run": line} for line in page_commands("migrate.md", "guides")]
    for command in commands:
        if re.search(r" train ", command["run"]):
            command["small"] = next(size for words, size in sizes if re.search(words, command["run"]))
    runs = [{"guide": "page", "lines": [number], "kind": "command", "octavo": [command]} for number, command in enumerate(commands, 1)]
    return [*({**entry, "guide": "page", "octavo": [], "as_it_stands": None} for entry in files), *runs]


def chosen(entries):
    places = sys.argv[1:]
    return [e for e in entries if not places or e["guide"] in places or any(f"{e['guide']}:{line}" in places for line in e["lines"])]


def main():
    require_files()
    entries = chosen(json.loads(FILE.read_text())["entries"])
    page = page_entries([e for e in json.loads(FILE.read_text())["entries"] if e["kind"] == "file"])
    page = [] if sys.argv[1:] and "page" not in sys.argv else page
    with tempfile.TemporaryDirectory() as temporary:
        work, home = pathlib.Path(temporary) / "work", pathlib.Path(temporary) / "home"
        work.mkdir()
        tiny_models(home)
        tiny_data_sets(home)
        more_names(home)
        everything = [*page, *entries]
        guides = sorted({entry["guide"] for entry in everything})
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            results = list(pool.map(lambda g: run_guide(g, [e for e in everything if e["guide"] == g], work, home), guides))
    wrong = [line for _, lines in results for line in lines]
    print(*wrong, sep="\n")
    stands = [e for e in entries if e.get("as_it_stands")]
    works = {word: sum(entry["works"] == word for entry in entries) for word in ("yes", "partly", "no")}
    print(f"commands={len(entries)} worked={works['yes']} partly={works['partly']} missing={works['no']} "
          f"as_they_stand={sum('code' not in e['as_it_stands'] for e in stands)}/{len(stands)} runs={sum(n for n, _ in results)} wrong={len(wrong)}")
    sys.exit(0 if everything and not wrong else 1)


if __name__ == "__main__":
    main()
