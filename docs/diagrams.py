#!/usr/bin/env python3
"""docs/diagrams.py [--check]: draws the pages' diagrams into docs/pictures as SVG that follows the reader's light or dark theme.

The module map is read from the table of docs/internals/tour.md and each module's CMakeLists.txt, the order of large data from
docs/pictures/shuffle.json, which bench/data_plane.py --quality writes; the others are drawn here.
--check: exit code 1 when a committed picture is not what this script draws.
"""
import html
import json
import pathlib
import re
import sys
import textwrap

import generated

ROOT = generated.ROOT
PICTURES = ROOT / "docs" / "pictures"
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2328 }
  .bold { font-weight: 600 } .small { font-size: 11px } .soft { fill: #59636e }
  .line { stroke: #59636e; fill: none; stroke-width: 1.4 } .head { fill: #59636e }
  .box { fill: #ffffff; stroke: #8c959f } .a { fill: #d5e6fb; stroke: #2f6fbd } .b { fill: #fde3c8; stroke: #c26a10 }
  .c { fill: #d7efd9; stroke: #2c7a39 } .none { fill: none; stroke: #8c959f; stroke-dasharray: 3 3 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .soft { fill: #9198a1 } .line { stroke: #9198a1 } .head { fill: #9198a1 }
    .box { fill: #161b22; stroke: #6e7681 } .a { fill: #16325c; stroke: #6ea8f0 } .b { fill: #57320d; stroke: #f0a354 }
    .c { fill: #173f20; stroke: #62bd70 } .none { stroke: #6e7681 }
  }"""


class Picture:
    """An SVG that is written top to bottom."""

    def __init__(self, width, height, title):
        self.width, self.height, self.title, self.parts = width, height, title, []

    def box(self, x, y, width, height, kind="box", rounded=5):
        self.parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="{rounded}"/>')

    def text(self, x, y, words, kind="", anchor="start"):
        self.parts.append(f'<text class="{kind}" x="{x}" y="{y}" text-anchor="{anchor}">{html.escape(words)}</text>')

    def labelled(self, x, y, width, height, words, below="", kind="box"):
        self.box(x, y, width, height, kind)
        middle = y + height / 2 + (4.5 if not below else -2)
        self.text(x + width / 2, middle, words, "bold", "middle")
        if below:
            self.text(x + width / 2, middle + 15, below, "small soft", "middle")

    def arrow(self, *points):
        """A line through the points with a head at its end; the last piece is horizontal or vertical."""
        (x0, y0), (x1, y1) = points[-2:]
        dx, dy = (x1 > x0) - (x1 < x0), (y1 > y0) - (y1 < y0)
        path = " ".join(f"{'L' if i else 'M'}{x},{y}" for i, (x, y) in enumerate(points))
        head = [(x1, y1), (x1 - 8 * dx - 4 * dy, y1 - 8 * dy - 4 * dx), (x1 - 8 * dx + 4 * dy, y1 - 8 * dy + 4 * dx)]
        self.parts.append(f'<path class="line" d="{path}"/>')
        self.parts.append(f'<polygon class="head" points="{" ".join(f"{x},{y}" for x, y in head)}"/>')

    def svg(self):
        body = "\n".join(self.parts)
        return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
                f'height="{self.height}" role="img">\n<title>{html.escape(self.title)}</title>\n<style>{STYLE}\n</style>\n{body}\n</svg>\n')


def modules():
    """[(name, a few words, whether it needs torch)] of the table of the tour, in its order."""
    rows = re.findall(r"^\| `src/(\w+)` \| (.*) \|$", (ROOT / "docs/internals/tour.md").read_text(), re.M)
    for name, text in rows:
        listing = ROOT / "src" / name / "CMakeLists.txt"
        torch = listing.is_file() and re.search(rf"octavo_module\({name}\s+TORCH\b", listing.read_text())
        words = text.replace("`", "")
        lines = textwrap.wrap(words, 31)
        if len(lines) > 3:
            lines = [*lines[:2], lines[2][:29].rstrip(",;: (") + " …"]
        yield name, lines, bool(torch)


def module_map():
    found, columns, width, height = list(modules()), 4, 212, 72
    rows = -(-len(found) // columns)
    picture = Picture(columns * (width + 10) + 10, rows * (height + 10) + 40, "The modules of src/ in their order")
    picture.text(10, 20, "Read from left to right, line by line: a module includes only modules before it.", "soft")
    picture.box(600, 8, 14, 14, "a", 3)
    picture.text(620, 20, "without torch", "small")
    picture.box(710, 8, 14, 14, "b", 3)
    picture.text(730, 20, "with torch", "small")
    for i, (name, lines, torch) in enumerate(found):
        x, y = 10 + i % columns * (width + 10), 34 + i // columns * (height + 10)
        picture.box(x, y, width, height, "b" if torch else "a")
        picture.text(x + 10, y + 18, name, "bold")
        for number, words in enumerate(lines):
            picture.text(x + 10, y + 34 + 14 * number, words, "small soft")
    return picture


def life_of_a_batch():
    picture = Picture(900, 300, "The life of a batch")
    rows = [("a", [("files, hub, S3", "rows and text"), ("tokens", "tokenizer"), ("shards", "hashed, on disk"), ("sampler", "keyed permutation"),
                   ("loader", "next batch")]),
            ("b", [("embedding", "T tokens"), ("blocks", "FP8 or BF16 GEMMs"), ("head and loss", "in chunks"), ("backward", "gradients in FP32"),
                   ("reduce", "over ranks")]),
            ("c", [("check", "finite? a spike?"), ("AdamW", "masters, BF16 copy"), ("FP8 scales", "for the next step"),
                   ("record", "metrics.jsonl, sinks"), ("checkpoint", "in the background")])]
    for number, (colour, boxes) in enumerate(rows):
        y = 20 + 100 * number
        if number:
            picture.arrow((802, y - 52), (802, y - 28), (90, y - 28), (90, y - 3))
        for i, (words, below) in enumerate(boxes):
            x = 15 + i * 178
            picture.labelled(x, y, 150, 48, words, below, colour)
            if i:
                picture.arrow((x - 28, y + 24), (x - 3, y + 24))
    picture.text(15, 290, "A skipped step goes from check to record: weights and scales stay as they were.", "small soft")
    return picture


def sharding_modes():
    """Which part of weights, gradients and optimizer state one of four ranks (two nodes of two) keeps."""
    picture = Picture(760, 318, "What one of four ranks keeps, by sharding_mode")
    what = [("weights", "a"), ("gradients", "b"), ("masters, moments", "c")]
    share = {"ddp": (4, 4, 4), "zero1": (4, 4, 1), "zero2": (4, 1, 1), "fsdp_full": (1, 1, 1), "hybrid": (2, 2, 2)}
    for column, (words, _) in enumerate(what):
        picture.text(130 + column * 210, 24, words, "bold")
    for row, (mode, kept) in enumerate(share.items()):
        y = 40 + row * 50
        picture.text(15, y + 24, mode, "bold")
        for column, (_, kind) in enumerate(what):
            for part in range(4):
                own = part < kept[column]
                picture.box(130 + column * 210 + part * 46, y, 42, 36, kind if own else "none", 3)
    picture.text(15, 300, "Full: rank 0 keeps this quarter. Dashed: on other ranks. hybrid: two nodes of two ranks, fsdp_full inside a node.", "small soft")
    return picture


def grid(picture, x, y, columns, rows, colours):
    """A small matrix; colours(column, row) names the group that shares a scale."""
    kinds = ("a", "b", "c", "box")
    for row in range(rows):
        for column in range(columns):
            picture.box(x + column * 13, y + row * 13, 12, 12, kinds[colours(column, row) % 4], 1)


def recipes():
    picture = Picture(780, 210, "What shares a scale in each recipe")
    shown = [("delayed, current", "one scale a tensor", lambda c, r: 0), ("rowwise", "one scale a row", lambda c, r: r),
             ("blockwise: x, dy", "1 x 128 values", lambda c, r: c // 4 + r * 2), ("blockwise: w", "128 x 128 values", lambda c, r: c // 4 + r // 4 * 2),
             ("mxfp8", "32 values", lambda c, r: c // 2 + 2 * r)]
    for i, (name, below, colours) in enumerate(shown):
        x = 15 + i * 154
        picture.text(x, 24, name, "bold")
        picture.text(x, 42, below, "small soft")
        grid(picture, x, 56, 8, 8, colours)
    picture.text(15, 184, "Neighbours of one colour share a scale. Not to size: a square stands for 32 values in blockwise, 16 in mxfp8.", "small soft")
    picture.text(15, 200, "The column copy, which the weight gradient reads, has the same blocks along the columns.", "small soft")
    return picture


def restart_states():
    picture = Picture(860, 330, "States of a run under octavo launch")
    picture.labelled(20, 30, 150, 50, "start", "new, or --resume", "box")
    picture.labelled(260, 30, 180, 50, "training", "saves in the background", "a")
    picture.labelled(640, 30, 180, 50, "done", "exit code 0", "c")
    picture.arrow((170, 55), (257, 55))
    picture.arrow((440, 55), (637, 55))
    picture.text(540, 47, "max_steps, num_epochs", "small", "middle")
    picture.labelled(20, 160, 190, 50, "stopped", "saved; exit code 75", "c")
    picture.labelled(260, 160, 180, 50, "a rank is lost", "killed, hung: code 3", "b")
    picture.labelled(640, 160, 180, 50, "refused or damaged", "exit code 2, 4 or 5", "b")
    picture.arrow((300, 80), (300, 120), (115, 120), (115, 157))
    picture.text(125, 138, "SIGTERM, SIGINT, SIGUSR1", "small")
    picture.arrow((350, 80), (350, 157))
    picture.arrow((400, 80), (400, 120), (730, 120), (730, 157))
    picture.text(470, 112, "wrong use, a guard, damage: never restarted", "small")
    picture.labelled(260, 260, 180, 50, "restart?", "--max_restarts", "box")
    picture.arrow((350, 210), (350, 257))
    picture.arrow((260, 285), (8, 285), (8, 55), (17, 55))
    picture.text(20, 278, "yes: --resume latest", "small")
    picture.labelled(640, 260, 180, 50, "given up", "exit code 3", "b")
    picture.arrow((440, 285), (637, 285))
    picture.text(540, 277, "no, or no new checkpoint", "small", "middle")
    picture.text(20, 228, "a requeued job runs the", "small soft")
    picture.text(20, 242, "same command again", "small soft")
    return picture


def histogram(picture, x, y, width, height, rows, labels):
    """Bars of two orders side by side, from the bottom at y; rows: (class, heights)."""
    top = max(max(heights) for _, heights in rows)
    count = len(rows[0][1])
    bar = width / count / len(rows)
    for i, (kind, heights) in enumerate(rows):
        for k, value in enumerate(heights):
            tall = round(height * value / top, 1)
            if tall:
                picture.box(round(x + (k * len(rows) + i) * bar, 1), y - tall, round(bar - 0.6, 1), tall, kind, 0)
    picture.parts.append(f'<path class="line" d="M{x},{y} L{x + width},{y}"/>')
    for place, words in labels:
        picture.text(x + place * width, y + 16, words, "small soft", "middle")


def shuffle():
    numbers = json.loads((PICTURES / "shuffle.json").read_text())
    blocks, uniform = numbers["blocks"], numbers["uniform"]
    picture = Picture(780, 290, "The order of large data beside a uniform permutation")
    picture.text(20, 24, "Distance between one sample and the next", "bold")
    picture.text(20, 40, f"share of the data; mean {blocks['mean_distance']:.4f} and {uniform['mean_distance']:.4f}", "small soft")
    histogram(picture, 20, 230, 340, 170, [("a", blocks["distances"]), ("b", uniform["distances"])], [(0, "0"), (0.5, "0.5"), (1, "1")])
    picture.text(420, 24, "Share of a step from one tenth of the data", "bold")
    picture.text(420, 40, f"over {numbers['steps']} steps; spread {blocks['share_spread']:.4f} and {uniform['share_spread']:.4f}", "small soft")
    last = len(blocks["shares"]) / 100
    histogram(picture, 420, 230, 340, 170, [("a", blocks["shares"]), ("b", uniform["shares"])],
              [(0, "0"), (0.1 / last, "0.1"), (0.2 / last, "0.2"), (1, "0.3")])
    picture.box(20, 262, 12, 12, "a", 1)
    picture.text(38, 272, "blocks of 1 MiB, in two levels", "small")
    picture.box(230, 262, 12, 12, "b", 1)
    picture.text(248, 272, "uniform permutation", "small")
    picture.text(420, 272, f"{numbers['samples']:.1e} samples, steps of {numbers['step_samples']}, "
                 f"{blocks['shards_in_a_step']:.0f} of {numbers['shards']} shards in a step", "small soft")
    return picture


DIAGRAMS = {"shuffle": shuffle, "module_map": module_map, "life_of_a_batch": life_of_a_batch, "sharding_modes": sharding_modes, "recipes": recipes,
            "restart_states": restart_states}


def main():
    files = {PICTURES / f"{name}.svg": draw().svg() for name, draw in DIAGRAMS.items()}
    stale = generated.write_or_check(files, "not what docs/diagrams.py draws; run it")
    print(f"diagrams={len(DIAGRAMS)} stale={stale}")
    sys.exit(1 if stale and generated.CHECK else 0)


if __name__ == "__main__":
    main()
