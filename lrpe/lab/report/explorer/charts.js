// A chart is a Vega view as wide as its box; redrawing it changes only its data.

const [TALLEST, LABELS] = [340, 64]; // pixels: the largest side of a square picture, and the width of its labels

async function makeView(picture, box, colours) {
  const spec = { autosize: { type: picture.square ? "pad" : "fit", contains: "padding" }, ...picture.spec(colours) };
  const mode = spec.marks ? "vega" : "vega-lite";
  const options = { mode, config: vegaConfig(colours), actions: false, renderer: "canvas" };
  const { view } = await vegaEmbed(box, { ...spec, ...sizeIn(box, picture) }, options);
  return view;
}

function sizeIn({ clientWidth }, { square }) {
  const side = Math.min(clientWidth - LABELS, TALLEST);
  return square ? { width: side, height: side } : { width: clientWidth, height: Math.min(0.7 * clientWidth, 260) };
}

function drawView(view, { data, signals }) {
  for (const [name, value] of Object.entries(signals)) view.signal(name, value);
  for (const [name, values] of Object.entries(data)) view.data(name, values);
  return view.runAsync();
}
// The page's colours, light or dark, read from the style sheet, so that pictures and page agree.

const isDark = matchMedia("(prefers-color-scheme: dark)");

function theme() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    ink: colour("ink"),
    soft: colour("soft"),
    line: colour("line"),
    page: colour("card"),
    less: colour("less"),
    more: colour("more"),
  };
}

function vegaConfig({ ink, soft, line }) {
  return {
    background: null,
    font: "system-ui, sans-serif",
    view: { stroke: null },
    axis: {
      domainColor: line,
      gridColor: line,
      tickColor: line,
      labelColor: soft,
      titleColor: soft,
      labelFontSize: 12,
      titleFontSize: 12,
      titleFontWeight: "normal",
      labelFont: "system-ui, sans-serif",
      titleFont: "system-ui, sans-serif",
      gridOpacity: 0.5,
      labelOverlap: true,
    },
  };
}
