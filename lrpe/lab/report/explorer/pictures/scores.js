// (M_s q)·(M_t k) for every query and key, which must equal f(t - s).

const scoresPicture = {
  section: "scores",
  square: true,
  spec: () => matrixSpec("key t", "query s"),
  draw({ encoding, q, k, scale, theme, shared: { n } }) {
    const rows = scores(encoding, q, k, n).map((row) => row.map((score) => score / scale));
    const says = `Computed here: every score equals f(t − s) to\u00a0${powerAbove(difference(encoding, q, k, rows, scale))}.`;
    return { data: { matrix: [{ image: matrixImage(rows, 1, theme) }] }, signals: { columns: n, rows: n }, says };
  },
};

function difference(encoding, q, k, rows, scale) {
  const n = rows.length;
  const curve = kernel(
    encoding,
    q,
    k,
    range(2 * n - 1).map((m) => m - n + 1),
  );
  const off = rows.map((row, s) =>
    Math.max(...row.map((score, t) => Math.abs(score - curve[t - s + n - 1].value / scale))),
  );
  return Math.max(...off);
}
