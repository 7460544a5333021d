/** Jobs: filter, search, order; only the rows in view are fetched and drawn. */

import { get, send, withQuery } from "../api.js";
import { Badge, Bar, Empty, Loaded } from "../components.js";
import { count, counts, percent, plural, time } from "../format.js";
import { useLive } from "../live.js";
import { html, useEffect, useRef, useState, withValue } from "../dom.js";

const ROW_PX = 38;
const STEP = 20;
const FETCHED = 60;
const STATES = ["queued", "running", "suspended", "finished", "failed", "cancelled"];
const TYPING_MS = 50;
const COLUMNS = [
  { name: "job", order: "submitted" },
  { name: "name", order: "name" },
  { name: "tenant", order: "tenant" },
  { name: "workload", order: "workload" },
  { name: "state", order: "state" },
  { name: "progress", order: "progress" },
  { name: "devices", order: null },
  { name: "priority", order: "priority" },
  { name: "submitted", order: null },
];

/** @typedef {{state: string, tenant: string, search: string, sort: string, descending: boolean}} Filter */
/** @typedef {(changed: Partial<Filter>) => void} Change */
/** @typedef {{rows: Api.JobView[], first: number, total: number}} Part of the list */

/** @param {{query: URLSearchParams}} props */
export function Jobs({ query }) {
  const [filter, setFilter] = useState(() => ({
    state: query.get("state") ?? "",
    tenant: query.get("tenant") ?? "",
    search: query.get("search") ?? "",
    sort: query.get("sort") ?? "submitted",
    descending: query.get("descending") !== "false",
  }));
  const [first, setFirst] = useState(0);
  const latest = useRef(filter);
  /** @type {Change} */
  const change = (changed) => {
    const next = (latest.current = { ...latest.current, ...changed });
    setFilter(next);
    setFirst(0);
    const shown = { ...next, descending: next.descending ? "" : "false" };
    history.replaceState(null, "", withQuery("#/jobs", shown));
  };
  const { state, ...others } = filter;
  const wanted = state === "unended" ? { ...others, unended: true } : filter;
  const page = useLive(
    async () => {
      const parameters = { ...wanted, offset: first, limit: FETCHED, count: true };
      const response = await send("GET", withQuery("/v1/jobs", parameters));
      const rows = await response.json();
      return { rows, first, total: Number(response.headers.get("Fairlead-Total")) };
    },
    [JSON.stringify(filter), first],
  );
  return html`
    <h1>Jobs</h1>
    <${Filters} filter=${filter} change=${change} />
    <${Loaded} of=${page}>
      ${(/** @type {Part} */ data) =>
        data.total === 0
          ? html`<${Empty}>No job matches.<//>`
          : html`<${Rows} page=${data} filter=${filter} change=${change} setFirst=${setFirst} />`}
    <//>
  `;
}

/** @param {{filter: Filter, change: Change}} props */
function Filters({ filter, change }) {
  const tenants = useLive(() => get("/v1/tenants"), [], { every: 0 });
  const [typed, setTyped] = useState(filter.search);
  const timer = useRef(0);
  /** @param {string} text */
  const search = (text) => {
    setTyped(text);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => change({ search: text }), TYPING_MS);
  };
  return html`<form class="filters" role="search" onSubmit=${(/** @type {Event} */ event) => event.preventDefault()}>
    <label>Search <input type="search" value=${typed} onInput=${withValue(search)} placeholder="id, name, workload…" /></label>
    <label>State
      <select value=${filter.state} onChange=${withValue((state) => change({ state }))}>
        <option value="">all</option>
        <option value="unended">not ended</option>
        ${STATES.map((state) => html`<option value=${state}>${state}</option>`)}
      </select>
    </label>
    <label>Tenant
      <select value=${filter.tenant} onChange=${withValue((tenant) => change({ tenant }))}>
        <option value="">all</option>
        ${(tenants.data ?? []).map(({ id }) => html`<option value=${id}>${id}</option>`)}
      </select>
    </label>
  </form>`;
}

/** @param {{page: Part, filter: Filter, change: Change, setFirst: (first: number) => void}} props */
function Rows({ page, filter, change, setFirst }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const scroll = () => {
    const top = Math.floor((place.current?.scrollTop ?? 0) / ROW_PX);
    setFirst(Math.max(0, STEP * Math.floor(top / STEP) - STEP));
  };
  useEffect(() => place.current?.scrollTo(0, 0), [JSON.stringify(filter)]);
  return html`
    <p class="help" role="status">${plural(page.total, "job")}</p>
    <div class="list" role="table" aria-label="Jobs" aria-rowcount=${page.total + 1}>
      <div role="rowgroup">
        <div class="row head" role="row">
          ${COLUMNS.map((column) => html`<${Head} ...${column} filter=${filter} change=${change} />`)}
        </div>
      </div>
      <div class="rows" role="rowgroup" ref=${place} onScroll=${scroll} tabindex="0" aria-label="Rows">
        <div style=${{ height: `${page.first * ROW_PX}px` }}></div>
        ${page.rows.map((job, i) => html`<${Row} key=${job.id} job=${job} index=${page.first + i} />`)}
        <div
          style=${{ height: `${Math.max(0, page.total - page.first - page.rows.length) * ROW_PX}px` }}
        ></div>
      </div>
    </div>
  `;
}

/** @param {{name: string, order: string | null, filter: Filter, change: Change}} props */
function Head({ name, order, filter, change }) {
  if (order === null) return html`<span class=${name} role="columnheader">${name}</span>`;
  const sorted = filter.sort === order;
  const descending = sorted ? !filter.descending : false;
  const direction = filter.descending ? "descending" : "ascending";
  return html`<span class=${name} role="columnheader" aria-sort=${sorted ? direction : "none"}>
    <button type="button" onClick=${() => change({ sort: order, descending })}>
      ${name}${sorted ? (filter.descending ? " ↓" : " ↑") : ""}
    </button>
  </span>`;
}

/** @param {{job: Api.JobView, index: number}} props */
function Row({ job, index }) {
  const done = job.total_steps ? job.steps_done / job.total_steps : null;
  return html`<div class="row" role="row" aria-rowindex=${index + 2}>
    <span class="job" role="cell"><a href=${`#/jobs/${encodeURIComponent(job.id)}`}>${job.id}</a></span>
    <span class="name" role="cell" title=${job.name}>${job.name}</span>
    <span class="tenant" role="cell" title=${job.tenant}>${job.tenant}</span>
    <span class="workload" role="cell" title=${job.workload}>${job.workload}</span>
    <span class="state" role="cell"><${Badge} state=${job.state} /></span>
    <span class="progress" role="cell">
      ${done === null
        ? `${count(job.steps_done)} steps`
        : html`<${Bar} value=${done} label="progress of ${job.id}" /><span class="value">${percent(done)}</span>`}
    </span>
    <span class="devices" role="cell">${job.devices ? counts(job.accelerators_held) : ""}</span>
    <span class="priority" role="cell">${job.priority}</span>
    <span class="submitted" role="cell">${time(job.submitted_at)}</span>
  </div>`;
}
