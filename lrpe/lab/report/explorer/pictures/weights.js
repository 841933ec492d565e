// The weights of keys for queries, with a step and a decay per token.

const weightsPicture = {
  section: "tokens",
  square: true,
  spec: () => {
    const spec = matrixSpec("key s", "query t");
    // the number of tokens is known, and labels that appear after the first layout would push the titles off the canvas
    const signals = spec.signals.map((signal) => ({ ...signal, value: WORDS.length }));
    return { ...spec, signals, axes: spec.axes.map(namedByTokens) };
  },
  draw({ encoding, q, k, scale, theme, tokens }) {
    const rows = weights(encoding, q, k, tokens).map((row) => row.map((weight) => weight / scale));
    return {
      data: { matrix: [{ image: matrixImage(rows, 1, theme) }] },
      signals: { columns: rows.length, rows: rows.length },
      says: weightsSay(rows) + (hasRealPowers(encoding) ? "" : WHOLE_STEPS),
    };
  },
};

const WHOLE_STEPS = " Λ of this encoding is drawn at whole positions only, so its tokens take whole steps.";

// an axis with every token's word; those of the columns are turned, to have room on a phone
function namedByTokens({ orient, title, scale, domain }) {
  const turned = orient === "bottom" ? { labelAngle: -90, labelAlign: "right", labelBaseline: "middle" } : {};
  const text = { signal: `${JSON.stringify(WORDS)}[datum.value]` };
  const all = { values: range(WORDS.length), labelOverlap: false, encode: { labels: { update: { text } } } };
  return { orient, title, scale, domain, ...all, ...turned };
}

function weightsSay(rows) {
  const spread = spreadAlongDiagonals(rows);
  return spread < NOTHING
    ? `Computed here: equal along each diagonal to\u00a0${powerAbove(spread)}, as in Definition 3.1.`
    : `Computed here: along a diagonal the weights differ by up to ${spread.toPrecision(2)}.`;
}
