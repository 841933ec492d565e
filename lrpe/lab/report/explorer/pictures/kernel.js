// f(t - s) and its envelope.

const kernelPicture = {
  section: "kernel",
  spec: () => ({
    data: { name: "kernel", values: [{ distance: 0 }] },
    params: [{ name: "colour", value: "black" }],
    encoding: { x: { field: "distance", type: "quantitative", title: "t − s", scale: { nice: false } } },
    layer: [
      {
        mark: { type: "area", opacity: 0.2, color: { expr: "colour" } },
        encoding: {
          y: {
            field: "low",
            type: "quantitative",
            title: "f(t − s)",
            scale: { domain: [-1, 1] },
            axis: { tickCount: 5 },
          },
          y2: { field: "high" },
        },
      },
      {
        mark: { type: "line", strokeWidth: 2, color: { expr: "colour" } },
        encoding: { y: { field: "value", type: "quantitative" } },
      },
    ],
  }),
  draw({ encoding, q, k, scale, colour, shared: { reach } }) {
    const distances = range(2 * reach + 1).map((m) => m - reach);
    const curve = kernel(encoding, q, k, distances).map(({ distance, value, envelope }) => {
      return { distance, value: value / scale, low: -envelope / scale, high: envelope / scale };
    });
    const half = curve.slice(reach).find(({ high }) => high < curve[reach].high / 2);
    const says = half
      ? `The envelope falls below half at distance ${half.distance}.`
      : `The envelope stays above half up to distance ${reach}.`;
    return { data: { kernel: curve }, signals: { colour }, says };
  },
};
