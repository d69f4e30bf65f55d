// Curves with the band between least and most, or stacked areas, over the shared axis.
const EVENT_COLOURS = { incident: "var(--incident)", restart: "var(--restart)", flag: "var(--flag)", fallback: "var(--fallback)" };
const view = { smoothing: 0.6, charts: [] };

// Exponential moving average, without the pull of its first value to zero.
function smoothed(values, weight) {
  let sum = 0, share = 0;
  return values.map((value) => {
    if (!isNumber(value)) return null;
    sum = weight * sum + (1 - weight) * value;
    share = weight * share + (1 - weight);
    return sum / share;
  });
}

class LineChart {
  // spec: id, title, note, format, wide, height, log, stacked, series: [{name, colour, axis, mean, min, max, lost, smooth, dots}]
  constructor(spec) {
    this.spec = spec;
    this.log = Boolean(spec.log);
    this.plot = element("div", { class: "plot" });
    this.legend = element("span", { class: "legend" });
    const caption = element("figcaption", {}, element("h3", {}, spec.title), this.legend);
    if (!spec.stacked && !spec.fixedScale)
      caption.append(element("span", { class: "controls" }, choice([["linear", "linear"], ["log", "log"]],
        this.log ? "log" : "linear", (kind) => { this.log = kind === "log"; this.draw(); })));
    this.figure = element("figure", { "data-chart": spec.id, class: spec.wide ? "wide" : "", id: `chart-${spec.id}` }, caption, this.plot);
    if (spec.note) this.figure.append(element("p", { class: "small faint" }, spec.note));
    this.plot.addEventListener("pointermove", (event) => this.point(event));
    this.plot.addEventListener("pointerleave", () => { tip.hide(); moveCursors(null); });
    view.charts.push(this);
  }

  setSeries(series) {
    this.spec.series = series;
    this.draw();
  }

  usable(value) { return isNumber(value) && (!this.log || value > 0); }

  range() {
    let low = Infinity, high = -Infinity;
    for (const series of this.spec.series)
      for (const values of [series.mean, series.min, series.max])
        for (const value of values || []) if (this.usable(value)) { low = Math.min(low, value); high = Math.max(high, value); }
    if (this.spec.stacked) return [0, 1];
    if (low > high) return null;
    if (this.spec.fromZero && !this.log) low = Math.min(0, low);
    // Far from the ends of what a number can be, where sums and logarithms are no longer finite.
    const within = (value) => Math.max(-1e300, Math.min(1e300, value));
    if (this.log) {
      const room = low === high ? Math.LN2 : (Math.log(high) - Math.log(low)) * 0.04;
      return [Math.max(1e-300, Math.exp(Math.log(low) - room)), within(Math.exp(Math.log(high) + room))];
    }
    const room = low === high ? Math.abs(low) * 0.1 || 1 : (within(high) - within(low)) * 0.05;
    return [this.spec.fromZero && low === 0 ? 0 : within(low - room), within(high + room)];
  }

  draw() {
    this.width = Math.max(260, this.plot.clientWidth || 640);
    this.height = this.spec.height || 210;
    this.box = { left: 62, right: this.width - 12, top: 12, bottom: this.height - 22 };
    const range = this.range();
    this.drawLegend();
    if (!range || STEPS.length === 0) {
      this.plot.replaceChildren(element("div", { class: "empty" }, "no data"));
      this.svg = null;
      return;
    }
    this.svg = shape("svg", { viewBox: `0 0 ${this.width} ${this.height}`, role: "img", "aria-label": this.spec.title });
    this.makeScales(range);
    this.drawGrid(range);
    if (this.spec.stacked) this.drawStack();
    else for (const series of this.spec.series) this.drawSeries(series);
    this.drawEvents();
    this.cursor = shape("line", { class: "cursor", y1: this.box.top, y2: this.box.bottom, visibility: "hidden" });
    this.svg.append(this.cursor);
    this.plot.replaceChildren(this.svg);
  }

