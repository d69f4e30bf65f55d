// FP8 health: one row for each quantized tensor, one column for each look at it, and scale histories below.
const NOTHING = -32768;
const UNPACK = {
  sqnr: (bits) => bits / 100,
  underflow: (bits) => 100 * (bits / 32767) ** 2,
  saturation: (bits) => 100 * (bits / 32767) ** 2,
  scale: (bits) => 2 ** (bits / 200),
  amax: (bits) => 2 ** (bits / 200),
};

function unpackMatrix(name, kind) {
  const packed = DATA.tensors.fields[name][kind] || DATA.tensors.fields[name].mean;
  const raw = atob(packed), values = new Float64Array(raw.length / 2);
  for (let i = 0; i < values.length; ++i) {
    const bits = ((raw.charCodeAt(2 * i) | (raw.charCodeAt(2 * i + 1) << 8)) << 16) >> 16;
    values[i] = bits === NOTHING ? NaN : UNPACK[name](bits);
  }
  return values;
}

// Colours between stops: calm where healthy, orange at the limit, dark red far beyond it.
const HEAT = {
  sqnr: { title: "SQNR", unit: " dB", worst: "min", stops: (limit) => [[0, "7f0f1a"], [limit, "e8702a"], [limit * 2, "f6dc8c"], [limit * 3, "5aa9a4"], [limit * 4.5, "2b6f8f"]] },
  underflow: { title: "Underflow", unit: "%", worst: "max", stops: (limit) => [[0, "2b6f8f"], [limit / 20, "5aa9a4"], [limit / 3, "f6dc8c"], [limit, "e8702a"], [2 * limit, "7f0f1a"]] },
  saturation: { title: "Saturation", unit: "%", worst: "max", stops: (limit) => [[0, "2b6f8f"], [limit / 50, "5aa9a4"], [limit / 5, "f6dc8c"], [limit, "e8702a"], [10 * limit, "7f0f1a"]] },
};

function colourAt(stops, value) {
  const parts = (hex) => [0, 2, 4].map((at) => parseInt(hex.slice(at, at + 2), 16));
  if (value <= stops[0][0]) return parts(stops[0][1]);
  for (let i = 1; i < stops.length; ++i) {
    if (value > stops[i][0]) continue;
    const share = (value - stops[i - 1][0]) / (stops[i][0] - stops[i - 1][0]);
    const from = parts(stops[i - 1][1]), to = parts(stops[i][1]);
    return from.map((part, at) => Math.round(part + share * (to[at] - part)));
  }
  return parts(stops[stops.length - 1][1]);
}

class HeatMap {
  constructor(onPick) {
    this.data = DATA.tensors;
    this.kind = "sqnr";
    this.only = "all";
    this.onPick = onPick;
    this.columns = this.data.first.length;
    this.canvas = element("canvas", { "data-heat": "" });
    this.plot = element("div", { class: "heat plot" });
    this.key = element("span", { class: "legend" });
    const kinds = [...new Set(this.data.rows.map((row) => row.tensor))].slice(0, 8);
    this.figure = element("figure", { class: "wide", "data-chart": "heat", id: "chart-heat" },
      element("figcaption", {}, element("h3", {}, "Health of every FP8 tensor over the run"),
        element("span", { class: "controls" },
          choice(Object.keys(HEAT).map((kind) => [kind, HEAT[kind].title]), "sqnr", (kind) => { this.kind = kind; this.draw(); }),
          choice([["all", "all tensors"], ...kinds.map((kind) => [kind, kind])], "all", (kind) => { this.only = kind; this.draw(); })),
        this.key),
      this.plot,
      element("p", { class: "small faint" }, `A cell shows the worst of its steps${this.data.width > 1 ? ` (${this.data.width} looks)` : ""}; hover for least, mean and most, click for the layer's scales below.`));
    this.plot.addEventListener("pointermove", (event) => this.point(event));
    this.plot.addEventListener("pointerleave", () => tip.hide());
    this.plot.addEventListener("click", (event) => { const at = this.cellAt(event); if (at) this.onPick(this.data.rows[at.row].layer); });
    view.charts.push(this);
  }

