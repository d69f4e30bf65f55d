// Puts the page together: summary, charts, FP8, tables.
function series(name, key, colour, more) {
  const found = DATA.steps.series[key];
  return found ? [{ name, colour, axis: DATA.steps, mean: found.mean, min: found.min, max: found.max, lost: found.lost, ...more }] : [];
}

function tile(name, value, below, level) {
  return element("div", { class: `tile ${level || ""}`, "data-tile": name }, element("div", { class: "k" }, name),
    element("div", { class: "v" }, value), element("div", { class: "s" }, below || ""));
}

function stateWord(status) {
  if (status === "done") return ["done", "", ""];
  if (status === "running") return ["running", "at the time of this page", ""];
  if (status.startsWith("stopped")) return ["stopped", status, "look"];
  return status === "" ? ["unknown", "no receipt", "look"] : ["ended", status.slice(0, 120), "bad"];
}

function summaryTiles() {
  const s = DATA.summary, time = s.time, total = time.useful + time.wait + time.skipped + time.outside;
  const [word, words, level] = stateWord(s.status);
  const tiles = [tile("state", word, words, level),
    tile("steps", whole(s.step), s.maxSteps > 0 ? `of ${whole(s.maxSteps)}` : "", s.status === "done" && s.step < s.maxSteps ? "look" : ""),
    tile("tokens", count(s.tokens), `${count(s.speed)} tokens/s`),
    tile("time", duration(total), total > 0 ? `${percent(time.useful / total)} in training steps` : ""),
    s.best ? tile("best validation loss", plain(s.best.loss, 5), `at step ${whole(s.best.step)}`)
           : tile("last loss", plain(s.lastLoss, 5), "no evaluation")];
  const fp8 = s.fp8Share > 0;
  tiles.push(tile("FLOPs in FP8", isNumber(s.fp8Share) ? percent(s.fp8Share) : "–",
    fp8 ? [s.fp8.recipe, s.fp8.format, s.fp8.execution].filter(Boolean).join(", ") : s.precision));
  if (s.peakBytes > 0) tiles.push(tile("peak memory", bytes(s.peakBytes), s.device));
  tiles.push(tile("incidents", whole(s.incidents), `${several(s.skipped, "step", "steps")} skipped, ${several(s.restarts, "restart", "restarts")}`, s.incidents > 0 ? "look" : ""),
    tile("red flags", whole(s.flags), "", s.flags > 0 ? "look" : ""));
  return element("div", { class: "tiles" }, ...tiles);
}

function banner() {
  const word = { good: "Healthy", look: "Have a look", bad: "Not healthy" }[DATA.level];
  const box = element("div", { class: `banner ${DATA.level}`, "data-level": DATA.level }, element("b", {}, word));
  if (DATA.findings.length === 0) box.append("no incident, no red flag, every loss finite");
  for (const [, text, target] of DATA.findings.slice(0, 12)) box.append(element("a", { href: `#${target}` }, text));
  return box;
}

function header() {
  const s = DATA.summary;
  const facts = [s.model, s.parameters > 0 ? `${count(s.parameters)} parameters` : "", s.precision, s.device].filter(Boolean);
  return element("header", {}, element("p", { class: "small faint" }, "octavo run"), element("h1", {}, DATA.name), element("p", { class: "faint" }, facts.join(" · ")));
}

function controls() {
  const kinds = [["step", "step"]];
  if (knownPositions("tokens")) kinds.push(["tokens", "tokens"]);
  if (knownPositions("time")) kinds.push(["time", "time"]);
  const range = element("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: view.smoothing, "aria-label": "smoothing", oninput: () => {
    view.smoothing = Number(range.value);
    drawAll();
  } });
  const legend = [...new Set(DATA.events.map((event) => event.type))].map((type) =>
    element("span", {}, element("span", { class: "dot", style: `background:${EVENT_COLOURS[type] || "var(--faint)"}` }), type));
  return element("div", { class: "controls bar" }, element("label", {}, "x axis ", choice(kinds, "step", (kind) => { chooseAxis(kind); drawAll(); })),
    element("label", {}, "smoothing ", range), ...legend);
}

// Sums over `size` buckets in a row: shares of single steps would only flicker.
function joined(values, size) {
  const sums = [];
  for (let i = 0; i < values.length; i += size) sums.push(values.slice(i, i + size).reduce((sum, value) => sum + (value || 0), 0));
  return sums;
}

