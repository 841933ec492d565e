// Numbers as text for readers.

const thousands = (value) => Math.round(value).toLocaleString("en");
const tokens = (count) => `${count < 100 ? count.toFixed(1) : thousands(count)} tokens`;

// the power of ten above a value: 10⁻¹⁴ for 3e-15
function powerAbove(value) {
  if (value === 0) return "the last digit";
  const exponent = Math.ceil(Math.log10(value));
  const digits = [...String(Math.abs(exponent))].map((digit) => "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit]);
  return `10${exponent < 0 ? "⁻" : ""}${digits.join("")}`;
}

// at most four characters, which fit under a bar: .984, 1, 2.35
const short = (value) => String(Number(value.toFixed(3))).replace("0.", ".");

// the text of a slider's value, where it is not the number itself
const sliderWords = {
  base: (value) => thousands(10 ** value),
  length: (value) => thousands(2 ** value),
  fade: (value) => (decayOf(value) === 1 ? "none" : decayOf(value).toPrecision(4).replace(/0+$/, "")),
  step: short,
  decay: short,
};
