// The page's colours, light or dark, for Vega: the style sheet has them, so that a picture and its page agree.

const isDark = matchMedia("(prefers-color-scheme: dark)");

function theme() {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    ink: colour("ink"),
    soft: colour("soft"),
    line: colour("line"),
    page: colour("card"),
    less: colour("less"),
    more: colour("more"),
  };
}

function vegaConfig({ ink, soft, line }) {
  return {
    background: null,
    font: "system-ui, sans-serif",
    view: { stroke: null },
    axis: {
      domainColor: line,
      gridColor: line,
      tickColor: line,
      labelColor: soft,
      titleColor: soft,
      labelFontSize: 12,
      titleFontSize: 12,
      titleFontWeight: "normal",
      labelFont: "system-ui, sans-serif",
      titleFont: "system-ui, sans-serif",
      gridOpacity: 0.5,
      labelOverlap: true,
    },
  };
}
