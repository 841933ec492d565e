// M_s = Λ^(s) P. An encoding is { dim, basis: { kind, ... }, matrix: { kind, ... }, decay }.

const isComplex = ({ basis, matrix }) =>
  basis.kind === "fourier" || matrix.kind === "unitary" || Boolean(basis.complex || matrix.complex);
const changeBasis = ({ basis }, x) => bases[basis.kind](x, basis);
const encodeAt = ({ matrix }, y, s) => positionMatrices[matrix.kind](y, s, matrix);

// M_s x for each position s, as rows of real features: (re ‖ im) if P or Λ is complex
function features(encoding, x, positions) {
  const y = changeBasis(encoding, x);
  const turned = positions.map((s) => encodeAt(encoding, y, s));
  return turned.map(({ re, im }) => (isComplex(encoding) ? [...re, ...im] : re));
}

// r^|t - s| (M_s q)·(M_t k) for every query s and key t
function scores(encoding, q, k, n) {
  const [queries, keys] = [q, k].map((x) => features(encoding, x, range(n)));
  return queries.map((query, s) => keys.map((key, t) => encoding.decay ** Math.abs(t - s) * dot(query, key)));
}
