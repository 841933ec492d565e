// Typesets what pymdownx.arithmatex marked: \( ... \) in a line and \[ ... \] on its own, with the KaTeX of this folder.
document.addEventListener("DOMContentLoaded", () => {
  for (const element of document.querySelectorAll(".arithmatex")) {
    const written = element.textContent.trim();
    katex.render(written.slice(2, -2), element, { displayMode: written.startsWith("\\["), throwOnError: false });
  }
});
