// What is read rather than drawn: the receipt, events, samples, settings, notes.
function table(id, heads, rows) {
  const numeric = heads.map((head) => head.startsWith("#"));
  const cell = (tag, value, i) => element(tag, { class: numeric[i] ? "n" : "" }, value instanceof Node ? value : String(value));
  return element("div", { class: "table" }, element("table", { "data-table": id, "data-rows": rows.length },
    element("thead", {}, element("tr", {}, ...heads.map((head, i) => cell("th", head.replace(/^#/, ""), i)))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((value, i) => cell("td", value, i)))))));
}

function folded(title, ...children) {
  return element("details", {}, element("summary", {}, title), ...children);
}

function section(id, title, ...children) {
  return element("section", { id }, element("h2", {}, title), ...children);
}

function shareBar(share, fp8) {
  return element("span", {}, element("span", { class: fp8 ? "share" : "share other", style: `width:${Math.min(90, Math.max(0, 90 * share)) || 0}px` }), percent(share));
}

function gemmTable(id, rows) {
  return table(id, ["layer", "GEMM", "precision", "recipe", "share of FLOPs", "#in FP8", "#other", "why not FP8"],
    rows.map(([layer, gemm, precision, recipe, share, fp8, other, reason]) =>
      [layer, gemm, precision, recipe || "–", shareBar(share, recipe !== ""), whole(fp8), whole(other), reason]));
}

function receiptSection() {
  const receipt = DATA.receipt, parts = [];
  if (receipt.groups.length > 0) parts.push(gemmTable("gemms", receipt.groups));
  if (receipt.gemms.length > 0) {
    const cut = receipt.gemms.length < receipt.gemmsTotal ? `, the first ${receipt.gemms.length}` : "";
    parts.push(folded(`all ${whole(receipt.gemmsTotal)} GEMMs${cut}`, gemmTable("all-gemms", receipt.gemms)));
  }
  if (receipt.operations.length > 0)
    parts.push(folded("operations: what ran, and what refused", table("operations", ["operation", "ran", "refused"], receipt.operations)));
  if (receipt.rest !== "{}") parts.push(folded("the rest of receipt.json", element("pre", {}, receipt.rest)));
  return section("receipt", "Receipt: what really ran", ...(parts.length > 0 ? parts : [element("p", { class: "faint" }, "The run has no receipt.")]));
}

function eventsSection() {
  const rows = DATA.events.map((event) => [whole(event.step),
    element("span", { class: "key" }, element("span", { class: "dot", style: `background:${EVENT_COLOURS[event.type] || "var(--faint)"}` }), event.type),
    element("span", { class: event.name.length <= 32 ? "key" : "" }, event.name), event.what, event.action]);
  const parts = rows.length > 0 ? [table("events", ["#step", "what", "kind", "seen", "done, or remedy"], rows)]
    : [element("p", { class: "faint" }, "None: no incident, no restart, no red flag, no fallback to BF16.")];
  if (DATA.eventsLeftOut > 0) parts.push(element("p", { class: "small faint" }, `${whole(DATA.eventsLeftOut)} more are in incidents.jsonl and metrics.jsonl.`));
  return section("events", "Incidents, restarts and red flags", ...parts);
}

function samplesSection() {
  if (DATA.samples.length === 0) return section("samples", "Samples", element("p", { class: "faint" }, "The run wrote none; sample_freq asks for them."));
  const last = DATA.samples.length - 1;
  return section("samples", "Samples", ...DATA.samples.map((sample, i) => {
    const box = folded(`step ${whole(sample.step)}`, element("pre", { "data-sample": sample.step }, sample.text + (sample.cut ? "\n… (cut)" : "")));
    box.open = i === last;
    return box;
  }).reverse());
}

function configSection() {
  const { changed, same } = DATA.config;
  if (changed.length + same.length === 0) return section("config", "Settings", element("p", { class: "faint" }, "config.yaml cannot be used; the notes below say why."));
  return section("config", "Settings that differ from the defaults",
    table("config", ["key", "value", "default", "meaning"], changed.map(([key, value, usual, help]) => [element("code", { class: "key" }, key), element("code", {}, value), element("code", {}, usual), help])),
    folded(`${same.length} keys as by default`, table("defaults", ["key", "value"], same.map(([key, value]) => [element("code", {}, key), element("code", {}, value)]))));
}

function notesSection() {
  const notes = [], steps = DATA.steps, tensors = DATA.tensors;
  notes.push(steps.width > 1
    ? `Curves: ${whole(steps.records)} steps are drawn as ${whole(steps.first.length)} points. A point is the mean of ${whole(steps.width)} steps in a row, the band around it their least and most; nothing is left out of these three.`
    : `Curves: every one of ${whole(steps.records)} steps is drawn.`);
  if (tensors)
    notes.push(tensors.width > 1
      ? `FP8: ${whole(tensors.records)} steps with statistics are ${whole(tensors.first.length)} columns of ${whole(tensors.width)} in a row, each with least, mean and most. Numbers are rounded: SQNR to 0.01 dB, percentages to 0.003 of a point, scales to 0.4%.`
      : `FP8: all ${whole(tensors.records)} steps with statistics (fp8_stats_freq) are drawn, rounded: SQNR to 0.01 dB, percentages to 0.003 of a point, scales to 0.4%.`);
  if (DATA.evaluations.width > 1) notes.push(`Validation: points are means of ${whole(DATA.evaluations.width)} evaluations in a row.`);
  notes.push("Time is the sum of the steps and of what lay between them, as goodput tells; the time between a stop and a restart is not known.");
  const list = [...notes, ...DATA.remarks].map((note) => element("li", {}, note));
  return section("notes", "About this page", element("ul", { class: "small faint", "data-notes": list.length }, ...list));
}
