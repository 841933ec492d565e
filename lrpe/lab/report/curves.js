// Curves that answer: hovering or the arrow keys name a point, the buttons of the legend hide and show rows.
// Each figure with the attribute data-chart has its curves there as JSON, written by training.py.
(() => {
  const svgSpace = "http://www.w3.org/2000/svg";
  const margin = { top: 10, right: 14, bottom: 44, left: 62 };
  const shapes = {
    "circle": "M-3.5,0a3.5,3.5 0 1,0 7,0a3.5,3.5 0 1,0 -7,0Z",
    "square": "M-3.2,-3.2h6.4v6.4h-6.4Z",
    "diamond": "M0,-4.5L4,0L0,4.5L-4,0Z",
    "cross": "M-1.4,-4h2.8v2.6h2.6v2.8h-2.6v2.6h-2.8v-2.6h-2.6v-2.8h2.6Z",
    "triangle-up": "M0,-4.4L4.2,3.2H-4.2Z",
    "triangle-down": "M0,4.4L4.2,-3.2H-4.2Z",
    "triangle-left": "M-4.4,0L3.2,-4.2V4.2Z",
    "triangle-right": "M4.4,0L-3.2,-4.2V4.2Z",
  };

  function make(name, attributes = {}, text = "") {
    const made = document.createElementNS(svgSpace, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  }

  // Round numbers from low to high, about `count` of them: multiples of 1, 2 or 5 times a power of ten.
  function ticks(low, high, count) {
    const rough = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
    const first = Math.ceil(low / step - 1e-9), last = Math.floor(high / step + 1e-9);
    return Array.from({ length: last - first + 1 }, (_, k) => (first + k) * step);
  }

  // 1, 2 and 5 times the powers of ten, for a logarithmic axis that covers more than a decade.
  function decades(low, high) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); 10 ** power <= high; power += 1)
      for (const factor of [1, 2, 5]) found.push(factor * 10 ** power);
    return found.filter((value) => value >= low && value <= high);
  }

  function number(value, percent) {
    if (percent) return `${+(100 * value).toPrecision(4)} %`;
    return (Math.abs(value) >= 1000 ? Math.round(value) : +value.toPrecision(4)).toLocaleString("en");
  }

  class Chart {
    constructor(figure) {
      this.figure = figure;
      figure.hidden = false;
      this.data = JSON.parse(figure.dataset.chart);
      this.hidden = new Set();
      this.at = null; // the named point: a row and its index
      this.svg = make("svg", { "tabindex": 0, "role": "img", "aria-label": this.data.label });
      this.legend = document.createElement("div");
      this.legend.className = "rows";
      this.readout = document.createElement("output");
      figure.prepend(this.legend, this.svg, this.readout);
      this.data.rows.forEach((row, k) => this.legend.append(this.button(row, k)));
      this.svg.addEventListener("pointermove", (event) => this.point(event));
      this.svg.addEventListener("pointerdown", (event) => this.point(event));
      this.svg.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.name(null)); // a finger always leaves
      this.svg.addEventListener("keydown", (event) => this.step(event));
      new ResizeObserver(() => this.draw()).observe(figure);
      this.draw();
    }

    button(row, k) {
      const made = document.createElement("button");
      made.type = "button";
      made.dataset.row = k;
      made.setAttribute("aria-pressed", "true");
      this.paint(made, row);
      const sign = make("svg", { "viewBox": "-6 -6 12 12", "aria-hidden": "true" });
      sign.append(make("path", { d: shapes[row.shape] ?? shapes.circle, fill: "currentColor" }));
      const title = document.createElement("span");
      title.textContent = row.title;
      made.append(sign, title);
      made.addEventListener("click", () => this.toggle(k, made));
      return made;
    }

    paint(item, row) {
      item.style.setProperty("--light", row.colour);
      item.style.setProperty("--dark", row.dark ?? row.colour);
    }

    toggle(k, button) {
      this.hidden.has(k) ? this.hidden.delete(k) : this.hidden.add(k);
      button.setAttribute("aria-pressed", String(!this.hidden.has(k)));
      this.at = null;
      this.draw();
    }

    get shown() {
      return this.data.rows.map((_, k) => k).filter((k) => !this.hidden.has(k));
    }

    draw() {
      const width = Math.max(260, Math.round(this.figure.clientWidth)), height = width < 500 ? 280 : 360;
      this.size = { width, height };
      this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
      this.svg.setAttribute("height", height);
      this.svg.replaceChildren();
      const points = this.shown.flatMap((k) => this.data.rows[k].points);
      if (points.length) {
        this.scale(points);
        this.axes();
        this.shown.forEach((k) => this.svg.append(this.curve(k)));
      }
      this.name(this.at);
    }

    // Set x(update) and y(value), which return pixels.
    scale(points) {
      const { width, height } = this.size;
      const bend = this.data.log ? Math.log : (value) => value;
      const [left, right] = [Math.min(...points.map((p) => p[0])), Math.max(...points.map((p) => p[0]))];
      this.low = Math.min(...points.map((p) => p[2]));
      this.high = Math.max(...points.map((p) => p[3]));
      if (this.low === this.high) [this.low, this.high] = this.data.log ? [this.low * 0.9, this.high * 1.1] : [this.low - 0.5, this.high + 0.5];
      this.left = left;
      this.right = right;
      const across = width - margin.left - margin.right, up = height - margin.top - margin.bottom;
      this.x = (update) => margin.left + (right > left ? ((update - left) / (right - left)) * across : across / 2);
      this.y = (value) => margin.top + 8 + (1 - (bend(value) - bend(this.low)) / (bend(this.high) - bend(this.low))) * (up - 8);
    }

    axes() {
      const { width, height } = this.size;
      const wide = this.data.log && this.high / this.low > 10;
      const bottom = height - margin.bottom;
      for (const value of wide ? decades(this.low, this.high) : ticks(this.low, this.high, 6)) {
        const y = this.y(value);
        this.svg.append(make("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: y, y2: y }));
        this.svg.append(make("text", { class: "tick y", x: margin.left - 8, y: y + 4 }, number(value, this.data.percent)));
      }
      for (const update of ticks(this.left, this.right, width < 500 ? 4 : 8).filter(Number.isInteger))
        this.svg.append(make("text", { class: "tick x", x: this.x(update), y: bottom + 20 }, update.toLocaleString("en")));
      this.svg.append(make("line", { class: "axis", x1: margin.left, x2: width - margin.right, y1: bottom, y2: bottom }));
      this.svg.append(make("text", { class: "name x", x: (margin.left + width) / 2, y: height - 6 }, "updates"));
      const middle = (margin.top + bottom) / 2;
      this.svg.append(make("text", { class: "name y", transform: `translate(13 ${middle}) rotate(-90)` }, this.data.figure));
    }

    curve(k) {
      const row = this.data.rows[k], group = make("g", { "class": "curve", "data-row": k });
      this.paint(group, row);
      const along = (column, points) => points.map((p) => `${this.x(p[0]).toFixed(1)},${this.y(p[column]).toFixed(1)}`);
      if (row.seeds > 1) {
        const edge = [...along(3, row.points), ...along(2, [...row.points].reverse())];
        group.append(make("path", { class: "band", d: `M${edge.join("L")}Z` }));
      }
      group.append(make("path", { class: "line", d: `M${along(1, row.points).join("L")}` }));
      if (row.points.length <= 40)
        for (const place of along(1, row.points))
          group.append(make("path", { class: "sign", d: shapes[row.shape] ?? shapes.circle, transform: `translate(${place})` }));
      return group;
    }

    // Name the point that is nearest to the pointer.
    point(event) {
      const box = this.svg.getBoundingClientRect();
      const scale = this.size.width / box.width;
      const [px, py] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
      let best = null, least = Infinity;
      for (const k of this.shown)
        this.data.rows[k].points.forEach((p, index) => {
          const distance = 4 * (this.x(p[0]) - px) ** 2 + (this.y(p[1]) - py) ** 2;
          if (distance < least) [best, least] = [{ row: k, index }, distance];
        });
      this.name(best);
    }

    // Left and right change the update, up and down the row, in the order of their values there.
    step(event) {
      const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };
      if (event.key === "Escape") return this.name(null);
      if (!(event.key in moves) || !this.shown.length) return;
      event.preventDefault();
      const start = { row: this.shown[0], index: this.data.rows[this.shown[0]].points.length - 1 };
      this.name(this.at ? this.neighbour(...moves[event.key]) : start);
    }

    neighbour(along, up) {
      const points = this.data.rows[this.at.row].points;
      const index = Math.min(points.length - 1, Math.max(0, this.at.index + along));
      if (!up) return { row: this.at.row, index };
      const update = points[this.at.index][0];
      const there = this.shown
        .map((row) => ({ row, index: this.data.rows[row].points.findIndex((p) => p[0] === update) }))
        .filter((place) => place.index >= 0)
        .sort((a, b) => this.data.rows[a.row].points[a.index][1] - this.data.rows[b.row].points[b.index][1]);
      const place = there.findIndex((each) => each.row === this.at.row);
      return there[Math.min(there.length - 1, Math.max(0, place + up))];
    }

    // Say the row, the update and the value of a point, and mark it; nothing if `at` is null.
    name(at) {
      this.at = at;
      this.svg.querySelector(".named")?.remove();
      this.svg.classList.toggle("naming", at !== null);
      for (const group of this.svg.querySelectorAll(".curve"))
        group.classList.toggle("chosen", at !== null && Number(group.dataset.row) === at.row);
      if (at === null) {
        this.readout.className = "hint";
        this.readout.textContent = this.shown.length ? this.data.hint : "Every row is hidden.";
        return;
      }
      this.readout.className = "";
      const row = this.data.rows[at.row], [update, mean, low, high] = row.points[at.index];
      const mark = make("g", { class: "named" });
      mark.append(make("line", { x1: this.x(update), x2: this.x(update), y1: margin.top, y2: this.size.height - margin.bottom }));
      mark.append(make("circle", { cx: this.x(update), cy: this.y(mean), r: 7 }));
      this.paint(mark, row);
      this.svg.append(mark);
      const [middle, least, most] = [mean, low, high].map((value) => number(value, this.data.percent));
      const range = row.seeds > 1 ? ` (${least} to ${most} over ${row.seeds} seeds)` : "";
      this.readout.textContent = `${row.title}, update ${update.toLocaleString("en")}: ${middle}${range}`;
    }
  }

  document.querySelectorAll("figure[data-chart]").forEach((figure) => new Chart(figure));
})();
