#!/usr/bin/env python3
"""Draws the pictures of README.md: the losses of a run in BF16 and in FP8 beside what its receipt says about every GEMM, and badges.

The numbers are in docs/pictures/quickstart.json, which says by which commands, from which commit and on which machine they were made.
tests/lint/readme.py checks that this script still draws the committed files.

usage: pictures.py                             draws docs/pictures/quickstart-*.svg (light and dark, wide and narrow) and badge-*.svg
       pictures.py take FP8_RUN BF16_RUN COMPARE_JSON    takes the numbers of two run folders and of COMMANDS[2] first
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import time
from xml.sax.saxutils import escape

FOLDER = pathlib.Path(__file__).resolve().parent / "pictures"
NUMBERS = FOLDER / "quickstart.json"
COMMANDS = ["octavo train configs/quickstart.yaml --use_fp8", "octavo train configs/quickstart.yaml --run_name quickstart_bf16",
            "octavo compare runs/quickstart_bf16 runs/quickstart --json"]
MEAN_OF = 10  # steps to a point
THEMES = {
    "light": {"paper": "#ffffff", "ink": "#1f2328", "faint": "#59636e", "grid": "#d1d9e0", "fp8": "#0969da", "bf16": "#9aa4ae",
              "cell": "#ddf4ff", "edge": "#54aeff", "plain": "#eaeef2"},
    "dark": {"paper": "#0d1117", "ink": "#e6edf3", "faint": "#9198a1", "grid": "#3d444d", "fp8": "#58a6ff", "bf16": "#8b949e",
             "cell": "#0c2d6b", "edge": "#1f6feb", "plain": "#21262d"},
}
FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, 'Liberation Sans', sans-serif"
BADGES = {"licence": ("licence", "Apache-2.0", "#0550ae"), "language": ("C++", "20", "#0550ae"), "cpu": ("CPU", "trains", "#116329"),
          "gpu": ("GPU", "not run yet", "#953800")}
GEMMS = ("forward", "input gradient", "weight gradient")


def losses_of(run):
    """Means of the training loss."""
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    train = [record["train/loss"] for record in records if "train/loss" in record]
    return [round(sum(train[i:i + MEAN_OF]) / MEAN_OF, 4) for i in range(0, len(train) - MEAN_OF + 1, MEAN_OF)]


def gemms_of(receipt):
    """[layer, GEMM, precision, share of the FLOPs], the blocks of a model as one."""
    found = {}
    for gemm in receipt["gemms"]:
        key = (re.sub(r"\.\d+\.", ".*.", gemm["layer"]), gemm["gemm"], gemm["precision"])
        found[key] = found.get(key, 0) + gemm["flops_share"]
    return [[*key, round(share, 4)] for key, share in found.items()]


def take(fp8, bf16, compared):
    """Writes NUMBERS, one line for each key. To be run in the checkout, and on the machine, that made the runs."""
    git = ["git", "rev-parse", "--short=10", "HEAD"]
    model = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.M)
    receipt = json.loads((fp8 / "receipt.json").read_text())["fp8"]
    gaps = {judgement["name"]: judgement["gap"] for judgement in json.loads(compared.read_text())["judgements"] if judgement["gap"]}
    numbers = {"commands": COMMANDS, "date": time.strftime("%Y-%m-%d"),
               "commit": subprocess.run(git, cwd=FOLDER, check=True, capture_output=True, text=True).stdout.strip(),
               "machine": f"{os.cpu_count()} cores of {model[1] if model else 'unknown model'}", "mean_of_steps": MEAN_OF,
               "fp8": losses_of(fp8), "bf16": losses_of(bf16), "gaps": {name: gaps[name] for name in ("training loss", "validation loss")},
               "fp8_share": round(receipt["flops_share"], 4), "gemms": gemms_of(receipt)}
    NUMBERS.write_text("{\n" + ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in numbers.items()) + "\n}\n")


class Drawing:
    def __init__(self, theme, width, height):
        self.theme, self.width, self.height, self.parts = THEMES[theme], width, height, []

    def text(self, x, y, words, size=15, color="ink", anchor="start", weight=400):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" text-anchor="{anchor}" '
                          f'fill="{self.theme[color]}">{escape(words)}</text>')

    def line(self, points, color, width, opacity=1):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{self.theme[color]}" stroke-width="{width}" '
                          f'stroke-linejoin="round" opacity="{opacity}"/>')

    def box(self, x, y, width, height, fill, edge):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="4" '
                          f'fill="{self.theme[fill]}" stroke="{self.theme[edge]}"/>')

    def svg(self, title):
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
                f'height="{self.height}" role="img" aria-label="{escape(title)}" font-family="{FONT}">\n<title>{escape(title)}</title>\n'
                f'<rect width="{self.width}" height="{self.height}" rx="8" fill="{self.theme["paper"]}"/>\n'
                + "\n".join(self.parts) + "\n</svg>\n")


def draw_losses(drawing, numbers, left, top, width, height):
    """Both curves; BF16 is the broad one, because FP8 lies on it."""
    fp8, bf16, every, gaps = numbers["fp8"], numbers["bf16"], numbers["mean_of_steps"], numbers["gaps"]
    drawing.text(left, top + 16, "The same run in FP8 and in BF16", 19, weight=600)
    drawing.text(left, top + 40, f"training loss {gaps['training loss']}, validation {gaps['validation loss']}", 14, "faint")
    low, high = int(2 * min(fp8 + bf16)) / 2, int(2 * max(fp8 + bf16) + 1) / 2
    plot_left, plot_top, plot_bottom = left + 34, top + 68, top + height - 26
    steps = len(fp8) * every

    def at(i, loss):
        return (plot_left + (i + 0.5) * every / steps * (left + width - plot_left),
                plot_top + (high - loss) / (high - low) * (plot_bottom - plot_top))

    for tick in range(int(2 * low), int(2 * high) + 1, 2):
        y = at(0, tick / 2)[1]
        drawing.line([(plot_left, y), (left + width, y)], "grid", 1)
        drawing.text(plot_left - 8, y + 5, f"{tick / 2:g}", 14, "faint", "end")
    drawing.text(plot_left, plot_bottom + 21, "step 1", 14, "faint")
    drawing.text(left + width, plot_bottom + 21, f"step {steps}", 14, "faint", "end")
    drawing.line([at(i, loss) for i, loss in enumerate(bf16)], "bf16", 7, 0.55)
    drawing.line([at(i, loss) for i, loss in enumerate(fp8)], "fp8", 2)
    key = left + width - 150
    for row, (name, color, broad) in enumerate((("BF16", "bf16", 7), ("FP8 (delayed)", "fp8", 2))):
        y = plot_top + 16 + 24 * row
        drawing.line([(key, y), (key + 30, y)], color, broad, 0.55 if broad > 2 else 1)
        drawing.text(key + 40, y + 5, name, 15)
    drawing.text(left, plot_top + 4, "training loss", 13, "faint")


def draw_receipt(drawing, numbers, left, top, width, height):
    """A row for each kind of layer, a column for each of its three GEMMs."""
    layers = list(dict.fromkeys(layer for layer, *_ in numbers["gemms"]))
    drawing.text(left, top + 16, f"{100 * numbers['fp8_share']:.0f}% of the GEMM FLOPs ran in FP8", 19, weight=600)
    drawing.text(left, top + 40, "receipt.json: the precision of every GEMM, and why", 15, "faint")
    names = 92
    cell, row = (width - names) / 3, (height - 92) / len(layers)
    for i, gemm in enumerate(GEMMS):
        drawing.text(left + names + (i + 0.5) * cell, top + 78, gemm, 13, "faint", "middle")
    for j, layer in enumerate(layers):
        y = top + 88 + j * row
        drawing.text(left, y + row / 2 + 3, layer.removeprefix("h.*."), 15)
        kinds = {gemm: precision for name, gemm, precision, _ in numbers["gemms"] if name == layer}
        if set(kinds) <= {"all", "all three"}:  # what stays in BF16 has one entry
            drawing.box(left + names + 2, y, width - names - 4, row - 5, "plain", "grid")
            drawing.text(left + names + (width - names) / 2, y + row / 2 + 3, f"{next(iter(kinds.values()))}, by design", 14, "faint", "middle")
            continue
        for i, gemm in enumerate(GEMMS):
            in_fp8 = kinds[gemm].startswith("FP8")
            drawing.box(left + names + i * cell + 2, y, cell - 4, row - 5, *(("cell", "edge") if in_fp8 else ("plain", "grid")))
            drawing.text(left + names + (i + 0.5) * cell, y + row / 2 + 3, kinds[gemm].replace("FP8 ", "").replace(" x ", " × "), 13,
                         "ink" if in_fp8 else "faint", "middle")


def badge(left, right, color):
    """Widths are fixed by textLength, so that they are the same in every font."""
    widths = [round(7 * len(words)) for words in (left, right)]
    split, width = widths[0] + 14, sum(widths) + 28
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="20" role="img" aria-label="{left}: {right}" font-family="{FONT}" '
            f'font-size="12" fill="#ffffff">\n<title>{left}: {right}</title>\n'
            f'<clipPath id="round"><rect width="{width}" height="20" rx="4"/></clipPath>\n'
            f'<g clip-path="url(#round)"><rect width="{split}" height="20" fill="#424a53"/><rect x="{split}" width="{width - split}" height="20" '
            f'fill="{color}"/></g>\n<text x="7" y="14.5" textLength="{widths[0]}" lengthAdjust="spacingAndGlyphs">{left}</text>'
            f'<text x="{split + 7}" y="14.5" textLength="{widths[1]}" lengthAdjust="spacingAndGlyphs">{right}</text>\n</svg>\n')


def pictures():
    """File name to text."""
    numbers = json.loads(NUMBERS.read_text())
    title = (f"Losses of the quick start in FP8 and BF16 nearly lie on each other; {100 * numbers['fp8_share']:.0f}% of the GEMM FLOPs "
             "ran in FP8, listed by layer and GEMM")
    made = {f"badge-{name}.svg": badge(*parts) for name, parts in BADGES.items()}
    for theme in THEMES:
        wide = Drawing(theme, 920, 330)
        draw_losses(wide, numbers, 20, 20, 410, 292)
        draw_receipt(wide, numbers, 470, 20, 430, 292)
        narrow = Drawing(theme, 470, 640)
        draw_losses(narrow, numbers, 16, 18, 438, 290)
        draw_receipt(narrow, numbers, 16, 336, 438, 290)
        made |= {f"quickstart-{theme}.svg": wide.svg(title), f"quickstart-{theme}-narrow.svg": narrow.svg(title)}
    return made


def main():
    if sys.argv[1:2] == ["take"] and len(sys.argv) == 5:
        take(*map(pathlib.Path, sys.argv[2:]))
    elif len(sys.argv) > 1:
        sys.exit(__doc__)
    for name, text in pictures().items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()