  rowName(row) { return `${this.data.rows[row].layer} ${this.data.rows[row].tensor}`; }

  draw() {
    const heat = HEAT[this.kind], stops = heat.stops(this.data.limits[this.kind]);
    this.rows = this.data.rows.map((_, i) => i).filter((i) => this.only === "all" || this.data.rows[i].tensor === this.only);
    this.values = { min: unpackMatrix(this.kind, "min"), mean: unpackMatrix(this.kind, "mean"), max: unpackMatrix(this.kind, "max") };
    const width = Math.max(260, this.plot.clientWidth || 900), left = width < 560 ? 90 : 210;
    const size = Math.max(2, Math.min(15, Math.floor(640 / Math.max(1, this.rows.length))));
    this.box = { left, top: 12, width: width - left - 12, height: size * this.rows.length, size };
    this.paint(heat, stops);
    Object.assign(this.canvas.style, { left: `${left}px`, top: `${this.box.top}px`, width: `${this.box.width}px`, height: `${this.box.height}px` });
    this.plot.replaceChildren(this.labels(width), this.canvas);
    const ends = stops.map(([value, colour], i) => `#${colour} ${(100 * i) / (stops.length - 1)}%`).join(",");
    this.key.replaceChildren(element("span", {}, `${plain(stops[0][0])}${heat.unit}`,
      element("i", { class: "scale", style: `background:linear-gradient(90deg,${ends});width:180px;height:10px;margin:0 6px` }),
      `${plain(stops[stops.length - 1][0])}${heat.unit}, orange at the limit of ${plain(this.data.limits[this.kind])}${heat.unit}`));
  }

  paint(heat, stops) {
    const canvas = this.canvas, worst = this.values[heat.worst];
    canvas.width = this.columns;
    canvas.height = Math.max(1, this.rows.length);
    const context = canvas.getContext("2d"), image = context.createImageData(canvas.width, canvas.height);
    let drawn = 0;
    this.rows.forEach((row, y) => {
      for (let x = 0; x < this.columns; ++x) {
        const value = worst[row * this.columns + x], at = 4 * (y * this.columns + x);
        if (Number.isNaN(value)) continue;
        const [red, green, blue] = colourAt(stops, value);
        image.data.set([red, green, blue, 255], at);
        ++drawn;
      }
    });
    context.putImageData(image, 0, 0);
    Object.assign(canvas.dataset, { rows: this.rows.length, columns: this.columns, cells: drawn, kind: this.kind });
  }

