/** Tenants: entitled against received shares, quotas, usage, and their explanation. */

import { get } from "../api.js";
import { Bar, Empty, Facts, Failure, Loaded, Section, Table } from "../components.js";
import { count, counts, figure, percent } from "../format.js";
import { useLive } from "../live.js";
import { html, useState } from "../dom.js";

const DAYS = 14;
const NO_SHARE = { received: 0, entitled: 0, jobs: 0, device_hours: 0 };

/** @param {{session: any}} props */
export function Tenants({ session }) {
  const tenants = useLive(async () => {
    const [listed, shares] = await Promise.all([get("/v1/tenants"), get("/v1/shares")]);
    const byId = new Map(shares.map((share) => [share.tenant, share]));
    const hours = shares.reduce((sum, share) => sum + share.device_hours, 0);
    return listed.map((tenant) => ({ ...tenant, hours, share: byId.get(tenant.id) ?? NO_SHARE }));
  }, [], { every: 5 });
  return html`<h1>Tenants</h1>
    <p class="help">
      The bar is the part of the cluster that a tenant holds now; the mark is the part that it is
      entitled to among the tenants with jobs.
    </p>
    <${Loaded} of=${tenants}>
      ${(list) =>
        list.length === 0
          ? html`<${Empty}>No tenant has submitted a job yet.<//>`
          : list.map((tenant) => html`<${Tenant} key=${tenant.id} tenant=${tenant} seesAll=${session.role !== "tenant"} />`)}
    <//>
    <${Usage} />`;
}

function Tenant({ tenant, seesAll }) {
  const { share, hours } = tenant;
  const facts = [
    ["receives now", percent(share.received)],
    ["entitled to", percent(share.entitled)],
    ["of all device hours", seesAll && hours > 0 ? percent(share.device_hours / hours) : null],
    ["device hours", figure(share.device_hours)],
    ["weight", figure(tenant.weight)],
    ["active jobs", count(share.jobs)],
    ["guaranteed", Object.keys(tenant.guarantee).length > 0 ? counts(tenant.guarantee) : null],
    ["at most", Object.keys(tenant.limit).length > 0 ? counts(tenant.limit) : null],
    ["part of", tenant.parent],
  ];
  return html`<${Section} title=${tenant.id}>
    <${Bar} value=${share.received} mark=${share.entitled} label="share of ${tenant.id}" />
    <${Facts} facts=${facts.filter(([, value]) => value !== null)} />
    <${Explanation} id=${tenant.id} />
  <//>`;
}

function Explanation({ id }) {
  const [state, setState] = useState({ text: null, error: null });
  const load = async () => {
    try {
      const { text } = await get(`/v1/tenants/${id.split("/").map(encodeURIComponent).join("/")}/explain`);
      setState({ text, error: null });
    } catch (error) {
      setState({ text: null, error });
    }
  };
  return html`<button type="button" onClick=${() => void load()} aria-label="Explain the share of ${id}">
      Explain
    </button>
    ${state.error && html`<${Failure} error=${state.error} />`}
    ${state.text?.map((paragraph) => html`<p class="explained">${paragraph}</p>`)}`;
}

function Usage() {
  const from = new Date(Date.now() - (DAYS - 1) * 86_400_000).toISOString().slice(0, 10);
  const usage = useLive(() => get("/v1/usage", { from }), [from], { every: 60 });
  return html`<${Section} title=${`Device hours of the last ${DAYS} days`}>
    <${Loaded} of=${usage}>
      ${(rows) =>
        rows.length === 0
          ? html`<${Empty}>No device was used.<//>`
          : html`<${Table}
              caption="Device hours by day, tenant and accelerator"
              heads=${["day", "tenant", "accelerator", "device hours", "USD"]}
              figures=${[3, 4]}
              rows=${rows.toReversed().map((row) => [
                row.day,
                row.tenant,
                row.accelerator,
                figure(row.device_hours),
                row.usd === null ? "–" : figure(row.usd),
              ])}
            />`}
    <//>
  <//>`;
}
