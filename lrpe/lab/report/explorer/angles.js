// α, the angles of one step, with the formulas of lrpe/encodings/angles.py in float64.

const range = (count) => Array.from({ length: count }, (_, k) => k);
const quarterTurn = (length) => Math.PI / 2 / length;

const angles = {
  geometric: (count, dim, { base }) => range(count).map((k) => base ** ((-2 * k) / dim)),
  linear: (count, dim, { length }) => range(count).map((k) => (quarterTurn(length) * (k + 1)) / count),
  harmonic: (count, dim, { length }) => range(count).map((k) => quarterTurn(length) / (k + 1)),
  constant: (count, dim, { length }) => range(count).map(() => quarterTurn(length)),
  hope: (count, dim, { base, length }) =>
    angles.geometric(count, dim, { base }).map((alpha) => (alpha < 4 * quarterTurn(length) ? 0 : alpha)),
  "half-turn": (count) => range(count).map(() => Math.PI),
  fractions: (count) => range(count).map((k) => (2 * Math.PI) / (k + 2)),
};

// α with all but a share of the fastest angles set to 0; α falls
function keepFastest(alpha, share) {
  const kept = Math.ceil(share * alpha.length);
  return alpha.map((value, k) => (k < kept ? value : 0));
}
