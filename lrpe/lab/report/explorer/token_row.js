// The row of tokens: a bar for the step and a bar for the decay of each, which are sliders on end.

const WORDS = ["It", "was", "wet", ".", "We", "sat", "in", ".", "Now", "it", "is", "dry", "."];
const tokenForm = document.getElementById("token-row");

function fillTokens() {
  for (const group of tokenForm.querySelectorAll("fieldset")) {
    group.append(...WORDS.map((word, number) => makeBar(group.dataset.kind, word, number)));
  }
}

// the form has a template per kind of bar, which differ in their ranges
function makeBar(kind, word, number) {
  const label = fromTemplate(`${kind}-bar`);
  label.querySelector(".word").textContent = word;
  label.control.setAttribute("aria-label", `${kind} of token ${number + 1}, “${word}”`);
  return label;
}

// Bars that were not moved follow their default, which is the encoding's decay; a reset moves all of them back.
function fitTokens({ encoding, colour }) {
  tokenForm.style.setProperty("--colour", colour);
  for (const input of tokenForm.elements.decay) input.defaultValue = encoding.decay;
  for (const input of tokenForm.elements.step) input.step = hasRealPowers(encoding) ? 0.05 : 1;
}

function tokensNow() {
  const values = (inputs) => [...inputs].map(({ value }) => Number(value));
  return { steps: values(tokenForm.elements.step), decays: values(tokenForm.elements.decay) };
}

// the style sheet fills a bar up to --part
function showBars() {
  showValues(tokenForm);
  for (const input of tokenForm.querySelectorAll("input")) {
    input.style.setProperty("--part", (input.value - input.min) / (input.max - input.min));
  }
}
