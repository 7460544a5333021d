/** Speeds: workloads × accelerators as a heat map, with the source and age of each. */

import { get } from "../api.js";
import { Empty, Loaded, Section, Table } from "../components.js";
import { duration, figure, percent } from "../format.js";
import { useLive } from "../live.js";
import { html } from "../dom.js";

/** @typedef {{label: string, tenant: string | null, cells: Map<string, Api.SpeedView[]>}} WorkloadRow */

const LEVELS = 5;
const SHOWN_MEASURED = 200;

export function Speeds() {
  const speeds = useLive(() => get("/v1/speeds"), [], { every: 10 });
  return html`<h1>Speeds</h1>
    <p class="help">
      Steps per second that the scheduler believes of the workloads of unended jobs; the
      stronger the colour, the faster in its row. Measured speeds are bold, those of the speed table plain, assumed ones in
      italics, with the range of 80 % probability where the server states one. “Spread” marks
      gangs on more nodes than they need, where their speed differs. The bars of a row
      have the same logarithmic scale: a mark at the speed, a line over that range.
    </p>
    <${Loaded} of=${speeds}>
      ${(/** @type {Api.SpeedView[]} */ list) =>
        list.length === 0
          ? html`<${Empty}>No job is active.<//>`
          : html`<${HeatMap} speeds=${list} />`}
    <//>
    <${Measured} />`;
}

/** Measured speeds beside those of the speed table. */
function Measured() {
  const measured = useLive(() => get("/v1/speeds/measured"), [], { every: 10 });
  return html`<${Section} title="Measured against the speed table">
    <${Loaded} of=${measured}>
      ${(/** @type {Api.MeasuredSpeedView[]} */ list) =>
        list.length === 0
          ? html`<${Empty}>No job has measured a speed yet.<//>`
          : html`<${Table}
              caption="Measured speeds, in steps per second"
              heads=${["workload", "tenant", "accelerator", "gang", "measured", "table", "difference", "age"]}
              figures=${[3, 4, 5, 6, 7]}
              rows=${list.slice(0, SHOWN_MEASURED).map((speed) => [
                speed.workload || speed.job,
                speed.tenant,
                speed.accelerator,
                gangText(speed),
                speed.steps_per_s === 0 ? "out of memory" : figure(speed.steps_per_s),
                figure(speed.table_steps_per_s),
                difference(speed),
                duration(speed.age_s),
              ])}
            />
            ${list.length > SHOWN_MEASURED && html`<p class="help">The first ${SHOWN_MEASURED} of ${list.length}.</p>`}`}
    <//>
  <//>`;
}

/** Return the devices of a gang: "4", or "4 spread". @param {Api.MeasuredSpeedView} speed */
function gangText({ gang, placement }) {
  return placement === "spread" ? `${gang} spread` : gang;
}

/** Return by how much a measured speed differs from the table's. @param {Api.MeasuredSpeedView} speed */
function difference({ steps_per_s: measured, table_steps_per_s: table }) {
  if (!table || measured === 0) return "–";
  const part = measured / table - 1;
  return `${part < 0 ? "−" : "+"}${percent(Math.abs(part))}`;
}

/** @param {{speeds: Api.SpeedView[]}} props */
function HeatMap({ speeds }) {
  const accelerators = [...new Set(speeds.map((speed) => speed.accelerator))].sort();
  /** @type {Map<string, WorkloadRow>} */
  const rows = new Map();
  for (const speed of speeds) {
    const { workload, job, tenant } = speed;
    const label = workload || job || "–";
    const key = JSON.stringify([label, tenant]);
    const row = rows.get(key) ?? { label, tenant, cells: new Map() };
    rows.set(key, row);
    const { cells } = row;
    cells.set(speed.accelerator, [...(cells.get(speed.accelerator) ?? []), speed]); // one per size and placement of gang
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

/** @param {WorkloadRow & {accelerators: string[]}} props */
function Row({ label, tenant, cells, accelerators }) {
  const all = [...cells.values()].flat();
  const fastest = Math.max(...all.map((speed) => speed.steps_per_s));
  const scale = logScale(all.flatMap(({ steps_per_s: speed, low, high }) => [low ?? speed, high ?? speed]));
  return html`<tr>
    <th scope="row">${label}</th>
    <td>${tenant ?? "all"}</td>
    ${accelerators.map((name) => {
      const speeds = cells.get(name);
      if (speeds === undefined) return html`<td class="figure">–</td>`;
      const highest = Math.max(...speeds.map((speed) => speed.steps_per_s));
      const level = fastest > 0 ? Math.max(1, Math.ceil((LEVELS * highest) / fastest)) : 1;
      return html`<td class="figure heat${level}">${speeds.map((speed) => html`<${Speed} ...${speed} scale=${scale} />`)}</td>`;
    })}
  </tr>`;
}

/** @param {Api.SpeedView & {scale: (speed: number) => number}} props */
function Speed({ steps_per_s: speed, gang, placement, source, age_s: age, low, high, scale }) {
  const origin = `${source}${age === null ? "" : `, ${duration(age)} ago`}`;
  return html`<div class=${source} title=${origin}>
    ${figure(speed)}${gang > 1 && ` ×${gang}`}${placement === "spread" && " spread"}${low !== null && high !== null &&
    html` <small>${figure(low)} to ${figure(high)}</small>`}<span class="hidden">, ${origin}</span>
    ${speed > 0 && html`<${ErrorBar} at=${scale(speed)} from=${scale(low ?? speed)} to=${scale(high ?? speed)} />`}
  </div>`;
}

/** A mark at a speed, and a line over its range of 80 % probability; the text beside it says the same.
 * @param {{at: number, from: number, to: number}} props */
function ErrorBar({ at, from, to }) {
  return html`<svg class="error-bar" viewBox="-2 0 104 10" preserveAspectRatio="none" aria-hidden="true">
    <path d=${`M${from} 5H${to}M${from} 2V8M${to} 2V8`} />
    <path class="mark" d=${`M${at} 0V10`} />
  </svg>`;
}

/** Return the places, from 0 to 100, of speeds on a logarithmic axis that has room for these.
 * @param {number[]} speeds @returns {(speed: number) => number} */
function logScale(speeds) {
  const logs = speeds.filter((speed) => speed > 0).map(Math.log);
  const least = Math.min(...logs);
  const width = Math.max(...logs) - least;
  return (speed) => (width > 0 ? Math.round((1000 * (Math.log(speed) - least)) / width) / 10 : 50);
}
