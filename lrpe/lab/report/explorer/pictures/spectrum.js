// The eigenvalues of r W_1 in the complex plane.

const spectrumPicture = {
  section: "spectrum",
  square: true,
  spec: ({ line, page }) => ({
    data: { name: "eigenvalues" },
    params: [{ name: "colour", value: "black" }],
    encoding: { x: planeAxis("re", "real"), y: planeAxis("im", "imaginary") },
    layer: [
      unitCircle(line),
      {
        mark: { type: "point", filled: true, opacity: 0.75, stroke: page, strokeWidth: 0.5, color: { expr: "colour" } },
        encoding: {
          size: {
            field: "weight",
            type: "quantitative",
            legend: null,
            scale: { domain: [0, 0.3], range: [16, 320], clamp: true },
          },
        },
      },
    ],
  }),
  draw({ encoding, q, k, scale, colour }) {
    const found = eigenvalues(encoding, q, k).map((value) => ({ ...value, weight: value.weight / scale }));
    return { data: { eigenvalues: found }, signals: { colour }, says: spectrumSays(found, encoding.decay) };
  },
};

function spectrumSays(found, decay) {
  const turns = found.map(({ angle }) => fold({ angle, re: 0, im: 0 }).angle).filter((angle) => angle > 1e-12);
  const count = `${found.length} eigenvalues${decay < 1 ? ` of size r = ${decay.toPrecision(4)}` : ""}`;
  if (turns.length === 0) return `${count}, none of which rotates: all positions look the same.`;
  const [fast, slow] = [Math.max(...turns), Math.min(...turns)].map((angle) => tokens((2 * Math.PI) / angle));
  const still = found.length - turns.length;
  return `${count}: the fastest rotates once every ${fast}, the slowest every ${slow}${still ? `; ${still} do not rotate` : ""}.`;
}
