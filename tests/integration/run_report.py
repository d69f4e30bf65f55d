#!/usr/bin/env -S sh -c 'exec "$(dirname "$0")/../../.deps/venv/bin/python" "$0" "$@"'
# test: label=integration timeout=600 gate="" night="--every 1" alone
"""The page of a run (`octavo report`), drawn by Chromium and read back from it.

real       an FP8 run with a spoiled batch that is skipped, stopped and resumed once: every chart has the numbers of
           metrics.jsonl where they belong (a fit of the drawn points), hovering tells them, the heat map has a cell for every
           tensor and look, incident and restart stand on the axis, tables and samples have the files' words; train wrote the
           same page that `octavo report` writes, and named it
large      10,000 steps x 200 tensors: at most 2 MB, open in at most 2 s
hostile    a folder of markup, huge numbers, cut and nested files: nothing runs, nothing is asked for, the page is drawn
Nowhere is anything asked of a network.

usage: run_report.py [--every N] [--keep FOLDER]    N: steps between FP8 statistics of the large run (default 20)
"""
import argparse
import json
import math
import pathlib
import random
import shlex
import signal
import subprocess
import sys
import tempfile

import numpy as np

import browser
import common
from common import OCTAVO, STOPPED, TEXT, require_files

MAX_BYTES, MAX_SECONDS = 2_000_000, 2.0
STEPS, SPOILED, STOP_AT, LENGTH, ROWS = 200, 160, 60, 64, 4
PIXEL = 0.12  # points are written with one digit
CONFIG = f"""model_name: custom
n_layer: 2
n_head: 2
n_embd: 128
max_seq_length: {LENGTH}
batch_size: {ROWS}
tokenizer: bytes
shuffle: false
val_fraction: 0.1
max_steps: {STEPS}
learning_rate: 1e-3
warmup_steps: 20
use_fp8: true
fp8_stats_freq: 5
eval_freq: 40
eval_batches: 2
sample_freq: 100
sample_tokens: 20
bad_steps: skip
checkpoint_freq: 20
run_name: run
device: cpu
"""


def expect(condition, text):
    if not condition:
        sys.exit(f"run_report: {text}")


def write_text(path):
    """Tinyshakespeare in its order, with noise in the bytes of one step."""
    size = STEPS * ROWS * LENGTH * 5 // 4
    text = bytearray((TEXT.read_bytes() * 2)[:size])
    noise = random.Random(7)
    for at in range((SPOILED - 1) * ROWS * LENGTH, SPOILED * ROWS * LENGTH):
        text[at] = noise.randrange(128, 256)
    path.write_bytes(text)


def points(tab, selector):
    """[(x, y)] of a path."""
    text = tab.ask(f"document.querySelector({json.dumps(selector)}).getAttribute('d')")
    return [tuple(map(float, pair.split(" "))) for pair in text.replace("M", "L").split("L") if pair]


def expect_curve(tab, chart, series, steps, values, log=False, step_axis=True):
    """The drawn points are the values, but for one scale and one shift, to a tenth of a pixel."""
    drawn = points(tab, f"[data-chart='{chart}'] path[data-series='{series}']")
    expect(len(drawn) == len(values), f"{chart}, {series}: wanted {len(values)} points, found {len(drawn)}")
    pairs = [(np.array([y for _, y in drawn]), np.log(values) if log else np.array(values, dtype=float), -1)]
    if step_axis:
        pairs.append((np.array([x for x, _ in drawn]), np.array(steps, dtype=float), 1))
    for found, wanted, direction in pairs:
        if np.ptp(wanted) == 0:
            expect(np.ptp(found) == 0, f"{chart}, {series}: wanted a level curve")
            continue
        scale, shift = np.polyfit(wanted, found, 1)
        off = np.abs(found - (scale * wanted + shift)).max()
        expect(off < PIXEL and scale * direction > 0, f"{chart}, {series}: {off:.2f} pixels beside the numbers of metrics.jsonl")
    return len(drawn)


