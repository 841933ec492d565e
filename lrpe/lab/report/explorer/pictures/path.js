// Two features of M_s q against each other: a rotated pair moves on a circle.

const NOTHING = 1e-9; // smaller values are rounding errors, drawn as 0

const pathPicture = {
  section: "path",
  square: true,
  spec: ({ line }) => ({
    data: { name: "path" },
    params: [
      { name: "colour", value: "black" },
      { name: "latest", value: 1 },
    ],
    encoding: {
      x: planeAxis("x", "first feature"),
      y: planeAxis("y", "second feature"),
    },
    layer: [
      unitCircle(line),
      {
        mark: { type: "line", strokeWidth: 1, opacity: 0.35, color: { expr: "colour" } },
        encoding: { order: { field: "s" } },
      },
      {
        mark: {
          type: "point",
          filled: true,
          size: { expr: "20 + 60 * datum.s / latest" },
          opacity: { expr: "0.35 + 0.65 * datum.s / latest" },
          color: { expr: "colour" },
        },
      },
    ],
  }),
  draw({ encoding, q, colour, shared: { n, pair } }) {
    const [first, second] = pairOf(encoding, pair);
    const points = features(encoding, q, range(n)).map((row, s) => ({ s, x: row[first], y: row[second] }));
    const radius = Math.max(...points.map(({ x, y }) => Math.hypot(x, y)));
    const scale = radius < NOTHING ? Infinity : radius;
    const path = points.map(({ s, x, y }) => ({ s, x: x / scale, y: y / scale }));
    return {
      data: { path },
      signals: { colour, latest: Math.max(n - 1, 1) },
      says: pathSays(encoding, first, second, radius),
    };
  },
};

// neighbouring features, or real and imaginary part if Λ is complex
function pairOf(encoding, pair) {
  const own = pair % Math.max(encoding.dim >> 1, 1);
  const complex = encoding.matrix.kind === "unitary" || encoding.matrix.complex;
  return complex ? [own, encoding.dim + own] : [2 * own, 2 * own + 1];
}

function pathSays(encoding, first, second, radius) {
  const names = `Features ${first} and ${second}`;
  return radius < NOTHING
    ? `${names} are 0 for this q.`
    : `${names} ${wayOf(encoding, first)}; radius ${radius.toPrecision(2)}.`;
}

function wayOf({ dim, matrix: { kind, alpha, alternating = 0 } }, first) {
  if (kind === "dense") return "move as Λ moves them";
  if (kind === "permutation") return "take on the values along their cycles";
  const angle = alpha[kind === "unitary" ? first : first / 2];
  if (angle) return `rotate once every ${tokens((2 * Math.PI) / Math.abs(angle))}`;
  return first < dim - alternating ? "do not change" : "change sign at every step";
}
