#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=300 night=""
"""`hellaswag` in the place of a file, against a hub of our own on loopback that has it as Parquet: `train --eval_hellaswag` fetches the card
and the validation split alone; `eval` and `compare` then take it from the cache without the network; the answers are those to the same rows
as a JSONL file; and without cache and network it is said what to do."""
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import pyarrow
import pyarrow.parquet

from common import OCTAVO, ROOT, TEXT, require_files

sys.path.insert(0, str(ROOT / "tests" / "conformance"))
from hub_server import Hub, Repo  # noqa: E402

USAGE, DAMAGED = 2, 5  # exit codes
ROWS = 11
CARD = b"---\nconfigs:\n- config_name: default\n  data_files:\n" + b"".join(
    b"  - split: %s\n    path: data/%s-*\n" % (split, split) for split in (b"train", b"test", b"validation")) + b"---\n"
TRAIN = ("--model_name", "custom", "--n_layer", "2", "--n_head", "2", "--n_embd", "32", "--max_seq_length", "64", "--batch_size", "2",
         "--max_steps", "2", "--warmup_steps", "1", "--tokenizer", "bytes", "--dataset", "text.txt", "--eval_batches", "1", "--mixed_precision", "bf16",
         "--checkpoint_dir", "checkpoints")


def rows():
    """As the hub has them, short enough for the model: the label is text, the endings a list, and there are more columns."""
    people, things = ("She", "He", "Romeo", "The king"), ("runs", "is gone", "sings a song", "sleeps")
    return [{"ind": i, "activity_label": "Play", "ctx_a": f"{people[i % 4]} is \u201chere\u201d.", "ctx_b": "then", "ctx": "", "source_id": "x",
             "endings": [f"{thing} {i}." for thing in things], "split": "val", "split_type": "indomain", "label": str(i % 4)}
            for i in range(ROWS)]


def parquet(table_rows):
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(table_rows), out, row_group_size=4)
    return out.getvalue()


def expect(condition, text):
    if not condition:
        sys.exit(f"hellaswag_name: {text}")


class Case:
    def __init__(self, work, hub):
        self.work, self.home, self.hub = work, work / "home", hub

    def run(self, *words, wanted=(0,), home=None, **more):
        kept = {k: v for k, v in os.environ.items() if not k.startswith("HF_") and "proxy" not in k.lower()}
        environment = kept | {"HF_HOME": str(home or self.home), "HF_ENDPOINT": self.hub.endpoint, "OMP_WAIT_POLICY": "passive"} | more
        done = subprocess.run([OCTAVO, *map(str, words)], cwd=self.work, env=environment, text=True, capture_output=True, timeout=200)
        output = done.stdout + done.stderr
        expect(done.returncode in wanted, f"{words}: wanted exit code {wanted}, found {done.returncode}: {output[-1500:]}")
        return output

    def answers(self, data, **more):
        """What `eval` writes for each row."""
        output = self.work / "answers.jsonl"
        output.unlink(missing_ok=True)
        self.run("eval", "--checkpoint_dir", "checkpoints", "--checkpoint", "a", "--eval_task", "hellaswag", "--eval_data", data, "--output", output, **more)
        return [json.loads(line) for line in output.read_text().splitlines()]


def during_training(case):
    """Returns the names of the fetched files."""
    for name in ("a", "b"):
        output = case.run("train", *TRAIN, "--run_name", name, "--eval_hellaswag", "hellaswag", "--eval_hellaswag_rows", ROWS - 1)
        expect("Rowan/hellaswag, split validation" in output and "HellaSwag acc_norm" in output, f"not measured: {output[-1500:]}")
    records = [json.loads(line) for line in (case.work / "runs/a/metrics.jsonl").read_text().splitlines()]
    found = [record["eval/hellaswag_rows"] for record in records if "eval/hellaswag_rows" in record]
    expect(found == [ROWS - 1], f"wanted one record of {ROWS - 1} rows, found {found}")
    expect(re.search(r'^eval_hellaswag: "?hellaswag"?$', (case.work / "runs/a/config.yaml").read_text(), re.M), "config.yaml does not keep the name")
    asked = [path for at, method, path, _ in case.hub.requests if at == "hub" and method == "GET" and "/resolve/" in path]
    return sorted({path.rsplit("/", 1)[1].split("?")[0] for path in asked})


def main():
    require_files()
    hub = Hub()
    files = {"data/validation-00000-of-00001.parquet": parquet(rows()), "data/train-00000-of-00001.parquet": parquet(rows()[:2]),
             "data/test-00000-of-00001.parquet": parquet([row | {"label": ""} for row in rows()])}
    hub.repos["datasets/Rowan/hellaswag"] = Repo(files | {"README.md": CARD}, lfs=files)
    with tempfile.TemporaryDirectory() as name:
        case = Case(pathlib.Path(name), hub)
        (case.work / "text.txt").write_text(TEXT.read_text()[:20000])
        (case.work / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows()))
        (case.work / "secret.parquet").write_bytes(files["data/test-00000-of-00001.parquet"])
        fetched = during_training(case)
        expect(fetched == ["README.md", "validation-00000-of-00001.parquet"], f"fetched {fetched}")
        hub.requests.clear()
        offline = {"HF_HUB_OFFLINE": "1"}
        by_file = case.answers("rows.jsonl", **offline)
        expect([row["label"] for row in by_file] == [i % 4 for i in range(ROWS)], f"labels {by_file}")
        for word in ("hellaswag", "Rowan/hellaswag"):
            expect(case.answers(word, **offline) == by_file, f"{word}: other answers than to the JSONL file")
        # Exit codes: PASS, FAIL, or NOT ENOUGH DATA of runs this short.
        out = case.run("compare", "a", "b", "--eval_data", "hellaswag", "--output", "page.html", wanted=(0, 4, 6), **offline)
        pair = json.loads((case.work / "page.json").read_text())["pairs"][0]
        expect(pair.get("hellaswag", {}).get("rows") == ROWS, f"compare did not ask {ROWS} rows: {out[-1500:]}")
        expect(not hub.requests, f"asked for again: {hub.requests[:3]}")
        for words in (("eval", "--checkpoint", "a", "--eval_task", "hellaswag", "--eval_data", "hellaswag"),
                      ("compare", "a", "b", "--eval_data", "hellaswag"),
                      ("train", *TRAIN, "--run_name", "c", "--eval_hellaswag", "hellaswag")):
            out = case.run(*words, wanted=(USAGE,), home=case.work / "empty", **offline)
            expect("Rowan/hellaswag" in out and "Run once with a network" in out, f"{words[0]}: {out[-1500:]}")
        expect(not (case.work / "runs/c").exists(), "a run that did not begin left its folder")
        out = case.run("eval", "--checkpoint", "a", "--eval_task", "hellaswag", "--eval_data", "none.jsonl", wanted=(USAGE,))
        expect("the name hellaswag" in out, out[-1500:])
        out = case.run("eval", "--checkpoint", "a", "--eval_task", "hellaswag", "--eval_data", "secret.parquet", wanted=(DAMAGED,))
        expect("secret.parquet:1: wanted 4 endings and a label of 0 to 3" in out, out[-1500:])
    hub.close()
    print(f"rows={len(by_file)} fetched={len(fetched)} same_answers=2 refused=5")


if __name__ == "__main__":
    main()
