// Shared by pictures of a plane: two axes of equal scale, and the unit circle.

const planeAxis = (field, title) => ({
  field,
  type: "quantitative",
  title,
  scale: { domain: [-1.15, 1.15], nice: false },
  axis: { values: [-1, 0, 1] },
});

function unitCircle(colour) {
  const turns = range(97).map((k) => (k * Math.PI) / 48);
  return {
    data: { values: turns.map((turn, k) => ({ k, cos: Math.cos(turn), sin: Math.sin(turn) })) },
    mark: { type: "line", strokeWidth: 1, color: colour },
    encoding: {
      x: { field: "cos", type: "quantitative" },
      y: { field: "sin", type: "quantitative" },
      order: { field: "k" },
    },
  };
}
