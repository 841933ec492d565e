// Tokens that bring their own step u and decay r, with the formulas of lrpe/theory/cocycle.py.

// Π r_τ (M_p(t) q)·(M_p(s) k) over s < τ ≤ t, at the phases p(t) = Σ_{τ ≤ t} u_τ; 0 for keys s after the query t
function weights(encoding, q, k, { steps, decays }) {
  const phases = steps.map((_, t) => sum(steps.slice(0, t + 1)));
  const [queries, keys] = [q, k].map((x) => features(encoding, x, phases));
  const weight = (t, s) => (s > t ? 0 : between(decays, s, t) * dot(queries[t], keys[s]));
  return phases.map((_, t) => phases.map((_, s) => weight(t, s)));
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

// the product of the decays after s up to t; a sum of logarithms would be NaN for a decay of 0
const between = (decays, s, t) => decays.slice(s + 1, t + 1).reduce((product, r) => product * r, 1);

// how far the weights of any two queries and keys of the same distance lie apart: 0 in a Toeplitz matrix
function spreadAlongDiagonals(rows) {
  const diagonals = rows.map((_, distance) => rows.slice(distance).map((row, s) => row[s])); // row is that of s + distance
  return Math.max(...diagonals.map((values) => Math.max(...values) - Math.min(...values)));
}

// rotations have a power at every real phase; permutations, signs and matrices from Python at whole ones only
const hasRealPowers = ({ matrix: { kind, alternating = 0 } }) =>
  kind === "unitary" || (kind === "orthogonal" && alternating === 0);