def click(tab, chart, value):
    tab.ask(f"document.querySelector(\"[data-chart='{chart}'] button[data-value='{value}']\").click()")


def check_quiet(tab, page):
    expect(tab.requests == [page.resolve().as_uri()], f"wanted no request but the page's own, found {[r[:80] for r in tab.requests]}")
    expect(not tab.errors, f"{page}: {len(tab.errors)} errors, first {tab.errors[:3]}")
    broken = tab.ask("[...document.querySelectorAll('svg *')].filter(e => [...e.attributes].some(a => /NaN|Infinity|undefined/.test(a.value))).length")
    expect(broken == 0, f"{page}: {broken} shapes have coordinates that are no numbers")


def make_run(work):
    """An FP8 run that was stopped, resumed, and skipped its spoiled step. Returns its folder."""
    write_text(work / "data")
    folder = common.Folder(work / "real", CONFIG)
    code = common.interrupt(folder.start(), STOP_AT, signal.SIGTERM)
    expect(code == STOPPED, f"wanted exit code {STOPPED} after SIGTERM, found {code}:\n{folder.log()[-2000:]}")
    folder.finish_or_exit("--resume", "latest")
    run = folder.path / "runs" / "run"
    expect("page: runs/run/run.html\n" in folder.log()[-1500:], f"the end names no page: {folder.log()[-600:]}")
    return run


def check_charts(tab, steps, evaluations):
    drawn = 0
    numbers = [record["step"] for record in steps]
    tab.ask("(() => { const r = document.querySelector('input[type=range]'); r.value = 0; r.dispatchEvent(new Event('input')); })()")
    for chart, series, key, log in (("loss", "training", "train/loss", False), ("lr", "learning rate", "train/learning_rate", False),
                                    ("grad", "norm", "train/grad_norm", True), ("speed", "tokens/s", "perf/tokens_per_second", False),
                                    ("memory", "peak so far", "memory/peak_bytes", False),
                                    ("memory", "kept after a step", "memory/kept_bytes", False)):
        drawn += expect_curve(tab, chart, series, numbers, [record[key] for record in steps], log)
    drawn += expect_curve(tab, "loss", "validation", [e["step"] for e in evaluations], [e["val/loss"] for e in evaluations])
    click(tab, "loss", "log")
    expect_curve(tab, "loss", "training", numbers, [record["train/loss"] for record in steps], True)
    click(tab, "loss", "linear")
    tab.ask("document.querySelector(\".bar button[data-value='tokens']\").click()")
    expect_curve(tab, "loss", "training", [record["tokens"] for record in steps], [record["train/loss"] for record in steps])
    tab.ask("document.querySelector(\".bar button[data-value='time']\").click()")
    expect_curve(tab, "loss", "training", numbers, [record["train/loss"] for record in steps], step_axis=False)
    tab.ask("document.querySelector(\".bar button[data-value='step']\").click()")
    shares = tab.ask("[...document.querySelectorAll(\"[data-chart='time'] path[data-series]\")].map(p => [p.dataset.series, p.getAttribute('d').length])")
    expect(len(shares) == 4 and all(length > 100 for _, length in shares), f"where time went: {shares}")
    text = tab.ask("document.querySelector(\"[data-chart='time'] .legend\").textContent")
    total = sum(float(word.strip("<%")) for word in text.replace("%", "% ").split() if word.endswith("%"))
    expect(abs(total - 100) < 0.5, f"where time went: {text} is {total}% in all")
    return drawn


