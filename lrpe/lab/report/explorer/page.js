// The page: two panels with their pictures side by side, redrawn on every change.

const sharedForm = document.getElementById("shared");
const wishes = Object.keys(pageData.wishes);
const pictures = [
  kernelPicture,
  ...(wishes.length ? [wishPicture] : []), // without a wish, there is nothing to compare with
  scoresPicture,
  featuresPicture,
  pathPicture,
  spectrumPicture,
  deltaPicture,
];
document.getElementById("wish").hidden = wishes.length === 0;
sharedForm.elements.wish.append(...wishes.map((name) => new Option(name, name)));
const shown = methodsInAddress();
const panels = ["A", "B"].map((letter, number) => makePanel(letter, shown[number] ?? pageData.shown[number]));
const tokenChart = makeChart(weightsPicture, "A");
let colours = theme();

// the methods of "explorer.html#left=NAME&right=NAME"; undefined where the address has no known name
function methodsInAddress() {
  const address = new URLSearchParams(location.hash.slice(1));
  return ["left", "right"].map((side) => address.get(side)).map((name) => (pageData.methods[name] ? name : undefined));
}

function fromTemplate(name) {
  return document.getElementById(name).content.cloneNode(true).firstElementChild;
}

function makePanel(letter, method) {
  const details = fromTemplate("panel");
  const form = details.querySelector("form");
  details.querySelector(".badge").textContent = letter;
  form.setAttribute("aria-label", `Encoding ${letter}`);
  fillPanel(form, method);
  document.getElementById("panels").append(details);
  return { details, form, charts: pictures.map((picture) => makeChart(picture, letter)) };
}

function makeChart(picture, letter) {
  const section = document.getElementById(picture.section);
  const figure = section.querySelector(".pair").appendChild(fromTemplate("figure"));
  figure.querySelector(".badge").textContent = letter;
  return { picture, figure, heading: section.querySelector("h2").textContent, box: figure.querySelector(".place") };
}

// everything that the pictures of a panel are drawn from
function seenIn(form) {
  const [choice, shared] = [choiceOf(form), choiceOf(sharedForm)];
  const encoding = encodingOf(choice, shared.dim);
  const [q, k] = contents[shared.content](encoding.dim, shared);
  return { encoding, q, k, shared, theme: colours, scale: size(q) * size(k) || 1, ...lookOf(choice) };
}

function drawPanel({ details, form, charts }) {
  showWhatMatters(form);
  showValues(form);
  const seen = seenIn(form);
  nameIt(details, seen);
  return Promise.all(charts.map((chart) => drawChart(chart, seen)));
}

function drawChart({ picture, figure, heading, box, view }, seen) {
  const drawn = picture.draw(seen);
  nameIt(figure, seen);
  figure.querySelector(".says").textContent = drawn.says;
  box.setAttribute("aria-label", `${heading}: ${seen.title}. ${drawn.says}`);
  return drawView(view, drawn);
}

function drawTokens() {
  const seen = seenIn(panels[0].form);
  fitTokens(seen);
  showBars();
  return drawChart(tokenChart, { ...seen, tokens: tokensNow() });
}

function nameIt(element, { title, colour }) {
  element.style.setProperty("--colour", colour);
  element.querySelector(".title").textContent = title;
}

function drawAll() {
  showWhatMatters(sharedForm);
  showValues(sharedForm);
  return Promise.all([...panels.map(drawPanel), drawTokens()]);
}

async function build() {
  colours = theme();
  await Promise.all([...panels.flatMap((panel) => panel.charts), tokenChart].map(buildChart));
  await drawAll();
}

async function buildChart(chart) {
  chart.view?.finalize();
  chart.view = await makeView(chart.picture, chart.box, colours);
}

// run a task at most once per frame, however fast a slider moves
const waiting = new Set();
function soon(task) {
  if (waiting.size === 0) requestAnimationFrame(runWaiting);
  waiting.add(task);
}

function runWaiting() {
  const tasks = [...waiting];
  waiting.clear();
  tasks.forEach((task) => task());
}

function listen() {
  for (const panel of panels) {
    const redraw = () => drawPanel(panel);
    panel.form.addEventListener("input", ({ target }) => {
      follow(panel.form, target);
      soon(redraw);
    });
  }
  for (const form of [panels[0].form, tokenForm]) form.addEventListener("input", () => soon(drawTokens));
  tokenForm.addEventListener("reset", () => soon(drawTokens)); // the bars move back before the next frame
  sharedForm.addEventListener("input", () => soon(drawAll));
  isDark.addEventListener("change", rebuild);
  addEventListener("resize", rebuildIfWidthChanged);
}

let [building, width] = [Promise.resolve(), innerWidth];
const rebuild = () => (building = building.then(build)); // builds never overlap

// a change in height alone is a phone's address bar, which needs no rebuild
function rebuildIfWidthChanged() {
  if (innerWidth !== width) soon(rebuild);
  width = innerWidth;
}

// on narrow screens, forms start closed and at most one is open
if (!matchMedia("(min-width: 64rem)").matches) {
  for (const details of document.querySelectorAll(".choices")) Object.assign(details, { open: false, name: "choices" });
}
fillTokens();
showRefusals(document.getElementById("refused"));
const ready = rebuild().then(listen);
