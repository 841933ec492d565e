// M_s q, one row per feature, one column per position.

const featuresPicture = {
  section: "features",
  spec: () => matrixSpec("position s", "feature"),
  draw({ encoding, q, theme, shared: { n } }) {
    const columns = features(encoding, q, range(n));
    const rows = columns[0].map((_, feature) => columns.map((column) => column[feature]));
    const largest = Math.max(...rows.map((row) => Math.max(...row.map(Math.abs))));
    const says = `${rows.length} features per head of width ${encoding.dim}; the darkest shade is ±${largest.toPrecision(2)}.`;
    return {
      data: { matrix: [{ image: matrixImage(rows, largest, theme) }] },
      signals: { columns: n, rows: rows.length },
      says,
    };
  },
};
