// q and k after φ, the same at every position; random ones are drawn from a seed.

const contents = {
  ones: (dim) => [Array(dim).fill(1), Array(dim).fill(1)],
  feature: (dim, { feature }) => Array(2).fill(range(dim).map((j) => (j === feature % dim ? 1 : 0))),
  positive: (dim, { draw }) => [noise(dim, 2 * draw).map(phi), noise(dim, 2 * draw + 1).map(phi)],
  alike: (dim, { draw }) => [noise(dim, 2 * draw), noise(dim, 2 * draw)],
  apart: (dim, { draw }) => [noise(dim, 2 * draw), noise(dim, 2 * draw + 1)],
};

const phi = (x) => (x > 0 ? 1 + x : Math.exp(x)); // 1 + elu(x), the paper's

// normal random numbers by the Box-Muller transform
function noise(dim, seed) {
  const uniform = uniformFrom(seed);
  return range(dim).map(() => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform()));
}

// Tommy Ettinger's mulberry32: Math.random cannot be seeded
function uniformFrom(seed) {
  let state = seed * 2654435761;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}
