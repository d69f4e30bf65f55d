#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=conformance timeout=600 night=""
"""The real SmolLM2-135M-Instruct in octavo against transformers and PyTorch in FP32: the loss on 2,048 tokens of text,
64 greedy tokens, and HellaSwag.

PyTorch's HellaSwag on 1,000 rows takes five minutes or more, so its result is kept beside this script; --pytorch makes it again.
Without --full only the first rows are evaluated here, and held against PyTorch's of the same rows.
"""
import argparse
import json
import pathlib
import platform
import subprocess
import sys
import tempfile

import torch
import torch.nn.functional as F
import transformers

import hellaswag
import smollm2_model
from model_parity import DATA, OCTAVO, TOOL, require, save_batch, tool

TEXT = DATA / "data" / "text" / "fineweb_sample.txt"
ROWS = DATA / "data" / "eval" / "hellaswag_val.jsonl"
STORED = smollm2_model.ROOT / "tests" / "conformance" / "hellaswag_smollm2_pytorch.json"
TOKENS, GREEDY, PART, WHOLE = 2048, 64, 100, 1000
PROMPT = "The capital of France is"
NLL_DIFF, POINTS = 1e-3, 0.5


def load_model(folder):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return model.eval(), transformers.AutoTokenizer.from_pretrained(folder)


def write_stored(folder):
    """PyTorch's evaluation, with what is needed to know what it was of."""
    model, tokenizer = load_model(folder)
    results = hellaswag.evaluate(model, tokenizer, hellaswag.read_rows(ROWS, WHOLE))
    head = {"command": "tests/conformance/smollm2.py --pytorch", "model": "SmolLM2-135M-Instruct, FP32",
            "model_sha256": smollm2_model.sha256(folder / smollm2_model.WEIGHTS), "rows": str(ROWS.relative_to(DATA)),
            "rows_sha256": smollm2_model.sha256(ROWS), "torch": torch.__version__,
            "transformers": transformers.__version__, "machine": platform.machine(),
            "acc": hellaswag.accuracy(results, "pred"), "acc_norm": hellaswag.accuracy(results, "pred_norm")}
    lines = ",\n".join("  " + json.dumps(result) for result in results)
    STORED.write_text(json.dumps(head, indent=1)[:-2] + f',\n "results": [\n{lines}\n ]}}\n')
    print(f"hellaswag_rows={len(results)} acc={head['acc']:.4f} acc_norm={head['acc_norm']:.4f}")


def read_stored(folder):
    stored = json.loads(STORED.read_text())
    for key, path in (("model_sha256", folder / smollm2_model.WEIGHTS), ("rows_sha256", ROWS)):
        found = smollm2_model.sha256(path)
        if stored[key] != found:
            sys.exit(f"{STORED.name} is of another file: wanted {key} {stored[key]}, found {found}; run with --pytorch")
    return stored["results"]


def check_nll(folder, model, ids, work):
    with torch.inference_mode():
        theirs = F.cross_entropy(model(ids[None]).logits[0, :-1].float(), ids[1:]).item()
    save_batch(work / "text.safetensors", ids[None, :-1], ids[None, 1:])
    ours = json.loads(tool("loss", folder, work / "text.safetensors")[0])["loss"]
    print(f"mean loss of {len(ids) - 1} tokens: {ours:.6f} here, {theirs:.6f} by transformers", flush=True)
    return abs(ours - theirs)


def greedy_by_transformers(model, ids, count):
    """New ids, and by how much the least certain of them won."""
    new, margin, cache, feed = [], float("inf"), None, torch.tensor([ids])
    for _ in range(count):
        with torch.inference_mode():
            out = model(feed, past_key_values=cache, use_cache=True)
        best = out.logits[0, -1].topk(2)
        margin, cache = min(margin, (best.values[0] - best.values[1]).item()), out.past_key_values
        new.append(best.indices[0].item())
        feed = best.indices[None, :1]
    return new, margin


def check_greedy(folder, model, ids):
    """How many of the tokens are the same as transformers', the worse of with and without a key-value cache."""
    theirs, margin = greedy_by_transformers(model, ids, GREEDY)
    equal = GREEDY
    for mode in ("cached", "whole"):
        ours = json.loads(tool("greedy", folder, mode, GREEDY, *ids)[0])["new"]
        equal = min(equal, sum(a == b for a, b in zip(ours, theirs)) if len(ours) == GREEDY else 0)
    print(f"greedy: {equal} of {GREEDY} tokens equal; the least certain won by {margin:.4f}", flush=True)
    return equal


def check_hellaswag(folder, stored, limit, work):
    """Differences of acc and acc_norm in points, and how many rows got another answer."""
    predictions = work / "predictions.jsonl"
    done = subprocess.run([OCTAVO, "eval", "--checkpoint", folder, "--eval_task", "hellaswag", "--eval_data", ROWS,
                           "--eval_limit", str(limit), "--mixed_precision", "fp32", "--json", "--output", predictions],
                          stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"octavo eval ended with exit code {done.returncode}")
    summary = json.loads(done.stdout.splitlines()[-1])
    ours = [json.loads(line) for line in predictions.read_text().splitlines()]
    theirs = stored[:limit]
    assert [r["row"] for r in ours] == list(range(limit)), f"wanted rows 0 to {limit - 1} in order, found {len(ours)}"
    assert [r["label"] for r in ours] == [r["label"] for r in theirs], "labels differ"
    points, other = {}, {}
    for name, key in (("acc", "pred"), ("acc_norm", "pred_norm")):
        here, there = hellaswag.accuracy(ours, key), hellaswag.accuracy(theirs, key)
        assert abs(summary[name] - here) < 1e-6, f"{name}: told {summary[name]}, its rows say {here}"
        points[name], other[name] = 100 * abs(here - there), sum(a[key] != b[key] for a, b in zip(ours, theirs))
        print(f"HellaSwag {name} on {limit} rows: {here:.4f} here, {there:.4f} by PyTorch; "
              f"{other[name]} rows differ", flush=True)
    assert summary["rows"] == limit
    return points, other


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--pytorch", action="store_true", help="evaluate HellaSwag by PyTorch again and keep the result")
    parser.add_argument("--full", action="store_true", help=f"HellaSwag on {WHOLE} rows, not on {PART}")
    options = parser.parse_args()
    require(TEXT, ROWS)
    folder = smollm2_model.folder()
    if options.pytorch:
        return write_stored(folder)
    require(TOOL, OCTAVO, STORED)
    stored, limit = read_stored(folder), WHOLE if options.full else PART
    model, tokenizer = load_model(folder)
    encode = lambda text: tokenizer(text, add_special_tokens=False).input_ids
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        ids = torch.tensor(encode(TEXT.read_text(encoding="utf-8")[:20 * TOKENS])[:TOKENS + 1])
        assert len(ids) == TOKENS + 1
        nll = check_nll(folder, model, ids, work)
        equal = check_greedy(folder, model, encode(PROMPT))
        points, other = check_hellaswag(folder, stored, limit, work)
    print(f"nll_diff={nll:.2e} tokens={TOKENS} greedy_equal={equal} hellaswag_rows={limit} acc_points={points['acc']:.2f} "
          f"acc_norm_points={points['acc_norm']:.2f} rows_different={other['acc']} "
          f"rows_different_norm={other['acc_norm']}")
    sys.exit(0 if nll <= NLL_DIFF and equal == GREEDY and max(points.values()) <= POINTS else 1)


if __name__ == "__main__":
    main()