  labels(width) {
    const box = this.box, height = box.top + box.height + 24;
    const svg = shape("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `FP8 ${HEAT[this.kind].title} of ${this.rows.length} tensors` });
    const every = Math.ceil(13 / box.size), room = Math.floor((box.left - 10) / 6.1);
    this.rows.forEach((row, y) => {
      if (y % every !== 0) return;
      const name = this.rowName(row), text = name.length > room ? `…${name.slice(name.length - room + 1)}` : name;
      svg.append(shape("text", { x: box.left - 6, y: box.top + (y + 0.5) * box.size + 4, "text-anchor": "end" }, text));
    });
    const wanted = Math.max(2, Math.floor(box.width / 110));
    for (let i = 0; i <= wanted && this.columns > 0; ++i) {
      const column = Math.min(this.columns - 1, Math.round((i * (this.columns - 1)) / wanted));
      if (i > 0 && column === Math.min(this.columns - 1, Math.round(((i - 1) * (this.columns - 1)) / wanted))) continue;
      svg.append(shape("text", { x: box.left + ((column + 0.5) * box.width) / this.columns, y: height - 7, "text-anchor": "middle" }, plain(this.data.first[column], 7)));
    }
    this.marks(svg);
    return svg;
  }

  // Events stand above the first column that looked at or after their step.
  marks(svg) {
    for (const event of DATA.events) {
      const column = this.data.first.findIndex((first, i) => (this.data.last ? this.data.last[i] : first) >= event.step);
      if (column < 0) continue;
      const x = this.box.left + ((column + 0.5) * this.box.width) / this.columns;
      svg.append(shape("path", { class: "mark", d: `M${(x - 4).toFixed(1)} 2h8l-4 8z`, style: `fill:${EVENT_COLOURS[event.type] || "var(--faint)"}` }));
    }
  }

  cellAt(event) {
    const frame = this.canvas.getBoundingClientRect();
    const column = Math.floor(((event.clientX - frame.left) / frame.width) * this.columns);
    const y = Math.floor(((event.clientY - frame.top) / frame.height) * this.rows.length);
    if (column < 0 || column >= this.columns || y < 0 || y >= this.rows.length) return null;
    return { row: this.rows[y], column };
  }

  point(event) {
    const at = this.cellAt(event);
    if (!at) return tip.hide();
    const heat = HEAT[this.kind], cell = at.row * this.columns + at.column, row = this.data.rows[at.row];
    const text = (kind) => `${plain(this.values[kind][cell], 3)}${heat.unit}`;
    const lines = [[this.rowName(at.row)], [stepsText(this.data, at.column)]];
    lines.push([heat.title, Number.isNaN(this.values.mean[cell]) ? "no number" : this.data.width > 1 ? `${text("min")} / ${text("mean")} / ${text("max")}` : text("mean")]);
    if (row.troubles > 0) lines.push([`in trouble ${whole(row.troubles)} times, last at step ${whole(row.troubleStep)}: ${row.trouble}`]);
    tip.show(event.clientX, event.clientY, lines);
  }
}

// Scales (or amaxes) of a layer's tensors; "" is the geometric mean over all.
function scaleSeries(layer, field) {
  const colours = ["var(--c0)", "var(--c1)", "var(--c2)", "var(--c3)", "var(--c4)"], steps = DATA.steps;
  if (layer === "") {
    return [["forward", "fwdScale"], ["backward", "bwdScale"]].filter(([, name]) => steps.series[name]).map(([name, key], i) => {
      // Only steps with statistics have one: others would be gaps.
      const keep = steps.series[key].mean.map((value, at) => (isNumber(value) ? at : -1)).filter((at) => at >= 0);
      const pick = (values) => values && keep.map((at) => values[at]);
      return { name, colour: colours[i], axis: { first: pick(steps.first), last: pick(steps.last) }, mean: pick(steps.series[key].mean),
               min: pick(steps.series[key].min), max: pick(steps.series[key].max) };
    });
  }
  const data = DATA.tensors, columns = data.first.length, series = [];
  const matrix = { mean: unpackMatrix(field, "mean"), min: unpackMatrix(field, "min"), max: unpackMatrix(field, "max") };
  data.rows.forEach((row, at) => {
    if (row.layer !== layer || series.length >= colours.length) return;
    const pick = (kind) => Array.from(matrix[kind].subarray(at * columns, (at + 1) * columns));
    series.push({ name: row.tensor, colour: colours[series.length], axis: data, mean: pick("mean"),
                  min: data.width > 1 ? pick("min") : undefined, max: data.width > 1 ? pick("max") : undefined });
  });
  return series;
}

function scalesChart() {
  const state = { layer: "", field: "scale" };
  const layers = [...new Set(DATA.tensors.rows.map((row) => row.layer))];
  const chart = new LineChart({ id: "scales", title: "Scale histories", wide: true, log: true, fixedScale: true, height: 230,
    format: (value) => plain(value, 4), series: scaleSeries("", "scale") });
  const update = () => chart.setSeries(scaleSeries(state.layer, state.field));
  const select = element("select", { "aria-label": "layer", onchange: () => { state.layer = select.value; update(); } },
    element("option", { value: "" }, "all layers (geometric mean)"), ...layers.map((layer) => element("option", { value: layer }, layer)));
  chart.figure.querySelector("figcaption").append(element("span", { class: "controls" }, select,
    choice([["scale", "scale"], ["amax", "amax"]], "scale", (field) => {
      state.field = field;
      if (state.layer === "" && field === "amax") select.value = state.layer = layers[0];
      update();
    })));
  chart.pick = (layer) => { select.value = state.layer = layer; update(); chart.figure.scrollIntoView({ block: "nearest" }); };
  return chart;
}
