// Λ^(s) y for a complex y = { re, im }, with the formulas of lrpe/encodings/unitary.py, orthogonal.py and
// permutation.py. Any other Λ is Vᴴ diag(e^{isα}) V, with V and α from Python.

const positionMatrices = {
  unitary: (y, s, { alpha }) => ({
    re: y.re.map((re, j) => re * Math.cos(s * alpha[j]) - y.im[j] * Math.sin(s * alpha[j])),
    im: y.re.map((re, j) => re * Math.sin(s * alpha[j]) + y.im[j] * Math.cos(s * alpha[j])),
  }),
  orthogonal: (y, s, matrix) => ({ re: rotate(y.re, s, matrix), im: rotate(y.im, s, matrix) }),
  dense: (y, s, matrix) => fromEigenvectors(positionMatrices.unitary(times(matrix, y), s, matrix), matrix),
  permutation: (y, s, { permutation }) => {
    const power = powerOf(permutation, s);
    return { re: power.map((j) => y.re[j]), im: power.map((j) => y.im[j]) };
  },
};

// Vᴴ y, which is the conjugate of Vᵀ ȳ
function fromEigenvectors(y, { re, im }) {
  const transposed = { re: transpose(re), im: transpose(im) };
  const { re: real, im: imaginary } = times(transposed, { re: y.re, im: y.im.map((value) => -value) });
  return { re: real, im: imaginary.map((value) => -value) };
}

const transpose = (rows) => rows[0].map((_, j) => rows.map((row) => row[j]));

// neighbouring pairs rotate, the last features alternate in sign, the rest stay
function rotate(x, s, { alpha, alternating = 0 }) {
  return x.map((value, j) => {
    const angle = s * alpha[j >> 1];
    if (j < 2 * alpha.length) return value * Math.cos(angle) + (j % 2 ? x[j - 1] : -x[j + 1]) * Math.sin(angle);
    return j < x.length - alternating || s % 2 === 0 ? value : -value;
  });
}

// π^s: every element moves s steps along its own cycle
function powerOf(permutation, s) {
  const power = [];
  for (const cycle of cyclesOf(permutation)) {
    const steps = ((s % cycle.length) + cycle.length) % cycle.length;
    cycle.forEach((element, offset) => (power[element] = cycle[(offset + steps) % cycle.length]));
  }
  return power;
}

function cyclesOf(permutation) {
  const seen = new Set();
  return permutation.map((_, first) => walk(permutation, first, seen)).filter((cycle) => cycle.length > 0);
}

function walk(permutation, first, seen) {
  const cycle = [];
  for (let element = first; !seen.has(element); element = permutation[element]) {
    cycle.push(element);
    seen.add(element);
  }
  return cycle;
}
