// A matrix as an image with one pixel per entry: blue below 0, the page's colour at 0, vermillion above.

function matrixImage(rows, largest, { less, page, more }) {
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [rows[0].length, rows.length];
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const shade = shades([less, page, more].map(parseHex), largest || 1);
  rows.flat().forEach((value, offset) => shade(value, image.data, 4 * offset));
  context.putImageData(image, 0, 0);
  return canvas;
}

// write red, green, blue and opacity of a value at an offset
const shades =
  ([less, page, more], largest) =>
  (value, data, offset) => {
    const [strength, end] = [Math.min(Math.abs(value) / largest, 1), value < 0 ? less : more];
    for (let c = 0; c < 3; c++) data[offset + c] = page[c] + strength * (end[c] - page[c]);
    data[offset + 3] = 255;
  };

const parseHex = (colour) => [1, 3, 5].map((offset) => parseInt(colour.slice(offset, offset + 2), 16));

// a Vega specification, because Vega-Lite has no mark for a canvas
function matrixSpec(xTitle, yTitle) {
  const span = (name) => [-0.5, { signal: `${name} - 0.5` }];
  const axis = (orient, title) => ({
    orient,
    title,
    scale: orient === "bottom" ? "x" : "y",
    tickMinStep: 1,
    tickCount: 6,
    format: "d",
    domain: false,
  });
  return {
    padding: 5,
    signals: [
      { name: "columns", value: 1 },
      { name: "rows", value: 1 },
    ],
    data: [{ name: "matrix" }],
    scales: [
      { name: "x", type: "linear", domain: span("columns"), range: "width", zero: false, nice: false },
      { name: "y", type: "linear", domain: span("rows"), range: [0, { signal: "height" }], zero: false, nice: false },
    ],
    axes: [axis("bottom", xTitle), axis("left", yTitle)],
    marks: [
      {
        type: "image",
        from: { data: "matrix" },
        encode: {
          update: {
            image: { field: "image" },
            width: { signal: "width" },
            height: { signal: "height" },
            aspect: { value: false },
            smooth: { value: false },
          },
        },
      },
    ],
  };
}
