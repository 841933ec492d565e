// A picture of a panel as a view of Vega's, as wide as its place; drawing it again changes its data, and nothing else.

const [TALLEST, LABELS] = [340, 64]; // of a square picture its side, and what stands beside it

async function makeView(picture, place, colours) {
  const spec = { autosize: { type: picture.square ? "pad" : "fit", contains: "padding" }, ...picture.spec(colours) };
  const mode = spec.marks ? "vega" : "vega-lite";
  const options = { mode, config: vegaConfig(colours), actions: false, renderer: "canvas" };
  const { view } = await vegaEmbed(place, { ...spec, ...sizeIn(place, picture) }, options);
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
