const { charts, datasets, titles, fields } = JSON.parse(document.getElementById("data").textContent);
const residuals = ["primal_residual", "dual_residual"];
const controls = document.getElementById("controls");

// A copy of a chart's specification in which X and Y are the chosen columns, on the chosen kinds of axes.
function chosen(spec, choice) {
  const visit = (node) => {
    if (Array.isArray(node)) return node.map(visit);
    if (node === null || typeof node !== "object") return typeof node === "string" ? rename(node) : node;
    const copy = Object.fromEntries(Object.entries(node).map(([key, value]) => [key, visit(value)]));
    for (const axis of ["x", "y"]) {
      const channel = copy[axis];
      if (!channel || typeof channel !== "object" || !channel.field) continue;
      const placed = node[axis].field === fields[axis];
      if (placed) channel.title = titles[choice[axis]];
      const logarithmic = axis === "x" ? placed && choice.logx : choice.logy && (placed || residuals.includes(channel.field));
      if (!logarithmic) continue;
      channel.scale = { type: "log", nice: axis === "y" };
      channel.axis = { ...channel.axis, tickCount: 8, format: axis === "y" ? ".0e" : "~s" };
    }
    return copy;
  };
  const rename = (text) => {
    if (text === fields.x) return choice.x;
    if (text === fields.y) return choice.y;
    return text.replaceAll(`['${fields.x}']`, `['${choice.x}']`).replaceAll(`['${fields.y}']`, `['${choice.y}']`);
  };
  return visit(spec);
}

// A logarithmic axis has no place for what is not positive.
function rows(choice) {
  const positive = (row, name) => (row[name] > 0 ? row[name] : null);
  return datasets.history.map((row) => {
    const copy = { ...row };
    if (choice.logx) copy[choice.x] = positive(row, choice.x);
    if (choice.logy) for (const name of [choice.y, ...residuals]) copy[name] = positive(row, name);
    return copy;
  });
}

async function draw() {
  const form = new FormData(controls);
  const choice = { x: form.get("x"), y: form.get("y"), logx: form.has("logx"), logy: form.has("logy") };
  const data = { history: rows(choice), strip: datasets.strip };
  const options = { actions: { export: true, source: false, compiled: false, editor: false }, renderer: "svg" };
  await Promise.all(
    Object.entries(charts).map(([id, spec]) =>
      vegaEmbed(`#${id}`, { ...chosen(spec, choice), datasets: data }, options),
    ),
  );
  document.body.dataset.drawn = Number(document.body.dataset.drawn ?? 0) + 1;
}

controls.addEventListener("change", (event) => {
  if (event.target.name === "y") controls.elements.logy.checked = event.target.value !== "objective";
  draw();
});
draw();

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) =>
    head.querySelector("button").addEventListener("click", () => {
      // Numbers start with the largest, names with the first.
      const down = column > 0 ? head.ariaSort !== "descending" : head.ariaSort === "ascending";
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const compare = (a, b) => {
        const [u, v] = [key(a), key(b)];
        if (u === "" || v === "") return (u === "") - (v === ""); // n/a comes last, whichever the order
        const numbers = Number(u) - Number(v);
        return (down ? -1 : 1) * (Number.isNaN(numbers) ? u.localeCompare(v) : numbers);
      };
      table.tBodies[0].append(...[...table.tBodies[0].rows].sort(compare));
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.ariaSort = down ? "descending" : "ascending";
    }),
  );
}

// On paper everything is open.
addEventListener("beforeprint", () => document.querySelectorAll("section > details").forEach((part) => (part.open = true)));
