// M_s q, a row a feature, a column a position.

const featuresPicture = {
  place: "features",
  spec: () => matrixSpec("position s", "feature"),
  draw({ encoding, q, theme, shared: { n } }) {
    const columns = features(encoding, q, range(n));
    const rows = columns[0].map((_, feature) => columns.map((column) => column[feature]));
    const largest = Math.max(...rows.map((row) => Math.max(...row.map(Math.abs))));
    const says = `${rows.length} features of a head of ${encoding.dim}; the strongest shade is ${largest.toPrecision(2)}.`;
    return {
      data: { matrix: [{ image: matrixImage(rows, largest, theme) }] },
      signals: { columns: n, rows: rows.length },
      says,
    };
  },
};
