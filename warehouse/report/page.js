const { charts, run } = JSON.parse(document.getElementById("data").textContent);

// ---- charts: light or dark as the page is, light on paper ----

const dark = window.matchMedia("(prefers-color-scheme: dark)");

// The policy of the page allows no code made from text, and no style but its own.
const options = {
  renderer: "svg",
  actions: false,
  ast: true,
  defaultStyle: false,
  tooltip: { disableDefaultStyle: true },
};

async function draw(theme) {
  for (const [name, specs] of Object.entries(charts)) {
    const place = document.getElementById(`chart-${name}`);
    if (place) await window.vegaEmbed(place, specs[theme], options);
  }
  document.documentElement.dataset.drawn = theme;
}

const fitting = () => draw(dark.matches ? "dark" : "light");
dark.addEventListener("change", fitting);
const folded = [...document.querySelectorAll("details:not([open])")];
window.addEventListener("beforeprint", () => {
  for (const part of folded) part.open = true; // paper has no clicks
  draw("light");
});
window.addEventListener("afterprint", () => {
  for (const part of folded) part.open = false;
  fitting();
});
fitting();

// ---- tables: a heading sorts, a second click turns the order ----

const valueOf = (row, place) => {
  const cell = row.cells[place];
  return cell.dataset.value === undefined ? cell.textContent : Number(cell.dataset.value);
};
const compare = (a, b) => {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a === "number") return -1; // a missing figure comes last
  if (typeof b === "number") return 1;
  return a.localeCompare(b, "en", { numeric: true });
};

for (const table of document.querySelectorAll("table.sortable")) {
  const body = table.tBodies[0];
  [...table.tHead.rows[0].cells].forEach((heading, place) => {
    heading.firstChild.addEventListener("click", () => {
      const sign = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      const rows = [...body.rows];
      rows.sort((a, b) => sign * compare(valueOf(a, place), valueOf(b, place)));
      body.append(...rows);
    });
  });
}

// ---- the filter of layouts: every word must be a word of the layout ----

const filter = document.getElementById("filter");
const shown = document.getElementById("shown");
function apply() {
  const wanted = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = [...document.querySelectorAll("#near tbody tr")];
  let count = 0;
  for (const row of rows) {
    const words = row.cells[1].textContent.toLowerCase().split(/\s+/);
    row.hidden = !wanted.every((word) => words.some((own) => own.startsWith(word)));
    count += row.hidden ? 0 : 1;
  }
  shown.textContent = wanted.length ? `${count} of ${rows.length}` : "";
}
filter.addEventListener("input", apply);

// ---- price, power and goodput: dollars, days and energy from the GPU-hours of the plan ----

const form = document.getElementById("terms");
if (form) {
  const number = (value, digits = 4) =>
    value.toLocaleString("en-US", { maximumSignificantDigits: digits });
  const results = document.getElementById("results");
  // A slider rounds to its steps: until it is moved, its value is that of the plan.
  const inputs = [...form.querySelectorAll("input")];
  const first = new Map(inputs.map((input) => [input, input.value]));
  const chosen = (input) =>
    Number(input.value === first.get(input) ? input.defaultValue : input.value);
  const compute = () => {
    const term = Object.fromEntries(inputs.map((input) => [input.name, chosen(input)]));
    const hours = (run.gpu_hours * run.goodput) / term.goodput;
    const found = {
      "Days": number(hours / run.num_gpus / 24),
      "GPU-hours": number(hours),
    };
    if (term.price !== undefined) found["Rent, USD"] = number(hours * term.price);
    if (term.watts !== undefined) {
      const kwh = (hours * term.watts * term.pue) / 1000;
      found["Energy, MWh"] = number(kwh / 1000);
      found["Electricity, USD"] = number(kwh * term.electricity);
      if (term.carbon !== undefined) found["CO2e, t"] = number((kwh * term.carbon) / 1000);
    }
    results.replaceChildren(
      ...Object.entries(found).map(([name, value]) => {
        const pair = document.createElement("div");
        const label = document.createElement("dt");
        const figure = document.createElement("dd");
        label.textContent = name;
        figure.textContent = value;
        pair.append(label, figure);
        return pair;
      }),
    );
    for (const input of inputs) input.nextElementSibling.textContent = number(chosen(input));
  };
  form.addEventListener("input", compute);
  form.addEventListener("reset", () => setTimeout(compute));
  compute();
}

// ---- a launch file to copy: where a page has no clipboard, its text is selected ----

for (const button of document.querySelectorAll("button.copy")) {
  button.addEventListener("click", async () => {
    const code = button.nextElementSibling;
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
    } catch {
      window.getSelection().selectAllChildren(code);
      button.textContent = "Selected: copy it";
    }
  });
}
