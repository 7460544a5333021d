/** Parts that several pages share: states of data, badges, bars, tables. */

import { html } from "./dom.js";
import { percent } from "./format.js";

const COLOURS = 10;

/**
 * Show data, or the reason for which there are none.
 * @param {{of: {data: any, error: any, refresh: () => void}, children: (data: any) => any}} props
 */
export function Loaded({ of, children }) {
  const { data, error, refresh } = of;
  if (data === undefined && error === null) {
    return html`<p class="notice loading" role="status">Loading…</p>`;
  }
  if (data === undefined) return html`<${Failure} error=${error} retry=${refresh} />`;
  return html`${error && html`<${Failure} error=${error} retry=${refresh} />`}${children(data)}`;
}

/** @param {{error: any, retry?: () => void}} props */
export function Failure({ error, retry }) {
  if (error.status === 403) {
    return html`<p class="notice forbidden" role="alert">Not permitted: ${error.message}.</p>`;
  }
  return html`<p class="notice error" role="alert">
    ${error.message} ${retry && html`<button type="button" onClick=${retry}>Try again</button>`}
  </p>`;
}

/** @param {{children: any}} props */
export const Empty = ({ children }) => html`<p class="notice empty">${children}</p>`;

/** @param {{state: string}} props */
export const Badge = ({ state }) => html`<span class="badge ${state}">${state}</span>`;

/** @param {{value: number, label: string, mark?: number | null}} props fractions */
export function Bar({ value, label, mark = null }) {
  const width = Math.max(0, Math.min(1, value));
  return html`<span
    class="bar"
    role="meter"
    aria-label=${label}
    aria-valuemin="0"
    aria-valuemax="1"
    aria-valuenow=${width.toFixed(3)}
    aria-valuetext=${percent(value)}
    ><span class="fill" style=${{ width: `${100 * width}%` }}></span>${mark !== null &&
    html`<span class="mark" style=${{ left: `${100 * Math.min(1, mark)}%` }}></span>`}</span
  >`;
}

/** Return all tenants in the order of their colours. @param {{id: string}[]} listed @param {string[]} others */
export const inColourOrder = (listed, others) => [...new Set([...listed.map(({ id }) => id), ...others])].sort();

/** @param {{tenant: string, tenants: string[]}} props */
export const TenantName = ({ tenant, tenants }) =>
  html`<span class="dot ${colourClass(tenant, tenants)}" aria-hidden="true"></span>${tenant}`;

/** Return the class that colours a tenant; null: one that the reader may not see. @param {string | null} tenant @param {string[]} tenants */
export function colourClass(tenant, tenants) {
  const index = tenant === null ? -1 : tenants.indexOf(tenant);
  return index < 0 ? "c-other" : `c${index % COLOURS}`;
}

/** @param {{caption: string, heads: any[], rows: any[][], figures?: number[]}} props */
export function Table({ caption, heads, rows, figures = [] }) {
  /** @param {number} index */
  const look = (index) => (figures.includes(index) ? "figure" : "");
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${caption}>
    <table>
      <caption class="hidden">${caption}</caption>
      <thead>
        <tr>${heads.map((head, i) => html`<th scope="col" class=${look(i)}>${head}</th>`)}</tr>
      </thead>
      <tbody>
        ${rows.map(
          (row) => html`<tr>${row.map((cell, i) => html`<td class=${look(i)}>${cell}</td>`)}</tr>`,
        )}
      </tbody>
    </table>
  </div>`;
}

/** @param {{title: string, children: any, aside?: any}} props */
export const Section = ({ title, children, aside = null }) =>
  html`<section class="card"><header><h2>${title}</h2>${aside}</header>${children}</section>`;

/** @param {{facts: [string, any][]}} props */
export const Facts = ({ facts }) =>
  html`<dl class="facts">
    ${facts.map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}
  </dl>`;