def check_fp8(tab, steps):
    """Cells of the heat map, its tooltips, and the scales of one layer, against the records."""
    looks = [record for record in steps if "fp8/tensors" in record]
    rows = [(t["layer"], t["tensor"]) for t in looks[0]["fp8/tensors"]]
    cells = {}
    for kind, field, unit in (("sqnr", "sqnr_db", " dB"), ("underflow", "underflow_percent", "%"), ("saturation", "saturation_percent", "%")):
        click(tab, "heat", kind)
        shown = tab.ask("({...document.querySelector('[data-heat]').dataset})")
        wanted = sum(t[field] is not None for record in looks for t in record["fp8/tensors"])
        expect([int(shown[k]) for k in ("rows", "columns", "cells")] == [len(rows), len(looks), wanted],
               f"heat map of {kind}: wanted {len(rows)} x {len(looks)} with {wanted} cells, found {shown}")
        cells[kind] = wanted
        row, column = len(rows) // 2, len(looks) // 3
        tab.ask("document.querySelector('[data-heat]').scrollIntoView({block: 'center', behavior: 'instant'})")
        box = tab.ask("(() => { const b = document.querySelector('[data-heat]').getBoundingClientRect(); return [b.left, b.top, b.width, b.height]; })()")
        tab.hover(box[0] + (column + 0.5) * box[2] / len(looks), box[1] + (row + 0.5) * box[3] / len(rows))
        said = tab.ask("document.getElementById('tip').innerText")
        value = looks[column]["fp8/tensors"][row][field]
        number = float(said.split("\n")[2].split()[-2 if unit == " dB" else -1].rstrip("%"))
        expect(" ".join(rows[row]) in said and f"step {looks[column]['step']}" in said and abs(number - value) <= 0.006 * max(1, abs(value)),
               f"{kind} of {rows[row]} is {value}; the page says {said!r}")
    layer = rows[0][0]
    tab.ask(f"(() => {{ const s = document.querySelector('select'); s.value = {json.dumps(layer)}; s.dispatchEvent(new Event('change')); }})()")
    tensors = [tensor for name, tensor in rows if name == layer]
    for tensor in tensors:
        at = rows.index((layer, tensor))
        values = [record["fp8/tensors"][at]["scale"] for record in looks]
        drawn = points(tab, f"[data-chart='scales'] path[data-series='{tensor}']")
        expect(len(drawn) == len(values), f"scales of {layer} {tensor}: {len(drawn)} points of {len(values)}")
        if np.ptp(values) > 0:
            scale, shift = np.polyfit(np.log(values), [y for _, y in drawn], 1)
            off = np.abs(scale * np.log(values) + shift - [y for _, y in drawn]).max()
            expect(off < 1.5 and scale < 0, f"scales of {layer} {tensor}: {off:.2f} pixels beside")  # packed to 0.35%
    return sum(cells.values()), len(rows)


def check_words(tab, run):
    incidents = [json.loads(line) for line in (run / "incidents.jsonl").read_text().splitlines()]
    restarts = (run / "restarts.jsonl").read_text().splitlines()
    expect([i["step"] for i in incidents] == [SPOILED], f"wanted an incident at step {SPOILED}, found {incidents}")
    expect(len(restarts) == 1, f"wanted one restart, found {restarts}")
    for kind, wanted in (("incident", len(incidents)), ("restart", 1)):
        found = tab.ask(f"Number(document.querySelector(\"[data-chart='loss'] [data-events='{kind}']\").dataset.count)")
        expect(found == wanted, f"wanted {wanted} {kind} on the axis, found {found}")
    table = tab.ask("document.querySelector(\"[data-table='events']\").innerText")
    expect(incidents[0]["what"] in table and "resumed from" in table, f"events: {table!r}")
    receipt = json.loads((run / "receipt.json").read_text())
    share = sum(gemm["flops_share"] for gemm in receipt["fp8"]["gemms"] if gemm["recipe"])
    tile = tab.ask("document.querySelector(\"[data-tile='FLOPs in FP8'] .v\").textContent")
    expect(abs(float(tile.rstrip("%")) - 100 * share) < 0.06, f"wanted {100 * share:.2f}% in FP8, found {tile}")
    gemms = tab.ask("[...document.querySelectorAll(\"[data-table='gemms'] tbody tr\")].map(r => r.cells[4].textContent)")
    expect(abs(sum(float(text.rstrip("%")) for text in gemms) - 100) < 0.5, f"shares of FLOPs: {gemms}")
    for path in (run / "samples").glob("step-*.txt"):
        text = tab.ask(f"document.querySelector(\"[data-sample='{path.stem[5:]}']\").textContent")
        expect(text == path.read_text(errors="replace"), f"{path.name}: {text!r}")
    keys = tab.ask("[...document.querySelectorAll(\"[data-table='config'] tbody tr\")].map(r => r.cells[0].textContent)")
    expect({"n_embd", "max_steps", "fp8_stats_freq", "bad_steps"} <= set(keys) and "weight_decay" not in keys, f"settings: {keys}")
    return len(gemms)


