// P, the change of basis, with the formulas of lrpe/encodings/basis.py and matrix_basis.py.
// A vector is { re, im }, two lists; a real vector has zeros in im.

const real = (x) => ({ re: x, im: x.map(() => 0) });
const size = (x) => Math.sqrt(dot(x, x));

function dot(x, y) {
  let sum = 0;
  for (let j = 0; j < x.length; j++) sum += x[j] * y[j];
  return sum;
}

const bases = {
  identity: (x) => real(x),
  householder: (x, { vectors }) => real(vectors.reduceRight(reflect, x)),
  "odd-even": (x) => real(x.map((_, j) => x[(j % 2 ? Math.ceil(x.length / 2) : 0) + Math.floor(j / 2)])),
  fourier: (x) => ({
    re: x.map((_, j) => dot(x, wave(x, j, Math.cos))),
    im: x.map((_, j) => -dot(x, wave(x, j, Math.sin))),
  }),
  cosine: (x) => real(x.map((_, j) => dot(x, cosines(x.length, j)))),
  dense: (x, { re, im }) => times({ re, im }, real(x)),
};

// A x for complex rows A = { re, im } and x; a real A has no im
function times({ re, im }, x) {
  const real = re.map((row) => ({ re: dot(row, x.re), im: dot(row, x.im) }));
  const imaginary = im?.map((row) => ({ re: -dot(row, x.im), im: dot(row, x.re) }));
  const sum = (part) => real.map((value, j) => value[part] + (imaginary ? imaginary[j][part] : 0));
  return { re: sum("re"), im: sum("im") };
}

// H x = x - 2 v (v·x) / (v·v)
function reflect(x, v) {
  const share = (2 * dot(v, x)) / dot(v, v);
  return x.map((value, j) => value - share * v[j]);
}

// row j of exp(-2πi jk / d) / √d, its cosines or its sines
function wave(x, j, part) {
  const d = x.length;
  return x.map((_, k) => part((2 * Math.PI * ((j * k) % d)) / d) / Math.sqrt(d));
}

// row j of the DCT-II: √(2/d) cos(π j (2k + 1) / 2d), and √(1/d) for j = 0
function cosines(d, j) {
  const scale = Math.sqrt((j === 0 ? 1 : 2) / d);
  return range(d).map((k) => scale * Math.cos((2 * Math.PI * ((j * (2 * k + 1)) % (4 * d))) / (4 * d)));
}
