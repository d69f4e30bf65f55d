"""The picture of a study, as SVG by hand: learning curves above, the gap to BF16 in percent below.

It brings its own background in two themes, so that it is readable wherever it is shown.
"""
import math
from typing import NamedTuple

import numpy as np

WIDTH, LEFT, RIGHT = 880, 64, 236  # RIGHT: room for the labels
PANELS = {"loss": (62, 250), "gap": (416, 270)}  # top and height
HEIGHT = 740
LABEL_GAP = 16
# ink and paper, then a colour per line: (light, dark)
THEME = {"paper": ("#ffffff", "#0d1117"), "ink": ("#1f2328", "#e6edf3"), "faint": ("#59636e", "#9198a1"),
         "grid": ("#d1d9e0", "#3d444d")}
COLORS = {"bf16": ("#1f2328", "#e6edf3"), "delayed": ("#bc4c00", "#f0883e"), "current": ("#bf3989", "#f778ba"),
          "rowwise": ("#1a7f37", "#3fb950"), "blockwise": ("#0969da", "#58a6ff"), "mxfp8": ("#8250df", "#bc8cff")}
NAMES = {"bf16": "BF16"}


class Series(NamedTuple):
    losses: np.ndarray  # [seed, step]
    gaps: np.ndarray | None = None  # [seed, step], percent; none for BF16
    gap: float = 0.0  # mean of the last step's gaps
    half: float = 0.0  # half of its 95% interval; nan for one seed


class Panel:
    """Data to pixels."""

    def __init__(self, name, steps, low, high):
        self.top, self.height = PANELS[name]
        self.name, self.first, self.last, self.low, self.high = name, steps[0], steps[-1], low, high

    def x(self, step):
        return LEFT + (step - self.first) / max(1, self.last - self.first) * (WIDTH - LEFT - RIGHT)

    def y(self, value):
        return self.top + (self.high - value) / (self.high - self.low) * self.height

    def points(self, steps, values):
        return " ".join(f"{self.x(step):.1f},{self.y(value):.1f}" for step, value in zip(steps, values))


def style():
    def rules(theme):
        yield f".paper{{fill:{THEME['paper'][theme]}}}text{{fill:{THEME['ink'][theme]}}}"
        yield f".faint{{fill:{THEME['faint'][theme]}}}.zero,.aim{{stroke:{THEME['faint'][theme]}}}"
        yield f".grid{{stroke:{THEME['grid'][theme]}}}.halo{{stroke:{THEME['paper'][theme]}}}"
        for name, colors in COLORS.items():
            yield f".{name}{{stroke:{colors[theme]}}}.{name}-fill{{fill:{colors[theme]}}}"

    # BF16 is a broad, soft line under the others, which lie on it.
    return ("<style>text{font:13px system-ui,'Segoe UI',Helvetica,Arial,sans-serif}"
            ".head{font-weight:600;font-size:15px}polyline,.whisker{fill:none;stroke-width:1.6;stroke-linejoin:round}"
            "polyline.bf16{stroke-width:6;opacity:.3}.band{stroke:none;opacity:.11}.lead{stroke-width:1;opacity:.6}"
            ".aim{stroke-dasharray:2 4}.whisker{stroke-width:2}.halo{stroke-width:4;paint-order:stroke}"
            f"{''.join(rules(0))}@media(prefers-color-scheme:dark){{{''.join(rules(1))}}}</style>")


def ticks(low, high, wanted=5):
    """About so many round numbers from low to high, and how many decimals they need."""
    if not high > low:  # a single evaluation
        return [low], 0
    unit = 10.0 ** math.floor(math.log10((high - low) / wanted))
    step = min((unit * m for m in (1, 2, 5, 10)), key=lambda s: abs(math.log((high - low) / s / wanted)))
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)], decimals


def signed(value, decimals):
    rounded = round(value, decimals)
    return f"{rounded:+.{decimals}f}".replace("-", "\N{MINUS SIGN}") if rounded else f"{0:.{decimals}f}"


def text(x, y, words, anchor="start", kind="ink"):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{words}</text>'


def line(kind, x1, y1, x2, y2):
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def axes(panel, title, subtitle, x_label, has_sign=False):
    edge, bottom = WIDTH - RIGHT, panel.top + panel.height
    yield text(16, panel.top - 30, title, kind="head")
    yield text(16, panel.top - 12, subtitle, kind="faint")
    values, decimals = ticks(panel.low, panel.high)
    for value in values:
        yield line("grid" if value else "zero", LEFT, panel.y(value), edge, panel.y(value))
        number = signed(value, decimals) if has_sign else f"{value:.{decimals}f}"
        yield text(LEFT - 8, panel.y(value) + 4, number, "end", "faint")
    for value in ticks(panel.first, panel.last, 8)[0]:
        yield line("grid", panel.x(value), bottom, panel.x(value), bottom + 5)
        yield text(panel.x(value), bottom + 20, f"{value:,.0f}", "middle", "faint")
    yield text((LEFT + edge) / 2, bottom + 38, x_label, "middle", "faint")


def spread(heights, low, high):
    """The heights moved apart to LABEL_GAP and kept within low and high, in their order."""
    order = sorted(range(len(heights)), key=heights.__getitem__)
    placed = [heights[i] for i in order]
    for _ in range(200):  # a few rounds of pushing neighbours apart settle it
        for i in range(1, len(placed)):
            overlap = LABEL_GAP - (placed[i] - placed[i - 1])
            if overlap > 0:
                placed[i - 1], placed[i] = placed[i - 1] - overlap / 2, placed[i] + overlap / 2
        placed[0], placed[-1] = max(placed[0], low), min(placed[-1], high)
    return {index: y for index, y in zip(order, placed)}