  makeScales([low, high]) {
    const box = this.box, steps = DATA.steps, count = STEPS.length;
    const begin = place(steps.first[0]), end = place((steps.last || steps.first)[count - 1]);
    this.begin = begin;
    this.end = end > begin ? end : begin + 1;
    this.x = (position) => box.left + ((position - this.begin) / (this.end - this.begin)) * (box.right - box.left);
    const to = this.log ? Math.log : (value) => value;
    const from = to(low), size = to(high) - from || 1;
    const at = (value) => box.bottom - ((to(value) - from) / size) * (box.bottom - box.top);
    this.y = (value) => Math.max(-20, Math.min(this.height + 20, at(value)));
  }

  drawGrid([low, high]) {
    const box = this.box, format = this.spec.format;
    const marks = this.log ? logTicks(low, high) : (this.spec.ticks || ticks)(low, high, 4);
    for (const mark of marks) {
      const y = this.y(mark);
      this.svg.append(shape("line", { class: "grid", x1: box.left, x2: box.right, y1: y, y2: y }),
        shape("text", { x: box.left - 6, y: y + 4, "text-anchor": "end" }, format(mark)));
    }
    for (const mark of ticks(this.begin, this.end, Math.max(2, this.width / 130))) {
      const x = this.x(mark);
      this.svg.append(shape("line", { class: "axis", x1: x, x2: x, y1: box.bottom, y2: box.bottom + 4 }),
        shape("text", { x: Math.min(x, box.right - 14), y: this.height - 5, "text-anchor": "middle" }, axisText(mark)));
    }
    this.svg.append(shape("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
  }

  xs(series) {
    return middles(series.axis).map((step) => this.x(place(step)));
  }

  path(xs, values) {
    let text = "", pen = false;
    values.forEach((value, i) => {
      if (this.usable(value)) text += `${pen ? "L" : "M"}${xs[i].toFixed(1)} ${this.y(value).toFixed(1)}`;
      pen = this.usable(value);
    });
    return text;
  }

  // Between two curves; a gap in either ends the area.
  area(xs, low, high) {
    let text = "", from = 0;
    const close = (to) => {
      if (to > from) {
        const up = [], down = [];
        for (let i = from; i < to; ++i) {
          up.push(`${xs[i].toFixed(1)} ${this.y(high[i]).toFixed(1)}`);
          down.unshift(`${xs[i].toFixed(1)} ${this.y(low[i]).toFixed(1)}`);
        }
        text += `M${up.join("L")}L${down.join("L")}Z`;
      }
      from = to + 1;
    };
    for (let i = 0; i < xs.length; ++i) if (!this.usable(low[i]) || !this.usable(high[i])) close(i);
    close(xs.length);
    return text;
  }

  drawSeries(series) {
    const xs = this.xs(series), said = series.mean.filter(isNumber).length, colour = series.colour;
    if (series.min && series.max)
      this.svg.append(shape("path", { class: "band", d: this.area(xs, series.min, series.max), style: `fill:${colour}`, "data-band": series.name }));
    const smooth = series.smooth && view.smoothing > 0;
    this.svg.append(shape("path", { class: smooth ? "curve raw" : "curve", d: this.path(xs, series.mean), style: `stroke:${colour}`,
      "data-series": series.name, "data-points": said }));
    if (smooth)
      this.svg.append(shape("path", { class: "curve", d: this.path(xs, smoothed(series.mean, view.smoothing)), style: `stroke:${colour}`,
        "data-smoothed": series.name }));
    if (series.dots || said === 1)
      series.mean.forEach((value, i) => {
        if (this.usable(value)) this.svg.append(shape("circle", { cx: xs[i].toFixed(1), cy: this.y(value).toFixed(1), r: 2.6, style: `fill:${colour}` }));
      });
    for (const [i, lost] of series.lost || [])  // at the foot, where no value is
      this.svg.append(shape("path", { class: "mark", d: `M${(xs[i] - 4).toFixed(1)} ${this.box.bottom}h8l-4 -8z`, style: "fill:var(--incident)",
        "data-lost": `${series.name} ${lost}` }));
  }

  drawStack() {
    const all = this.spec.series, xs = this.xs(all[0]);
    const totals = xs.map((_, i) => all.reduce((sum, series) => sum + (series.mean[i] || 0), 0));
    let below = xs.map(() => 0);
    for (const series of all) {
      const above = below.map((low, i) => (totals[i] > 0 ? Math.min(1, low + (series.mean[i] || 0) / totals[i]) : null));
      this.svg.append(shape("path", { d: this.area(xs, below, above), style: `fill:${series.colour};opacity:.8`,
        "data-series": series.name, "data-points": series.mean.filter(isNumber).length }));
      below = above.map((value, i) => (value === null ? below[i] : value));
    }
  }

  drawEvents() {
    const lines = {};
    for (const event of DATA.events) {
      const x = Math.max(this.box.left, Math.min(this.box.right, this.x(place(event.step))));  // one may be of the step after the last
      (lines[event.type] ||= []).push(x);
    }
    for (const [type, xs] of Object.entries(lines)) {
      const colour = EVENT_COLOURS[type] || "var(--faint)";
      const stroke = xs.map((x) => `M${x.toFixed(1)} ${this.box.top}V${this.box.bottom}`).join("");
      const heads = xs.map((x) => `M${(x - 4).toFixed(1)} ${this.box.top - 8}h8l-4 8z`).join("");
      this.svg.append(shape("path", { class: "event", d: stroke, style: `stroke:${colour}`, "data-events": type, "data-count": xs.length }),
        shape("path", { class: "mark", d: heads, style: `fill:${colour}` }));
    }
  }

  drawLegend() {
    this.legend.replaceChildren(...this.spec.series.map((series) => {
      const last = [...series.mean].reverse().find(isNumber);
      const text = this.spec.stacked ? `${series.name} ${series.total}` : `${series.name} ${this.spec.format(last)}`;
      return element("span", {}, element("i", { class: this.spec.stacked ? "box" : "", style: `background:${series.colour}` }), text);
    }));
  }

  point(event) {
    if (!this.svg) return;
    const frame = this.svg.getBoundingClientRect();
    const x = ((event.clientX - frame.left) / frame.width) * this.width;
    const first = this.spec.series[0];
    let at = 0, best = Infinity;
    this.xs(first).forEach((known, i) => { if (Math.abs(known - x) < best) { best = Math.abs(known - x); at = i; } });
    moveCursors(middles(first.axis)[at]);
    const lines = [[stepsText(first.axis, at) + (axisState.kind === "step" ? "" : `, ${axisText(place(middles(first.axis)[at]))}`)]];
    for (const series of this.spec.series) lines.push(...this.valueLines(series, x));
    for (const near of DATA.events) {
      if (Math.abs(this.x(place(near.step)) - x) > 5 || lines.length > 14) continue;
      lines.push([`${near.type} ${near.name} at step ${whole(near.step)}: ${near.what}`.slice(0, 200), undefined, EVENT_COLOURS[near.type]]);
    }
    tip.show(event.clientX, event.clientY, lines);
  }

  // The series' value nearest to the pointer: curves may have axes of their own.
  valueLines(series, x) {
    let at = -1, best = Infinity;
    this.xs(series).forEach((known, i) => {
      if (isNumber(series.mean[i]) && Math.abs(known - x) < best) { best = Math.abs(known - x); at = i; }
    });
    if (at < 0) return [];
    if (this.spec.stacked) return [[series.name, duration(series.mean[at]), series.colour]];
    const range = series.min && series.min[at] !== series.max[at] ? ` (${this.spec.format(series.min[at])} to ${this.spec.format(series.max[at])})` : "";
    const where = series.dots ? `${series.name}, ${stepsText(series.axis, at)}` : series.name;
    const lines = [[where, this.spec.format(series.mean[at]) + range, series.colour]];
    if (series.smooth && view.smoothing > 0) lines.push(["smoothed", this.spec.format(smoothed(series.mean, view.smoothing)[at]), series.colour]);
    return lines;
  }
}

function moveCursors(step) {
  for (const chart of view.charts) {
    if (!chart.svg) continue;
    chart.cursor.setAttribute("visibility", step === null ? "hidden" : "visible");
    if (step === null) continue;
    const x = chart.x(place(step));
    chart.cursor.setAttribute("x1", x);
    chart.cursor.setAttribute("x2", x);
  }
}

function drawAll() {
  for (const chart of view.charts) chart.draw();
}
