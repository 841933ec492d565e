// Δ against the number of keys in its sum.

const LONGEST = 4096;

const deltaPicture = {
  section: "delta",
  spec: ({ soft, less }) => ({
    data: { name: "deltas" },
    params: [{ name: "colour", value: "black" }],
    encoding: {
      x: {
        field: "length",
        type: "quantitative",
        title: "number of keys, n",
        scale: { type: "log", base: 2, domain: [1, LONGEST], nice: false },
        axis: { values: [1, 4, 16, 64, 256, 1024, 4096], format: ",d" },
      },
    },
    layer: [
      {
        data: { values: [{ from: 1, to: LONGEST, low: -1, high: 0 }] },
        mark: { type: "rect", color: less, opacity: 0.12 },
        encoding: {
          x: { field: "from", type: "quantitative" },
          x2: { field: "to" },
          y: shareAxis("low"),
          y2: { field: "high" },
        },
      },
      { mark: { type: "line", strokeWidth: 2, strokeDash: [5, 4], color: soft }, encoding: { y: shareAxis("plain") } },
      { mark: { type: "line", strokeWidth: 2.5, color: { expr: "colour" } }, encoding: { y: shareAxis("encoded") } },
    ],
  }),
  draw({ encoding, q, k, colour }) {
    const all = deltas(encoding, q, k, LONGEST);
    const shown = all.filter(({ length }) => length <= 32 || length % 2 ** Math.ceil(Math.log2(length / 32)) === 0);
    return { data: { deltas: shown }, signals: { colour }, says: deltaSays(all) };
  },
};

const shareAxis = (field) => ({
  field,
  type: "quantitative",
  title: "Δ ÷ its maximum",
  scale: { domain: [-1, 1] },
  axis: { tickCount: 5 },
});

function deltaSays(all) {
  const negative = all.find(({ encoded }) => encoded < 0);
  const when = negative ? `First below 0 at n = ${thousands(negative.length)}` : "Never below 0";
  return `${when}; ${all[all.length - 1].encoded.toFixed(3)} at n = ${thousands(LONGEST)}.`;
}
