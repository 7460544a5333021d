// Draws the figures, switches their views, and follows the light or dark theme.
(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const dark = window.matchMedia("(prefers-color-scheme: dark)");

  const themed = (view) => {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const { data, layout: look } = structuredClone(view);
    for (const trace of data.filter((each) => each.meta === "reference")) {
      trace.line.color = colour("--ink");
    }
    look.font.color = colour("--ink");
    look.hoverlabel = { ...look.hoverlabel, bgcolor: colour("--panel"), bordercolor: colour("--line"),
      font: { color: colour("--ink") } };
    look.modebar = { bgcolor: "rgba(0,0,0,0)", color: colour("--soft"), activecolor: colour("--ink") };
    for (const key of Object.keys(look).filter((name) => /^[xy]axis\d*$/.test(name))) {
      Object.assign(look[key], { gridcolor: colour("--line"), linecolor: colour("--line"),
        zerolinecolor: colour("--line"), tickcolor: colour("--line") });
    }
    return { data, layout: look };
  };

  const draw = (id) => {
    const { views, chosen } = figures[id];
    // An explicit list of buttons: some versions of plotly add one that uploads the data.
    const config = { responsive: true, displaylogo: false, plotlyServerURL: "",
      modeBarButtons: [["toImage"], ["zoom2d", "pan2d", "zoomIn2d", "zoomOut2d", "resetScale2d"]],
      toImageButtonOptions: { format: "svg", filename: id } };
    const { data, layout } = themed(views[chosen]);
    Plotly.react(`plot-${id}`, data, layout, config);
    document.querySelectorAll(`#${id} .views button`).forEach((button, i) => {
      button.setAttribute("aria-pressed", String(i === chosen));
    });
  };

  for (const id of Object.keys(figures)) {
    document.querySelectorAll(`#${id} .views button`).forEach((button, i) => {
      button.addEventListener("click", () => { figures[id].chosen = i; draw(id); });
    });
    draw(id);
  }
  dark.addEventListener("change", () => Object.keys(figures).forEach(draw));
})();
