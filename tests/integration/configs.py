#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate="" alone
"""Every file of configs/: checked by octavo, explained in docs/reference/hyperparameters.md, planned on the hardware that its comment
names, and run in miniature on a CPU: the same file with a few numbers made smaller, and tiny models and data sets under
the real names. Whatever a file asks for (precision, adapters, sinks, ranks) must be there afterwards."""
import fnmatch
import json
import math
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import time

from common import DATA, OCTAVO, ROOT, TEXT, page_commands, page_environment, require_files
from configs_stand_ins import real_shapes, tiny_data_sets, tiny_models

import yaml

REASONS = sorted((ROOT / "docs" / "reference").glob("hyperparameters*.md"))
MAX_SECONDS = 150  # 30 on two idle cores
# What the miniature changes, where a file has the key at all. Random models learn nothing by 1e-5 in a few steps.
SMALLER = {"max_seq_length": 64, "batch_size": 2, "max_batch_size": 4, "target_effective_batch_size": 8,
           "gradient_accumulation_steps": 2, "max_steps": 6, "warmup_steps": 2, "learning_rate": 5e-3, "eval_freq": 3,
           "checkpoint_freq": 3, "sample_freq": 3, "sample_tokens": 8, "log_freq": 1, "val_fraction": 0.1}
NAMES = ("run_name:", "wandb_run_name:")  # not values
SMALL_GPT2 = {"n_layer": 2, "n_head": 2, "n_embd": 64}


def config_files():
    return sorted(path for path in (ROOT / "configs").glob("*.yaml") if not path.name.startswith("sweep_"))