function timeChart() {
  const all = DATA.steps.series, time = DATA.summary.time, steps = DATA.steps;
  if (!all.seconds) return null;
  const size = Math.ceil(STEPS.length / 60), every = (values) => values.filter((_, i) => i % size === 0);
  const lasts = (steps.last || steps.first).filter((_, i, whole) => i % size === size - 1 || i === whole.length - 1);
  const axis = { first: every(steps.first), last: lasts };
  const total = time.useful + time.wait + time.skipped + time.outside;
  const part = (name, colour, values, seconds) => ({ name, colour, axis, mean: joined(values, size), total: total > 0 ? percent(seconds / total) : "" });
  const at = (key, i) => (all[key] && all[key].mean[i]) || 0;
  const of = (value) => all.seconds.mean.map((seconds, i) => (isNumber(seconds) ? Math.max(0, value(seconds, i)) : null));
  return new LineChart({ id: "time", title: "Where time went", stacked: true, format: (share) => percent(share), series: [
    part("training", "var(--c2)", of((seconds, i) => seconds - at("wait", i) - at("skipped", i)), time.useful),
    part("waiting for data", "var(--c1)", of((_, i) => at("wait", i)), time.wait),
    part("skipped steps", "var(--incident)", of((_, i) => at("skipped", i)), time.skipped),
    part("evaluation, saving, start", "var(--mute)", of((_, i) => at("outside", i)), time.outside)] });
}

function charts() {
  const val = DATA.evaluations.series.val;
  const loss = [...series("training", "loss", "var(--c0)", { smooth: true })];
  if (DATA.evaluations.first.length > 0)
    loss.push({ name: "validation", colour: "var(--c1)", axis: DATA.evaluations, mean: val.mean, min: val.min, max: val.max, lost: val.lost, dots: val.mean.length <= 150 });
  const made = [
    new LineChart({ id: "loss", title: "Loss", wide: true, height: 320, format: (value) => plain(value, 5), series: loss }),
    new LineChart({ id: "lr", title: "Learning rate", fromZero: true, format: (value) => plain(value, 3), series: series("learning rate", "lr", "var(--c0)") }),
    new LineChart({ id: "grad", title: "Gradient norm", log: true, format: (value) => plain(value, 3), series: series("norm", "grad", "var(--c3)", { smooth: true }) }),
    new LineChart({ id: "speed", title: "Tokens per second", fromZero: true, format: count, series: series("tokens/s", "speed", "var(--c2)", { smooth: true }) }),
    timeChart(),
    new LineChart({ id: "memory", title: "Memory", fromZero: true, format: bytes, ticks: byteTicks,
      series: [...series("peak so far", "peak", "var(--c0)"), ...series("kept after a step", "kept", "var(--c1)")] })];
  if (DATA.steps.series.mfu) made.push(new LineChart({ id: "mfu", title: "Model FLOPs utilization", fromZero: true, format: (value) => percent(value), series: series("MFU", "mfu", "var(--c4)", { smooth: true }) }));
  if (DATA.steps.series.slowest)
    made.push(new LineChart({ id: "ranks", title: "Slowest rank's own work", fromZero: true, format: duration, series: series("seconds", "slowest", "var(--c4)", { smooth: true }) }));
  return made.filter((chart) => chart && chart.spec.series.length > 0);
}

function fp8Section() {
  if (!DATA.tensors)
    return section("fp8", "FP8 health", element("p", { class: "faint" }, DATA.summary.fp8Share > 0
      ? "No step took statistics; fp8_stats_freq says how often." : "Nothing ran in FP8."));
  const scales = scalesChart(), heat = new HeatMap((layer) => scales.pick(layer));
  return section("fp8", "FP8 health", element("div", { class: "charts" }, heat.figure, scales.figure));
}

// Nothing of a model without experts.
function expertsSection() {
  const all = DATA.steps.series;
  if (!all.fullest) return [];
  const made = [
    new LineChart({ id: "experts", title: "Share of a layer's tokens that went through one expert", fromZero: true, format: (value) => percent(value),
      series: [...series("fullest expert", "fullest", "var(--c0)", { smooth: true }), ...series("emptiest expert", "emptiest", "var(--c1)", { smooth: true })] }),
    new LineChart({ id: "idle-experts", title: "Experts without a token, of all layers", fromZero: true, format: (value) => plain(value, 4), series: series("experts", "idleExperts", "var(--c3)") }),
    new LineChart({ id: "balance", title: "Balance loss", format: (value) => plain(value, 4), series: series("balance loss", "balance", "var(--c2)", { smooth: true }) })];
  return [section("experts", "Load of the experts", element("div", { class: "charts" }, ...made.filter((chart) => chart.spec.series.length > 0).map((chart) => chart.figure)))];
}

function build() {
  const page = document.getElementById("page");
  const made = charts();
  page.replaceChildren(header(), banner(), summaryTiles(), controls(),
    section("loss", "Curves", element("div", { class: "charts" }, ...made.map((chart) => chart.figure))),
    ...expertsSection(), fp8Section(), eventsSection(), receiptSection(), samplesSection(), configSection(), notesSection());
  drawAll();
  let waiting = 0, width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(drawAll);
  });
  document.documentElement.dataset.drawnAfterMs = Math.round(performance.now());
}

build();
