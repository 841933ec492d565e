// α, the angles of one step, as lrpe/encodings/angles.py has them: rounded to float32, since that is how they are kept.

const range = (count) => Array.from({ length: count }, (_, k) => k);
const quarterTurn = (length) => Math.PI / 2 / length;

const angles = {
  geometric: (count, dim, { base }) => range(count).map((k) => Math.fround(base ** ((-2 * k) / dim))),
  linear: (count, dim, { length }) => range(count).map((k) => Math.fround((quarterTurn(length) * (k + 1)) / count)),
  harmonic: (count, dim, { length }) => range(count).map((k) => Math.fround(quarterTurn(length) / (k + 1))),
  constant: (count, dim, { length }) => range(count).map(() => Math.fround(quarterTurn(length))),
};
