/** Speeds: workloads × accelerators as a heat map, with the source and age of each. */

import { get } from "../api.js";
import { Empty, Loaded } from "../components.js";
import { duration, figure } from "../format.js";
import { useLive } from "../live.js";
import { html } from "../dom.js";

const LEVELS = 5;

export function Speeds() {
  const speeds = useLive(() => get("/v1/speeds"), [], { every: 10 });
  return html`<h1>Speeds</h1>
    <p class="help">
      Steps per second that the scheduler believes of the workloads of unended jobs; the
      stronger the colour, the faster in its row. Measured speeds are bold, those of the speed table plain, assumed ones in
      italics.
    </p>
    <${Loaded} of=${speeds}>
      ${(list) =>
        list.length === 0
          ? html`<${Empty}>No job is active.<//>`
          : html`<${HeatMap} speeds=${list} />`}
    <//>`;
}

function HeatMap({ speeds }) {
  const accelerators = [...new Set(speeds.map((speed) => speed.accelerator))].sort();
  const rows = new Map();
  for (const speed of speeds) {
    const { workload, job, tenant } = speed;
    const label = workload || job || "–";
    const key = JSON.stringify([label, tenant]);
    if (!rows.has(key)) rows.set(key, { label, tenant, cells: new Map() });
    rows.get(key).cells.set(speed.accelerator, speed);
  }
  return html`<div class="card scroll" tabindex="0" role="region" aria-label="Believed speeds">
    <table class="heat">
      <caption class="hidden">Believed speeds by workload and accelerator</caption>
      <thead><tr>
        <th scope="col">workload</th><th scope="col">tenant</th>
        ${accelerators.map((name) => html`<th scope="col" class="figure">${name}</th>`)}
      </tr></thead>
      <tbody>${[...rows.values()].map((row) => html`<${Row} ...${row} accelerators=${accelerators} />`)}</tbody>
    </table>
  </div>`;
}

function Row({ label, tenant, cells, accelerators }) {
  const fastest = Math.max(...[...cells.values()].map((speed) => speed.steps_per_s));
  return html`<tr>
    <th scope="row">${label}</th>
    <td>${tenant ?? "all"}</td>
    ${accelerators.map((name) => {
      const speed = cells.get(name);
      if (speed === undefined) return html`<td class="figure">–</td>`;
      const level = Math.max(1, Math.ceil((LEVELS * speed.steps_per_s) / fastest));
      const age = speed.age_s === null ? "" : `, ${duration(speed.age_s)} ago`;
      const gang = speed.gang > 1 ? ` ×${speed.gang}` : "";
      return html`<td class="figure heat${level} ${speed.source}" title=${`${speed.source}${age}`}>
        ${figure(speed.steps_per_s)}${gang}<span class="hidden">, ${speed.source}${age}</span>
      </td>`;
    })}
  </tr>`;
}
