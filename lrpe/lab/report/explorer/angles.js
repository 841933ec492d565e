// α, the angles of one step, with the formulas of lrpe/encodings/angles.py in float64.

const range = (count) => Array.from({ length: count }, (_, k) => k);
const quarterTurn = (length) => Math.PI / 2 / length;

const angles = {
  geometric: (count, dim, { base }) => range(count).map((k) => base ** ((-2 * k) / dim)),
  linear: (count, dim, { length }) => range(count).map((k) => (quarterTurn(length) * (k + 1)) / count),
  harmonic: (count, dim, { length }) => range(count).map((k) => quarterTurn(length) / (k + 1)),
  constant: (count, dim, { length }) => range(count).map(() => quarterTurn(length)),
};