def band(panel, name, steps, table):
    """The range over seeds and the mean."""
    high, low = panel.points(steps, table.max(0)), panel.points(steps[::-1], table.min(0)[::-1])
    yield f'<polygon class="band {name}-fill" points="{high} {low}"/>'
    yield f'<polyline class="{name}" points="{panel.points(steps, table.mean(0))}"/>'


def labels(panel, ends, words, from_x):
    """A label beside the end of each line, with a thin lead to it."""
    inside = [min(max(panel.y(value), panel.top), panel.top + panel.height) for value in ends.values()]
    heights = spread(inside, panel.top + 6, panel.top + panel.height - 6)
    for index, name in enumerate(ends):
        y = heights[index]
        yield line(f"lead {name}", from_x[name], inside[index], WIDTH - RIGHT + 54, y)
        yield text(WIDTH - RIGHT + 58, y + 4, words[name], kind=f"{name}-fill")


def clipped(panel, marks):
    """Marks cut off at the panel's edges: the first steps may lie far outside."""
    yield (f'<clipPath id="{panel.name}"><rect x="{LEFT}" y="{panel.top}" width="{WIDTH - LEFT - RIGHT + 60}" '
           f'height="{panel.height}"/></clipPath><g clip-path="url(#{panel.name})">')
    yield from marks
    yield "</g>"


def loss_panel(steps, series, x_label):
    everything = np.concatenate([s.losses for s in series.values()])
    pad = 0.04 * (everything.max() - everything.min())
    panel = Panel("loss", steps, everything.min() - pad, everything.max() + pad)
    yield from axes(panel, "Validation loss", "nats per byte; lines: mean over seeds; bands: lowest to highest seed",
                    x_label)
    yield from clipped(panel, [mark for name, s in series.items() for mark in band(panel, name, steps, s.losses)])
    ends = {name: float(s.losses[:, -1].mean()) for name, s in series.items()}
    words = {name: f"{NAMES.get(name, name)} {value:.4f}" for name, value in ends.items()}
    yield from labels(panel, ends, words, dict.fromkeys(ends, WIDTH - RIGHT))


def gap_range(series):
    """Fits the later three quarters of the run, where the gap means something, and the final intervals."""
    late = np.concatenate([s.gaps[:, s.gaps.shape[1] // 4:].ravel() for s in series.values()])
    bars = [s.gap + sign * np.nan_to_num(s.half) for s in series.values() for sign in (-1, 1)]
    low, high = min(0, late.min(), *bars), max(0, late.max(), *bars)
    pad = 0.05 * max(high - low, 0.01)
    return low - pad, high + pad


def aim_lines(panel, aims):
    for value in sorted({sign * aim for aim in aims.values() for sign in (-1, 1)}):
        if panel.low < value < panel.high:
            yield line("aim", LEFT, panel.y(value), WIDTH - RIGHT, panel.y(value))
            yield text(LEFT + 6, panel.y(value) - 4, f"aim {signed(value, 2)}%", kind="faint halo")


def gap_panel(steps, series, aims, x_label):
    panel = Panel("gap", steps, *gap_range(series))
    yield from axes(panel, "Gap to BF16 of the same seed",
                    "% of the loss, above 0 is worse; bars: 95% interval of the mean at the last step", x_label, True)
    marks = [mark for name, s in series.items() for mark in band(panel, name, steps, s.gaps)]
    bar_at = {name: WIDTH - RIGHT + 8 + 9 * index for index, name in enumerate(series)}
    words = {}
    for name, s in series.items():
        x, words[name] = bar_at[name], f"{name} {signed(s.gap, 2)}%"
        if not math.isnan(s.half):  # nan: one seed, no interval
            high, low = f"{panel.y(s.gap + s.half):.1f}", f"{panel.y(s.gap - s.half):.1f}"
            marks.append(f'<path class="whisker {name}" d="M{x - 3} {high}h6M{x - 3} {low}h6M{x} {high}V{low}"/>')
            words[name] += f" ± {s.half:.2f}"
        marks.append(f'<circle class="{name}-fill" cx="{x}" cy="{panel.y(s.gap):.1f}" r="3"/>')
    yield from clipped(panel, [*marks, *aim_lines(panel, aims)])
    yield from labels(panel, {name: s.gap for name, s in series.items()}, words,
                      {name: x + 5 for name, x in bar_at.items()})


def picture(steps, series, tokens_per_step, aims):
    """steps: of the evaluations; series: {name: Series} with bf16; aims: {recipe: percent}."""
    x_label = f"step (of {tokens_per_step:,} tokens)"
    recipes = {name: s for name, s in series.items() if name != "bf16"}
    seeds = len(series["bf16"].losses)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        'role="img" aria-labelledby="title desc">',
        '<title id="title">Learning curves of FP8 recipes and BF16</title>',
        f'<desc id="desc">Mean validation loss over {seeds} seeds, and its gap to BF16: ' + "; ".join(
            f"{name} {s.gap:+.2f}%" for name, s in recipes.items()) + "</desc>",
        style(), f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
        *loss_panel(steps, series, x_label), *gap_panel(steps, recipes, aims, x_label), "</svg>"]
    return "\n".join(parts) + "\n"
