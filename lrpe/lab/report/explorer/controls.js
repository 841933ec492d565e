// Forms: their values, the inputs to show, and the labels of the sliders.

// { name: value } of a form; numeric values are converted to numbers
function choiceOf(form) {
  const inputs = [...form.elements].filter(({ name }) => name);
  return Object.fromEntries(
    inputs.map(({ name, value }) => [name, Number.isNaN(Number(value)) ? value : Number(value)]),
  );
}

function fillPanel(form, method) {
  const { name, matrix, basis, angles } = form.elements;
  for (const [value, { title }] of Object.entries(pageData.methods)) name.append(new Option(title, value));
  pageData.learned.forEach((run, number) => name.append(learnedGroup(run, number)));
  name.append(new Option("custom: composed below", "composed"));
  for (const [value, title] of Object.entries(pageData.matrices)) matrix.append(new Option(title, value));
  for (const [value, title] of Object.entries(pageData.bases)) basis.append(new Option(title, value));
  for (const value of pageData.angles) angles.append(new Option(value, value));
  name.value = method;
  follow(form, name);
}

function learnedGroup({ title, layers }, run) {
  const group = Object.assign(document.createElement("optgroup"), { label: title });
  layers.forEach((layer, number) => group.append(new Option(layer.title, `learned ${run} ${number}`)));
  return group;
}

// choosing a name sets the parts, and choosing a part updates the name
function follow(form, changed) {
  const { name, matrix, basis, angles, base, fade, head } = form.elements;
  const method = pageData.methods[name.value];
  if (changed === name && method) {
    [matrix.value, basis.value, angles.value] = [method.matrix, method.basis, method.angles];
    [base.value, fade.value] = [method.base, method.fade ?? fade.value];
  } else if ([matrix, basis, angles].includes(changed)) {
    name.value = methodOf(choiceOf(form)) ?? "composed";
  }
  head.max = (learnedLayer(name.value)?.heads ?? 1) - 1;
}

// list what cannot be drawn, with the reasons
function showRefusals(element) {
  element.hidden = pageData.refused.length === 0;
  element.querySelector("ul").append(...pageData.refused.map((text) => Object.assign(document.createElement("li"), { textContent: text })));
}

// show an input if one of the conditions in its data-when holds
function showWhatMatters(form) {
  const holds = wordsThatHold(choiceOf(form));
  for (const part of form.querySelectorAll("[data-when]")) {
    part.hidden = !part.dataset.when.split(" ").some((word) => holds.has(word));
  }
}

function wordsThatHold({ name, matrix, basis, angles, content }) {
  const layer = learnedLayer(name);
  if (layer) return new Set(layer.heads > 1 ? ["heads"] : []);
  const withLength = !["half-turn", "fractions"].includes(angles) && !pageData.wishes[angles];
  const turning = turns(matrix) && (angles === "geometric" ? "base" : withLength && "length");
  const stepping = pageData.methods[name]?.stepping && "stepping";
  const drawn = basis === "householder" || matrix === "permutation";
  const built = pageData.dense.bases[basis] || pageData.dense.matrices[matrix];
  return new Set(["composed", turns(matrix) && "turns", turning, angles === "hope" && turning && "base", drawn && "drawn", built && "built", stepping, Object.keys(pageData.wishes).length && "wishes", content]);
}

function showValues(form) {
  for (const element of form.querySelectorAll(".value")) {
    const { name, value } = element.parentElement.control;
    element.textContent = (sliderWords[name] ?? String)(Number(value));
  }
}
