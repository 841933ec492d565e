// The choice in a panel as an encoding, a name and a colour. `pageData` is the JSON that Python wrote into the page.

const pageData = JSON.parse(document.getElementById("page-data").textContent);

const NO_DECAY = 25; // the right end of the slider
const decayOf = (fade) => (fade >= NO_DECAY ? 1 : 1 - 2 ** (-fade / 2));

function encodingOf(choice, dim) {
  const layer = learnedLayer(choice.name);
  return layer ? oneHead(layer, choice.head) : compose(choice, dim);
}

function compose(choice, dim) {
  return {
    dim,
    basis: pageData.dense.bases[choice.basis]?.[dim] ?? {
      kind: choice.basis,
      vectors: [pageData.vectors[dim][choice.seed]],
    },
    matrix: composeMatrix(choice, dim),
    decay: decayOf(choice.fade),
  };
}

function composeMatrix(choice, dim) {
  if (choice.matrix === "none") return { kind: "orthogonal", alpha: [] };
  if (pageData.dense.matrices[choice.matrix]) return pageData.dense.matrices[choice.matrix][dim];
  if (choice.matrix === "permutation")
    return { kind: "permutation", permutation: pageData.permutations[dim][choice.seed] };
  const width = choice.matrix === "unitary" ? dim : rotatedWidth(choice, dim);
  return { kind: choice.matrix, alpha: composeAngles(choice, choice.matrix === "unitary" ? dim : width / 2, width) };
}

// the number of features that Type 2 rotates: all, or of half-rotated half, rounded up to an even number
function rotatedWidth(choice, dim) {
  const rotated = Math.floor(dim * (pageData.methods[choice.name]?.rotated ?? 1));
  return rotated + (rotated % 2);
}

function composeAngles(choice, count, dim) {
  const wish = pageData.wishes[choice.angles];
  if (wish) return wish.alpha[count];
  const table = pageData.dense.angles[choice.angles];
  if (table) return table[count][choice.length];
  const alpha = angles[choice.angles](count, dim, { base: 10 ** choice.base, length: 2 ** choice.length });
  const share = pageData.methods[choice.name]?.share ?? 1;
  return share < 1 ? keepFastest(alpha, share) : alpha;
}

// "learned 0 3" is layer 3 of the first run
function learnedLayer(name = "") {
  const [word, run, layer] = name.split(" ");
  return word === "learned" ? pageData.learned[run].layers[layer] : null;
}

// a list of length 1 is shared by all heads
function oneHead(layer, head) {
  const ofHead = (list) => list[head % list.length];
  return { dim: layer.dim, basis: layer.basis, matrix: ofHead(layer.matrix), decay: ofHead(layer.decay) };
}

// a method has its title and colour of the tables; other compositions have the colour of their type and name their parts
function lookOf(choice) {
  const layer = learnedLayer(choice.name);
  const look = composedLook(layer ? layer.choice : choice);
  if (!layer) return look;
  const head = layer.heads > 1 ? `, head ${choice.head}` : "";
  return { ...look, title: `${look.title}, ${layer.title}${head} of ${layer.run}` };
}

function composedLook(choice) {
  const { basis, matrix, angles } = choice;
  const name = methodOf(choice);
  if (name) return pageData.methods[name];
  const type = pageData.types[matrix] ?? { title: `Λ ${matrix}`, colour: pageData.methods.none.colour };
  const unusual = turns(matrix) && angles !== "geometric" ? `, α ${angles}` : "";
  return { colour: type.colour, title: `${type.title}, P ${pageData.bases[basis] ?? basis}${unusual}` };
}

// the name of the method with these parts, if any, and of several the chosen one; without Λ, P and α do not matter
function methodOf({ name: chosen, basis, matrix, angles }) {
  const same = (method) =>
    method.matrix === matrix &&
    (matrix === "none" || method.basis === basis) &&
    (!turns(matrix) || method.angles === angles);
  if (pageData.methods[chosen] && same(pageData.methods[chosen])) return chosen;
  return Object.keys(pageData.methods).find((name) => same(pageData.methods[name]));
}

// whether a Λ is built from angles
function turns(matrix) {
  return matrix === "unitary" || matrix === "orthogonal";
}
