// Elements, numbers and the axis that all charts share. Text of a run only ever becomes textContent.
const DATA = JSON.parse(document.getElementById("run-data").textContent);

function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {}))
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== null && value !== false) made.setAttribute(name, value);
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function shape(tag, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

function plain(value, digits = 4) {
  if (!isNumber(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(Math.min(digits - 1, 3)).replace(/\.?0*e\+?/, "e");
  return String(Number(value.toPrecision(digits)));
}

function count(value) {
  if (!isNumber(value)) return "–";
  for (const [size, letter] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "k"]])
    if (Math.abs(value) >= size) return plain(value / size, 4) + letter;
  return plain(value, 4);
}

const whole = (value) => (isNumber(value) ? Math.round(value).toLocaleString("en") : "–");

function bytes(value) {
  if (!isNumber(value)) return "–";
  for (const [size, name] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]])
    if (value >= size) return `${plain(value / size, 3)} ${name}`;
  return `${plain(value, 3)} B`;
}

function duration(seconds) {
  if (!isNumber(seconds)) return "–";
  const pad = (value) => String(Math.floor(value)).padStart(2, "0");
  if (seconds < 60) return `${plain(seconds, 3)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m ${pad(seconds % 60)} s`;
  if (seconds < 86400 * 2) return `${Math.floor(seconds / 3600)} h ${pad((seconds % 3600) / 60)} m`;
  return `${plain(seconds / 86400, 3)} days`;
}

const percent = (share, digits = 3) => (!isNumber(share) ? "–" : share > 0 && share < 1e-4 ? "<0.01%" : `${plain(100 * share, digits)}%`);

// The x axis: steps, tokens or time of all charts together. Curves are known at the middles of buckets.
const middles = (axis) => axis.first.map((first, i) => (first + (axis.last ? axis.last[i] : first)) / 2);
const STEPS = middles(DATA.steps);

// null: the records do not tell, or not in order.
function knownPositions(kind) {
  const series = DATA.steps.series;
  let positions = (series.tokens && series.tokens.mean) || [];
  if (kind === "time") {
    let before = 0;
    positions = ((series.seconds && series.seconds.mean) || []).map((seconds, i) => {
      const spent = (seconds || 0) + ((series.outside && series.outside.mean[i]) || 0);
      before += spent;
      return before - spent / 2;
    });
  }
  const usable = (value, i) => isNumber(value) && Math.abs(value) < 1e300 && (i === 0 || value >= positions[i - 1]);
  return positions.length > 0 && positions.every(usable) ? positions : null;
}

const axisState = { kind: "step", positions: null };

function chooseAxis(kind) {
  axisState.kind = kind;
  axisState.positions = kind === "step" ? null : knownPositions(kind);
}

// A step's place on the axis: between the two buckets around it.
function place(step) {
  const known = axisState.positions;
  if (!known || STEPS.length === 0) return step;
  let low = 0, high = STEPS.length - 1;
  if (step <= STEPS[0]) return known[0] * (STEPS[0] > 0 ? step / STEPS[0] : 1);
  if (step >= STEPS[high]) return known[high];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (STEPS[middle] <= step) low = middle;
    else high = middle;
  }
  const part = (step - STEPS[low]) / (STEPS[high] - STEPS[low] || 1);
  return known[low] + part * (known[high] - known[low]);
}

function axisText(value) {
  if (axisState.kind === "tokens") return count(value);
  return axisState.kind === "time" ? duration(value) : Math.abs(value) >= 1e5 ? count(value) : plain(value, 6);
}

// Round marks between two numbers.
function ticks(low, high, wanted) {
  const range = high - low;
  if (!(range > 0) || !Number.isFinite(range)) return [low];
  const rough = range / Math.max(1, wanted), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough) || rough;
  const marks = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && marks.length < 50; ++i) marks.push(i * step);
  return marks;
}

// 1, 2 and 5 of every power of ten, or the powers alone when these are many.
function logTicks(low, high) {
  const begin = Math.floor(Math.log10(low)), end = Math.ceil(Math.log10(high)), marks = [];
  const every = Math.max(1, Math.ceil((end - begin) / 6));
  for (let power = begin; power <= end; power += every)
    for (const factor of end - begin <= 2 ? [1, 2, 5] : [1]) marks.push(factor * 10 ** power);
  const inside = marks.filter((mark) => mark >= low && mark <= high);
  return inside.length > 1 ? inside : ticks(low, high, 4).filter((mark) => mark > 0);
}

// At round numbers of KiB, MiB, GiB.
function byteTicks(low, high) {
  const unit = 1024 ** Math.max(0, Math.floor(Math.log2(Math.max(1, high)) / 10));
  return ticks(low / unit, high / unit, 4).map((mark) => mark * unit);
}

const several = (number, one, many) => `${whole(number)} ${number === 1 ? one : many}`;

function stepsText(axis, i) {
  const first = axis.first[i], last = axis.last ? axis.last[i] : first;
  return first === last ? `step ${whole(first)}` : `steps ${whole(first)}–${whole(last)}`;
}

// What the pointer is at, beside it.
const tip = {
  box: document.getElementById("tip"),
  show(x, y, lines) {
    this.box.replaceChildren(...lines.map(([name, value, colour]) => {
      const row = element("div", {});
      if (colour) row.append(element("span", { class: "dot", style: `background:${colour}` }));
      row.append(name, value === undefined ? "" : " ", element("b", {}, value === undefined ? "" : value));
      return row;
    }));
    this.box.hidden = false;
    const width = this.box.offsetWidth, height = this.box.offsetHeight;
    this.box.style.left = `${Math.max(4, x + 16 + width > innerWidth ? x - width - 12 : x + 16)}px`;
    this.box.style.top = `${Math.max(4, Math.min(y + 12, innerHeight - height - 4))}px`;
  },
  hide() { this.box.hidden = true; },
};

function choice(names, chosen, act) {
  const box = element("span", { class: "choice", role: "group" });
  for (const [value, text] of names)
    box.append(element("button", { type: "button", "data-value": value, "aria-pressed": String(value === chosen), onclick: () => {
      for (const other of box.children) other.setAttribute("aria-pressed", String(other.dataset.value === value));
      act(value);
    } }, text));
  return box;
}