def check_real(tab, run, pictures):
    commands = common.page_commands("how-to/run-report.md", "run_report")
    expect(len(commands) == 1, f"docs/how-to/run-report.md: wanted one command under the test's mark, found {commands}")
    (run.parent / "my-run").symlink_to(run, target_is_directory=True)
    done = subprocess.run([OCTAVO, *shlex.split(commands[0])[1:]], cwd=run.parent.parent, check=True, capture_output=True, text=True)
    expect(done.stdout.startswith("page: "), done.stdout)
    page = run.parent.parent / shlex.split(commands[0])[-1]
    # Its title and name differ, as the link's name does.
    same = page.read_text().replace("my-run", "run") == (run / "run.html").read_text()
    expect(same, "train's page is not the one that octavo report writes")
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    steps = [record for record in records if "train/loss" in record]
    expect(len(steps) == STEPS, f"wanted {STEPS} steps, found {len(steps)}")
    tab.look()
    tab.open(run / "run.html")
    check_quiet(tab, run / "run.html")
    level = tab.ask("document.querySelector('[data-level]').dataset.level")
    expect(level == "look", f"wanted the page to say that an incident is to be looked at, found {level}")
    found = {"points": check_charts(tab, steps, [record for record in records if "val/loss" in record])}
    found["cells"], found["tensors"] = check_fp8(tab, steps)
    found["gemm_rows"] = check_words(tab, run)
    check_quiet(tab, run / "run.html")
    for name, scheme, media, width in (("light", "light", "", 1200), ("dark", "dark", "", 1200), ("narrow", "light", "", 400), ("print", "dark", "print", 800)):
        tab.look(scheme, media, width)
        tab.open(run / "run.html")
        ground = tab.ask("getComputedStyle(document.body).backgroundColor")
        expect((ground == "rgb(13, 17, 23)") == (name == "dark"), f"{name}: the ground is {ground}")
        over = tab.ask("document.documentElement.scrollWidth - innerWidth")
        expect(over <= 0, f"{name}: the page is {over} pixels wider than its window")
        tab.picture(pictures / f"{name}.png")
    return found


def write_large(folder, every, steps=10_000, layers=50):
    """10,000 steps, 200 tensors (layers x 4): a plain loss, statistics every few steps."""
    folder.mkdir()
    noise = random.Random(3)
    with open(folder / "metrics.jsonl", "w") as file:
        for step in range(1, steps + 1):
            record = {"step": step, "train/loss": 2 + 8 * math.exp(-step / 900) + noise.gauss(0, 0.1), "train/learning_rate": 6e-4 * (1 - step / steps),
                      "train/grad_norm": math.exp(noise.gauss(0, 0.2)), "perf/step_seconds": 0.2 + 0.01 * noise.random(), "data/wait": 0.001,
                      "perf/tokens_per_second": 160_000 + 500 * noise.random(), "goodput": 0.97, "memory/peak_bytes": 7e10, "memory/kept_bytes": 5e10 + step,
                      "tokens": 32768 * step, "precision": "FP8"}
            if step % every == 0:
                record |= {"fp8/fwd_scale": 300 + noise.random(), "fp8/bwd_scale": 1e5 + noise.random()}
                record["fp8/tensors"] = [
                    {"layer": f"model.layers.{layer}.mlp.down_proj", "tensor": tensor, "amax": math.exp(noise.gauss(0, 1)), "scale": 448 / math.exp(noise.gauss(0, 1)),
                     "underflow_percent": 3 * noise.random(), "saturation_percent": 0.01 * noise.random(), "sqnr_db": 31 + noise.gauss(0, 0.5), "nan": 0, "trouble": ""}
                    for layer in range(layers) for tensor in ("input", "weight", "gradient", "output")]
            file.write(json.dumps(record) + "\n")
            if step % 100 == 0:
                file.write(json.dumps({"step": step, "val/loss": record["train/loss"], "val/tokens": 1, "val/best": False}) + "\n")
    gemms = [{"layer": f"model.layers.{layer}.mlp.down_proj", "gemm": gemm, "precision": "FP8 e4m3 x e4m3", "recipe": "delayed", "reason": "",
              "flops_share": 1 / layers / 3, "ran_fp8": steps, "ran_other": 0} for layer in range(layers) for gemm in ("forward", "input gradient", "weight gradient")]
    (folder / "receipt.json").write_text(json.dumps({"status": "done", "device": "cuda", "fp8": {"flops_share": 1, "gemms": gemms, "fallbacks": []}}))
    (folder / "config.yaml").write_text(f"max_steps: {steps}\n")