def octavo(words, work, home):
    environment = os.environ | {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", "OMP_WAIT_POLICY": "passive"}
    return subprocess.run([OCTAVO, *map(str, words)], cwd=work, env=environment, text=True, capture_output=True,
                          timeout=MAX_SECONDS)


def commands_of(path):
    """The commands in the comment at the top: ('octavo train …' or 'octavo launch …', 'octavo plan …' or None)."""
    head = [line[2:] for line in path.read_text().splitlines() if line.startswith("# ")]
    found = re.findall(r"octavo (?:train|launch|plan) [^|(]+", " ".join(head))
    return found[0].strip() if found else None, next((f.strip() for f in found if f.startswith("octavo plan")), None)


def unexplained(path, reasons):
    """Keys whose value has no row in docs/reference/hyperparameters.md for this file."""
    for line in path.read_text().splitlines():
        line = line.split("  #")[0].rstrip()
        if line and not line.startswith(("#", *NAMES)) and (line, path.stem) not in reasons:
            yield f"docs/reference/hyperparameters.md has no row | `{line}` | … that names {path.stem}"


def stated_reasons():
    """{(key: value, config)} of the pages' tables: | `key: value` | names of configs, with * | reason | source |."""
    names = {path.stem for path in config_files()}
    found = set()
    for row in re.findall(r"^\| `(\w+: [^`]+)` \| ([^|]+) \| [^|]{12,} \| [^|]{3,} \|$", "\n".join(page.read_text() for page in REASONS), re.M):
        for word in row[1].split(","):
            which = fnmatch.filter(names, word.strip())
            found |= {(row[0], name) for name in which or [word.strip()]}
    return found


def stale_reasons(reasons):
    """Rows whose value is not in the file that they name."""
    texts = {path.stem: path.read_text() for path in config_files()}
    return sorted(row for row in reasons if not re.search(rf"^{re.escape(row[0])}( +#.*)?$", texts.get(row[1], ""), re.M))


def plan_problems(path, work, home):
    command = commands_of(path)[1]
    if command is None:
        return [] if "plan" not in path.read_text() else ["no plan command could be read from its comment"]
    words = shlex.split(command)[1:]
    if words[1] != f"configs/{path.name}":
        return [f"its comment plans {words[1]}"]
    words[1] = path
    done = octavo([*words, "--json"], work, home)
    if done.returncode != 0:
        return [f"plan ended with {done.returncode}: {done.stderr[-300:]}"]
    found = json.loads(done.stdout)
    wants_fp8 = re.search(r"^(use_fp8: true|mixed_precision: fp8)$", path.read_text(), re.M)
    peak = found["memory"]["fp8" if wants_fp8 else "bf16"]["peak"] / 1e9
    # That FP8 does not pay for a small model is no fault of the file; docs/reference/hyperparameters.md says which do.
    gain = max((r["gain"] for r in found["recipes"] if r["recipe"] != "bf16" and not r["refusal"]), default=0)
    print(f"  plan: {' '.join(words[2:])}: {peak:.1f} GB of {found['memory']['usable'] / 1e9:.1f}, FP8 at best {gain:.2f}x")
    checks = {"to fit the hardware that its comment names": found["memory"]["fits"],
              "a gain between 0.3 and 2": 0.3 < gain < 2}
    return [f"plan: wanted {what}" for what, good in checks.items() if not good]


def miniature(path):
    """The words that train it small."""
    settings = yaml.safe_load(path.read_text())
    changed = {key: value for key, value in SMALLER.items() if key in settings}
    changed["max_seq_length"] = 512 if settings.get("split_name") else 128  # solutions are long
    changed["max_skipped_rows"] = 1  # real rows at a shorter length
    changed.setdefault("learning_rate", 5e-3)
    if settings["model_name"] in ("gpt2", "custom"):
        changed |= SMALL_GPT2
    if "dataset" not in settings or path.stem == "quickstart":
        changed["dataset"] = "part.txt"
    if settings.get("checkpoint_freq") == 0:
        del changed["checkpoint_freq"]
    if "eval_batches" not in settings or settings["eval_batches"] > 2:
        changed["eval_batches"] = 2
    flags = [str(word) for key, value in changed.items() for word in (f"--{key}", value)]
    return settings, changed, ["train", str(path), *flags]


def run_problems(settings, changed, folder):
    """What a run that ended with 0 lacks of what its file asked for."""
    receipt = json.loads((folder / "receipt.json").read_text())
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    losses = [r["train/loss"] for r in records if "train/loss" in r]
    resolved = yaml.safe_load((folder / "config.yaml").read_text())
    in_fp8 = settings.get("use_fp8") or settings.get("mixed_precision") == "fp8"
    kept = folder.parents[1] / (settings.get("checkpoint_dir") or ("checkpoints_fp8" if in_fp8 else "checkpoints")) / folder.name
    searched = settings.get("auto_batch_size")
    other = {key: (value, resolved.get(key)) for key, value in settings.items()
             if key not in changed and not (searched and "batch" in key) and resolved.get(key) != value
             and resolved.get(key) != [value] and key not in ("batch_size", "gradient_accumulation_steps")}
    checks = {"finite losses": len(losses) >= 3 and all(map(math.isfinite, losses)),
              "a loss that falls": min(losses[1:], default=math.inf) < losses[0],
              "an evaluation": any("val/loss" in r for r in records),
              "a checkpoint": bool(list(kept.glob("step-*/manifest.json"))),
              "the precision asked for": (receipt["fp8"]["flops_share"] > 0) == bool(in_fp8),
              "adapters where asked for": (receipt["lora"] is not None) == ("lora_rank" in settings),
              "TensorBoard's events": bool(list(folder.glob("tensorboard/*"))) == settings.get("use_tensorboard", False),
              "a W&B run": bool(list(folder.glob("wandb/*"))) == settings.get("use_wandb", False),
              f"its other keys in config.yaml ({other})": not other}
    print(f"  {len(losses)} steps, loss {losses[0]:.3f} to {losses[-1]:.3f}, "
          f"{100 * receipt['fp8']['flops_share']:.1f}% of the FLOPs in FP8")
    return [f"wanted {what}" for what, good in checks.items() if not good]


def train_problems(path, work, home):
    settings, changed, words = miniature(path)
    folder = work / path.stem
    folder.mkdir()
    (folder / "tinyshakespeare.txt").write_text(TEXT.read_text()[:20000])
    (folder / "part.txt").write_text(TEXT.read_text()[:20000])
    command = commands_of(path)[0] or ""
    if command.startswith("octavo launch"):
        words = ["launch", "--nproc", "2", "--", *words]
    done = octavo(words, folder, home)
    runs = list((folder / "runs").glob("*")) if (folder / "runs").exists() else []
    if done.returncode != 0 or len(runs) != 1:
        return [f"{shlex.join(words)} ended with {done.returncode}: {done.stderr[-800:]}"]
    return run_problems(settings, changed, runs[0])


def page_problems(work):
    """Runs the commands of docs/concepts/schedules.md, and compares their pictures with those in the repository."""
    folder = work / "page"
    (folder / "docs" / "pictures").mkdir(parents=True)
    (folder / "configs").symlink_to(ROOT / "configs")
    commands = page_commands("concepts/schedules.md", "configs")
    for line in commands:
        done = subprocess.run(["bash", "-c", line], cwd=folder, env=page_environment(), text=True, capture_output=True, timeout=60)
        if done.returncode != 0:
            yield f"docs/concepts/schedules.md: {line} ended with {done.returncode}: {done.stderr[-300:]}"
    pictures = sorted((folder / "docs" / "pictures").iterdir())
    for picture in pictures:
        kept = ROOT / "docs" / "pictures" / picture.name
        if not kept.exists() or kept.read_text() != picture.read_text():
            yield f"{kept.relative_to(ROOT)} is not what the command of docs/concepts/schedules.md draws; run it again"
    if not commands or not pictures:
        yield "docs/concepts/schedules.md: wanted commands and pictures, found none"


def list_problems(work, home):
    """verify --before-long-run on the guides' FineWeb-Edu run as they drew it: each mistake is found, and resuming works."""
    folder = work / "before"
    folder.mkdir()
    text = (ROOT / "configs" / "fineweb_edu_fp8.yaml").read_text()
    (folder / "guide.yaml").write_text(text.replace("num_epochs: 2", "max_steps: 1760").replace("use_wandb: true\n", ""))
    done = octavo(["verify", "--before-long-run", "guide.yaml", "--gpu", "h200", "--json"], folder, home)
    found = {f["id"]: f["status"] for f in json.loads(done.stdout)["findings"] if f["section"].startswith("the run")}
    wanted = {"config": "fail", "schedule": "fail", "learning_rate": "warn", "data": "warn", "resume": "ok", "memory": "ok",
              "disk": "ok", "watching": "warn", "BF16 baseline": "warn", "FP8's gain": "ok", "secrets": "ok", "time": "ok"}  # it warns below 1.05x; planning.py derives 1.15 at most
    print(f"  before a long run: {len(found)} lines, {sum(s == 'fail' for s in found.values())} failures")
    for name, status in wanted.items():
        if found.get(name) != status:
            yield f"verify --before-long-run: wanted {name} to be {status}, found {found.get(name)}"
    if done.returncode != 3:
        yield f"verify --before-long-run: wanted exit code 3, found {done.returncode}: {done.stderr[-300:]}"


def sweep_problems(path, work, home):
    """The sweep of the comment's command with the configuration that it names: made whole, and run in miniature by one agent,
    two trials."""
    words = re.search(r"octavo sweep (?:run|create) configs/(\S+) (configs/\S+)", path.read_text())
    if words is None or words[1] != path.name:
        return ["no sweep command could be read from its comment"]
    base = ROOT / words[2]
    folder = work / path.stem
    folder.mkdir()
    (folder / "part.txt").write_text(TEXT.read_text()[:20000])
    flags = miniature(base)[2][2:]
    made = octavo(["sweep", "create", path, base, "--database", "whole.db"], folder, home)
    if made.returncode != 0:
        return [f"octavo sweep create ended with {made.returncode}: {made.stderr[-800:]}"]
    done = octavo(["sweep", "run", path, base, "--agents", "1", "--run_cap", "2", "--database", "trials.db", "--", *flags],
                  folder, home)
    if done.returncode != 0:
        return [f"octavo sweep run ended with {done.returncode}: {(done.stdout + done.stderr)[-800:]}"]
    values = re.search(r"penalty_weight:\n    values: \[(.*?)\]", path.read_text())[1].split(", ")
    runs = [yaml.safe_load(file.read_text())["penalty_weight"] for file in sorted(folder.glob("runs/*/config.yaml"))]
    print(f"  trials with penalty_weight {runs}")
    checks = {"two trials with the first two weights": runs == [float(value) for value in values[:2]],
              "a page": len(list(folder.glob("*.html"))) == 1}
    return [f"wanted {what}" for what, good in checks.items() if not good]


def main():
    require_files()
    if not (DATA / "data" / "sft" / "gsm8k_train.jsonl").exists():
        print(f"wanted {DATA / 'data' / 'sft'}, found none; set OCTAVO_TEST_DATA")
        sys.exit(1 if os.environ.get("CI") == "true" else 0)
    chosen = [path for path in config_files() if len(sys.argv) < 2 or path.stem in sys.argv[1:]]
    reasons = stated_reasons()
    checked = trained = sweeps = failed = 0
    with tempfile.TemporaryDirectory() as temporary:
        tiny, real, work = (pathlib.Path(temporary) / name for name in ("tiny", "real", "work"))
        work.mkdir()
        tiny_models(tiny)
        tiny_data_sets(tiny)
        real_shapes(real)
        start = time.monotonic()
        for path in chosen:
            begin = time.monotonic()
            print(path.name, flush=True)
            check = octavo(["config", "check", path], work, real)
            problems = [] if check.returncode == 0 else [check.stderr]
            problems += [*unexplained(path, reasons), *plan_problems(path, work, real)]
            checked += not problems
            untrained = train_problems(path, work, tiny)
            trained += not untrained
            problems += untrained
            failed += bool(problems)
            for problem in problems:
                print(f"  WRONG: {problem}")
            print(f"  {time.monotonic() - begin:.1f} s", flush=True)
        for path in sorted((ROOT / "configs").glob("sweep_*.yaml")):
            if len(sys.argv) > 1 and path.stem not in sys.argv[1:]:
                continue
            print(path.name, flush=True)
            problems = sweep_problems(path, work, tiny)
            trained += not problems
            sweeps += 1
            failed += bool(problems)
            for problem in problems:
                print(f"  WRONG: {problem}")
        others = []
        if len(chosen) == len(config_files()):
            others = [f"docs/reference/hyperparameters.md gives a reason for {value} of {name}, which is not there"
                      for value, name in stale_reasons(reasons)]
            others += [*page_problems(work), *list_problems(work, tiny)]
        seconds = time.monotonic() - start
    for problem in others:
        print(f"  WRONG: {problem}")
    failed += len(others)
    print(f"configs={len(chosen)} sweeps={sweeps} checked={checked} trained={trained} seconds={seconds:.1f} failed={failed}")
    sys.exit(0 if (chosen or sweeps) and failed == 0 and seconds < MAX_SECONDS else 1)


if __name__ == "__main__":
    main()
