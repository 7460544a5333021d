/** Tenants: entitled against received shares, quotas, usage, and their explanation. */

import { get, tenantPath } from "../api.js";
import { TimeLines } from "../charts.js";
import { Bar, Empty, Facts, Failure, Loaded, Section, Table } from "../components.js";
import { count, counts, figure, percent, time } from "../format.js";
import { useLive } from "../live.js";
import { html, useState, withValue } from "../dom.js";

const DAYS = 14;
const LITTLE = 0.005; // of the cluster: less is rounding
/** @typedef {[seconds: number, text: string][]} Durations */

/** @type {Durations} */
const SPANS = [
  [600, "10 minutes"], [3600, "1 hour"], [6 * 3600, "6 hours"], [86_400, "1 day"],
  [7 * 86_400, "1 week"], [35 * 86_400, "5 weeks"],
];
/** @type {Durations} */
const HALF_LIVES = [[300, "5 minutes"], [3600, "1 hour"], [86_400, "1 day"], [7 * 86_400, "1 week"]];
const NO_SHARE = { received: 0, entitled: 0, jobs: 0, running: 0, devices: {}, speed: 0, device_hours: 0 };

/** @typedef {Api.TenantView & {hours: number, share: typeof NO_SHARE}} Described with its shares, and the device hours of all */

/** @param {{session: Api.SessionView}} props */
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
      entitled to among the tenants with jobs. A tenant borrows the part above it from tenants with no more jobs to
      run, which lend theirs. The effective speed counts devices of average speed for the jobs that run.
    </p>
    <${Loaded} of=${tenants}>
      ${(/** @type {Described[]} */ list) =>
        list.length === 0
          ? html`<${Empty}>No tenant has submitted a job yet.<//>`
          : list.map((tenant) => html`<${Tenant} key=${tenant.id} tenant=${tenant} seesAll=${session.role !== "tenant"} />`)}
    <//>
    <${SharesOverTime} />
    ${session.role !== "tenant" && html`<${Trades} /><${Audit} />`}
    <${Usage} />`;
}

/** Entitled against received shares, at each time and as averages that fade. */
function SharesOverTime() {
  const [span, setSpan] = useState(3600);
  const [halfLife, setHalfLife] = useState(3600);
  const history = useLive(
    () => get("/v1/shares/history", { from: Date.now() / 1000 - span, half_life_s: halfLife }),
    [span, halfLife],
    { every: 30, wants: () => span <= 3600 },
  );
  /** @param {string} label @param {number} value @param {(seconds: number) => void} set @param {Durations} options */
  const choice = (label, value, set, options) =>
    html`<label>${label} <select value=${value} onChange=${withValue((text) => set(Number(text)))}>
      ${options.map(([seconds, text]) => html`<option value=${seconds}>${text}</option>`)}
    </select></label>`;
  return html`<${Section} title="Shares over time">
    <div class="filters">
      ${choice("Span", span, setSpan, SPANS)} ${choice("Half-life", halfLife, setHalfLife, HALF_LIVES)}
    </div>
    <p class="help">
      Parts of the cluster. The averages count a share half as much with every half-life that has
      passed since: a tenant that waited before may hold more now.
    </p>
    <${Loaded} of=${history}>
      ${(/** @type {Api.SharesHistory} */ { at, tenants }) =>
        tenants.length === 0
          ? html`<${Empty}>No tenant had a job in this time.<//>`
          : html`<div class="curves">
              ${tenants.map((tenant) => html`<div key=${tenant.tenant}>
                <h3>${tenant.tenant}</h3>
                <${TimeLines} label=${`shares of ${tenant.tenant} over time`} at=${at} lines=${[
                  { label: "received", colour: "accent", values: tenant.received },
                  { label: "entitled", colour: "text", dash: [6, 4], values: tenant.entitled },
                  { label: "received, average", colour: "c1", values: tenant.received_average },
                  { label: "entitled, average", colour: "c2", dash: [6, 4], values: tenant.entitled_average },
                ]} />
              </div>`)}
            </div>`}
    <//>
  <//>`;
}

/** Trades between tenants; nothing under a policy without them. */
function Trades() {
  const trades = useLive(() => get("/v1/policy/trades"), [], { every: 60, wants: () => false });
  if (trades.error !== null) return html`<${Section} title="Trades"><${Failure} error=${trades.error} /><//>`;
  if (!trades.data?.length) return null;
  return html`<${Section} title="Trades">
    <ul>
      ${trades.data.map(({ at, text }) => html`<li>${at !== null && html`<small>${time(at)} </small>`}${text}</li>`)}
    </ul>
  <//>`;
}

/** The fairness of the running policy, computed on demand. */
function Audit() {
  const [{ data, error, busy }, setState] = useState(
    /** @type {{data: Api.PolicyAudit | null, error: any, busy: boolean}} */ ({ data: null, error: null, busy: false }),
  );
  const load = async () => {
    setState({ data, error: null, busy: true });
    try {
      setState({ data: await get("/v1/policy/audit"), error: null, busy: false });
    } catch (problem) {
      setState({ data: null, error: problem, busy: false });
    }
  };
  const again = html`<button type="button" disabled=${busy} onClick=${() => void load()}>
    ${busy ? "Auditing…" : "Audit now"}
  </button>`;
  return html`<${Section} title="Audit of the running policy" aside=${again}>
    ${error && html`<${Failure} error=${error} />`}
    ${data === null
      ? !error && html`<p class="help">
          Measures envy, sharing incentive, efficiency and gains from misreported speeds on the
          present jobs, each with a witness.
        </p>`
      : html`<p class="help">${data.policy}, among ${data.by}. Compared with: ${data.compared_with}.</p>
          <${Table} caption="Audit" heads=${["figure", "value", "witness"]}
            rows=${data.figures.map(({ label, value, witness }) => [label, value, witness])} />`}
  <//>`;
}

/** @param {{tenant: Described, seesAll: boolean}} props */
function Tenant({ tenant, seesAll }) {
  const { share, hours } = tenant;
  const extra = share.received - share.entitled;
  /** @type {[string, unknown][]} */
  const facts = [
    ["receives now", percent(share.received)],
    ["entitled to", percent(share.entitled)],
    ["holds", share.running > 0 ? counts(share.devices) : null],
    ["borrows", extra > LITTLE ? percent(extra) : null],
    ["lends", share.jobs === share.running && extra < -LITTLE && share.jobs > 0 ? percent(-extra) : null],
    ["effective speed", share.running > 0 ? `${figure(share.speed)} average devices` : null],
    ["of all device hours", seesAll && hours > 0 ? percent(share.device_hours / hours) : null],
    ["device hours", figure(share.device_hours)],
    ["weight", figure(tenant.weight)],
    ["running jobs", count(share.running)],
    ["waiting for devices", count(share.jobs - share.running)],
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

/** @param {{id: string}} props */
function Explanation({ id }) {
  const [state, setState] = useState(/** @type {{text: string[] | null, error: any}} */ ({ text: null, error: null }));
  const load = async () => {
    try {
      const { text } = await get(`${tenantPath(id)}/explain`);
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
      ${(/** @type {Api.UsageView[]} */ rows) =>
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