def check_large(tab, folder):
    common.octavo(folder.parent, "report", folder)
    page = folder / "run.html"
    tab.look()
    seconds = min(tab.open(page) for _ in range(3))  # the machine may be busy with something else
    check_quiet(tab, page)
    shape = tab.ask("({...document.querySelector('[data-heat]').dataset})")
    expect(int(shape["rows"]) == 200 and int(shape["columns"]) >= 60, f"heat map of the large run: {shape}")
    curve = tab.ask("Number(document.querySelector(\"[data-chart='loss'] path[data-series='training']\").dataset.points)")
    notes = tab.ask("document.getElementById('notes').innerText")
    expect(curve >= 500 and f"10,000 steps are drawn as {curve} points" in notes, f"{curve} points; {notes[:200]}")
    band = tab.ask("document.querySelector(\"[data-chart='loss'] path[data-band='training']\").getAttribute('d').length")
    expect(band > 1000, "the loss has no band of least and most")
    return page.stat().st_size, seconds


EVIL = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1><svg onload=window.hacked=1>${window.hacked=1}'\"`"


def write_hostile(folder):
    (folder / "samples").mkdir(parents=True)
    tensor = {"layer": EVIL, "tensor": EVIL, "amax": 1e308, "scale": 5e-324, "underflow_percent": 1e300, "saturation_percent": -5, "sqnr_db": None, "trouble": EVIL}
    lines = []
    for step in range(1, 60):
        record = {"step": step, "train/loss": [1e308, -1e308, None, 0, 5e-324][step % 5], "train/grad_norm": [1e308, 0, -1, None, EVIL][step % 5],
                  "train/learning_rate": -1e-300, "perf/step_seconds": [1e308, None, -1, 0, "x"][step % 5], "perf/tokens_per_second": 1e308, "goodput": 5e-324,
                  "tokens": [1e308, -1, None, 0, 2][step % 5], "memory/peak_bytes": 1e308, "precision": EVIL, "data/wait": 1e308}
        if step % 3 == 0:
            record["fp8/tensors"] = [tensor, tensor | {"layer": "__proto__"}, [], None, {"layer": 7}, tensor | {"layer": "x" * 100_000}]
        lines.append(json.dumps(record))
        lines.append(json.dumps({"step": step, "val/loss": [None, 1e308, -1e308][step % 3]}))
    lines += [json.dumps({"step": 2**49, "train/loss": 1.0}), json.dumps({"step": 10**30, "train/loss": 1.0}), json.dumps({"step": -1, "train/loss": 1.0}),
              json.dumps({"step": 3, "flag": EVIL, "seen": EVIL, "remedy": EVIL}), '{"step": 4, "train/loss": NaN}', "[" * 5000, '{"a":1,"a":2}', "\0\xff", '{"step": 5, "train/lo']
    (folder / "metrics.jsonl").write_text("\n".join(lines), errors="surrogateescape")
    (folder / "incidents.jsonl").write_text(json.dumps({"step": 2**49, "kind": EVIL, "what": EVIL, "action": EVIL}) + "\n{\n")
    (folder / "restarts.jsonl").write_text(json.dumps({"step": 1, "from": EVIL, "time": EVIL}) + "\nnull\n")
    gemm = {"layer": EVIL, "gemm": EVIL, "precision": EVIL, "recipe": EVIL, "reason": EVIL, "flops_share": 1e308, "ran_fp8": -1e308}
    (folder / "receipt.json").write_text(json.dumps({"status": EVIL, "device": EVIL, EVIL: EVIL, "parameters": 1e308, "memory_peak_bytes": 1e308,
                                                     "operations": [{"op": EVIL, "ran": EVIL, "refused": [{"implementation": EVIL, "reason": EVIL}]}, 3],
                                                     "fp8": {"flops_share": 1e308, "gemms": [gemm, 1], "fallbacks": [{"layer": EVIL, "step": 2, "reason": EVIL}]}}))
    (folder / "config.yaml").write_text(f"sample_prompt: {json.dumps(EVIL)}\nrun_name: {json.dumps(EVIL)}\n")
    (folder / "samples" / "step-1.txt").write_bytes(EVIL.encode() + b"\xff\xfe\x00\x1b[31m\xe2\x80\xa8")


