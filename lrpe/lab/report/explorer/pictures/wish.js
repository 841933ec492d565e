// A wished kernel, and the mean of cosines of an encoding's angles beside it.

const wishPicture = {
  section: "wish",
  spec: ({ soft }) => ({
    data: { name: "wish", values: [{ distance: 0 }] },
    params: [{ name: "colour", value: "black" }],
    encoding: { x: { field: "distance", type: "quantitative", title: "t − s", scale: { nice: false } } },
    layer: [
      { mark: { type: "line", strokeWidth: 2, strokeDash: [5, 4], color: soft }, encoding: { y: wishAxis("wished") } },
      { mark: { type: "line", strokeWidth: 2.5, color: { expr: "colour" } }, encoding: { y: wishAxis("mean") } },
    ],
  }),
  draw({ encoding, colour, shared: { wish } }) {
    const curve = besideWish(encoding, pageData.wishes[wish].values);
    const { error, largest } = wishErrors(curve);
    const says = `${wish}: error ${error.toPrecision(2)}, at most ${largest.toPrecision(2)}, over the distances 0 to ${curve.length - 1}.`;
    return { data: { wish: curve }, signals: { colour }, says };
  },
};

const wishAxis = (field) => ({
  field,
  type: "quantitative",
  title: "relative to distance 0",
  scale: { domain: [-1, 1] },
  axis: { tickCount: 5 },
});

// r^m (1/d) Re tr W_m, the expected score of a query and an equal key in a random direction, for each wished f(m)
function besideWish(encoding, values) {
  const still = Array(encoding.dim).fill(0); // the eigenvalues do not depend on q and k
  const turns = eigenvalues(encoding, still, still).map(({ angle }) => angle);
  return values.map((wished, m) => {
    const mean = sum(turns.map((angle) => Math.cos(m * angle))) / turns.length;
    return { distance: m, wished, mean: encoding.decay ** m * mean };
  });
}

// the root of the mean square and the largest, as in lrpe/theory/matching.py
function wishErrors(curve) {
  const apart = curve.map(({ wished, mean }) => Math.abs(mean - wished));
  return { error: Math.sqrt(sum(apart.map((each) => each ** 2)) / apart.length), largest: Math.max(...apart) };
}
