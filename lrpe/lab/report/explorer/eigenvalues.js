// W_1 is unitary, so f(m) = qᴴ W_m k = Re Σ_j c_j e^{i m θ_j}: a sum over the eigenvalues e^{iθ_j} of W_1.
// A term is { angle: θ, re, im }, with c = re + i im.

function terms(encoding, q, k) {
  const [y, z] = [q, k].map((x) => changeBasis(encoding, x));
  return termsOf[encoding.matrix.kind](y, z, encoding.matrix);
}

const termsOf = {
  unitary: (y, z, { alpha }) => alpha.map((angle, j) => ({ angle, ...product(y, z, j, j) })),
  orthogonal: (y, z, { alpha, alternating = 0 }) => [
    ...alpha.map((angle, j) => ({ angle, pair: true, ...pairTerm(y, z, 2 * j) })),
    ...range(y.re.length)
      .slice(2 * alpha.length)
      .map((j) => {
        return { angle: j < y.re.length - alternating ? 0 : Math.PI, re: product(y, z, j, j).re, im: 0 };
      }),
  ],
  dense: (y, z, matrix) => termsOf.unitary(times(matrix, y), times(matrix, z), matrix),
  permutation: (y, z, { permutation }) => cyclesOf(permutation).flatMap((cycle) => cycleTerms(y, z, cycle)),
};

// ȳ_i z_j
function product(y, z, i, j) {
  return { re: y.re[i] * z.re[j] + y.im[i] * z.im[j], im: y.re[i] * z.im[j] - y.im[i] * z.re[j] };
}

// Re(ȳᵀ R(θ) z) of a pair is A cos θ + B sin θ = Re((A - iB) e^{iθ})
function pairTerm(y, z, j) {
  const A = product(y, z, j, j).re + product(y, z, j + 1, j + 1).re;
  const B = product(y, z, j + 1, j).re - product(y, z, j, j + 1).re;
  return { re: A, im: -B };
}

// a cycle of length L has the L-th roots of 1 as eigenvalues, and the Fourier transform as eigenvectors
function cycleTerms(y, z, cycle) {
  return cycle.map((_, number) => {
    const angle = (2 * Math.PI * number) / cycle.length;
    const [Y, Z] = [y, z].map((x) => transformAlong(x, cycle, angle));
    const { re, im } = product(Y, Z, 0, 0);
    return { angle, re: re / cycle.length, im: im / cycle.length };
  });
}

function transformAlong(x, cycle, angle) {
  const sum = { re: [0], im: [0] };
  cycle.forEach((element, offset) => {
    const [cos, sin] = [Math.cos(angle * offset), Math.sin(angle * offset)];
    sum.re[0] += x.re[element] * cos + x.im[element] * sin;
    sum.im[0] += x.im[element] * cos - x.re[element] * sin;
  });
  return sum;
}

// θ in [0, π]: for whole m, Re(c e^{imθ}) = Re(c̄ e^{-imθ}), so the slower of the two gives the smooth envelope
function fold({ angle, re, im }) {
  const wrapped = angle - 2 * Math.PI * Math.round(angle / (2 * Math.PI));
  return wrapped < 0 ? { angle: -wrapped, re, im: -im } : { angle: wrapped, re, im };
}

// r^|m| f(m), and the envelope r^|m| |Σ c_j e^{imθ_j}| that it never leaves
function kernel(encoding, q, k, distances) {
  const folded = terms(encoding, q, k).map(fold);
  return distances.map((m) => {
    const [re, im] = total(folded, m);
    const fade = encoding.decay ** Math.abs(m);
    return { distance: m, value: fade * re, envelope: fade * Math.hypot(re, im) };
  });
}

function total(terms, m) {
  let [sumRe, sumIm] = [0, 0];
  for (const { angle, re, im } of terms) {
    const [cos, sin] = [Math.cos(m * angle), Math.sin(m * angle)];
    sumRe += re * cos - im * sin;
    sumIm += re * sin + im * cos;
  }
  return [sumRe, sumIm];
}

// the eigenvalues of r W_1, with |c|, the share of q and k along each; a rotation has both e^{iα} and e^{-iα}
function eigenvalues(encoding, q, k) {
  return terms(encoding, q, k).flatMap(({ angle, pair, re, im }) => {
    const turns = pair ? [angle, -angle] : [angle];
    return turns.map((turn) => ({
      angle: turn,
      re: encoding.decay * Math.cos(turn),
      im: encoding.decay * Math.sin(turn),
      weight: Math.hypot(re, im) / turns.length,
    }));
  });
}

// Δ of a query over n keys up to its own position, relative to its maximum: Σ r^m f(-m) encoded, Σ r^m q·k not encoded
function deltas(encoding, q, k, longest) {
  const scale = size(q) * size(k) || 1;
  const turning = terms(encoding, q, k).map(({ angle, re, im }) => ({
    re,
    im,
    cos: Math.cos(angle),
    sin: Math.sin(angle),
  }));
  let [encoded, most, fade] = [0, 0, 1];
  return range(longest).map((m) => {
    encoded += (fade * stepBack(turning)) / scale;
    most += fade;
    fade *= encoding.decay;
    return { length: m + 1, encoded: encoded / most, plain: dot(q, k) / scale };
  });
}

// Re Σ c_j, and each c_j times e^{-iθ_j}: from f(-m) to f(-m - 1) without another cosine
function stepBack(turning) {
  let sum = 0;
  for (const term of turning) {
    const { re, im, cos, sin } = term;
    sum += re;
    term.re = re * cos + im * sin;
    term.im = im * cos - re * sin;
  }
  return sum;
}