def check_hostile(tab, work):
    folders = []
    for name in ("whole", "cut", "<img src=x onerror=alert(1)>"):
        folder = work / "hostile" / name
        write_hostile(folder)
        if name == "cut":  # in the middle of every file
            for path in folder.glob("*.*"):
                path.write_bytes(path.read_bytes()[:path.stat().st_size // 2])
        folders.append(folder)
    bare = work / "hostile" / "bare"
    bare.mkdir()
    (bare / "metrics.jsonl").write_text("")
    for folder in [*folders, bare]:
        common.octavo(work, "report", folder, "--output", "hostile.html")
        page = work / "hostile.html"
        tab.open(page)
        check_quiet(tab, page)
        for button in range(tab.ask("document.querySelectorAll('button').length")):
            tab.ask(f"document.querySelectorAll('button')[{button}].click()")
        tab.hover(500, 400)
        check_quiet(tab, page)
        facts = tab.ask("[typeof window.hacked, document.querySelectorAll('img,iframe,object,[onload],[onerror]').length, document.scripts.length, document.querySelectorAll('section').length]")
        expect(facts == ["undefined", 0, 2, 7], f"{folder.name}: {facts}")
    stopped = tab.ask("(() => { const s = document.createElement('script'); s.textContent = 'window.hacked = 1'; document.body.append(s); return window.hacked === undefined; })()")
    expect(stopped, "the page's policy lets a script run that is not its own")
    missing = common.octavo(work, "report", work / "hostile", code=2)
    expect("wanted a run's folder with metrics.jsonl" in missing.stderr, missing.stderr)
    return len(folders) + 1


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--every", type=int, default=20)
    parser.add_argument("--keep", type=pathlib.Path, help="pages and pictures go there")
    options = parser.parse_args()
    require_files()
    with tempfile.TemporaryDirectory() as name:
        work = pathlib.Path(name)
        pictures = options.keep or work
        pictures.mkdir(exist_ok=True)
        run = make_run(work)
        write_large(work / "large", options.every)
        with browser.Tab(work / "browser") as tab:
            found = check_real(tab, run, pictures)
            size, seconds = check_large(tab, work / "large")
            if options.keep:
                tab.picture(pictures / "large.png")
                (pictures / "run.html").write_bytes((run / "run.html").read_bytes())
            hostile = check_hostile(tab, work)
    print(" ".join(f"{key}={value}" for key, value in found.items()), f"hostile={hostile} requests=0 large_bytes={size} open_seconds={seconds:.2f}")
    return 0 if size <= MAX_BYTES and seconds <= MAX_SECONDS else 1


if __name__ == "__main__":
    sys.exit(main())
