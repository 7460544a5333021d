/** Policy room: another policy, weights, quotas or devices, tried on a copy of the live state. */

import { get, send, tenantPath } from "../api.js";
import { Empty, Failure, Loaded, Section, Table } from "../components.js";
import { counts, figure } from "../format.js";
import { useLive } from "../live.js";
import { html, useState, withValue } from "../dom.js";

/** @typedef {Partial<Record<"weight" | "guarantee" | "limit", string>>} TenantTexts */
/** @typedef {{policy: string, tenants: Record<string, TenantTexts>, devices: Record<string, string>}} Wanted texts of the form */
/** @typedef {{policy?: string, tenants: (Partial<Api.ProposedTenant> & {id: string})[], devices: Record<string, number>}} Changes */

const SHOWN_JOBS = 200;
/** @type {Wanted} */
const UNCHANGED = { policy: "", tenants: {}, devices: {} };

export function PolicyRoom() {
  const present = useLive(async () => {
    const [policy, policies, tenants, about] = await Promise.all([
      get("/v1/policy"),
      get("/v1/policy/names"),
      get("/v1/tenants"),
      get("/v1/about"),
    ]);
    return { policy, policies, tenants, devices: about.cluster };
  }, [], { every: 0, wants: (notice) => /^(policy|tenants|nodes)/.test(notice.event) });
  return html`<h1>Policy room</h1>
    <p class="help">
      Changes here are tried on a copy of the present jobs and devices: nothing happens on the
      cluster until you apply them.
    </p>
    <${Loaded} of=${present}>${(/** @type {object} */ data) => html`<${Room} ...${data} />`}<//>`;
}

/** @param {{policy: Api.PolicyView, policies: string[], tenants: Api.TenantView[], devices: Record<string, number>}} props */
function Room({ policy, policies, tenants, devices }) {
  const [wanted, setWanted] = useState(UNCHANGED);
  const [{ result, request, attempts, error, busy }, setState] = useState(
    /** @type {{result: Api.Consequences | null, request: Changes | null, attempts: number, error: any, busy: boolean}} */ (
      { result: null, request: null, attempts: 0, error: null, busy: false }
    ),
  );
  /** @param {string} name @param {string} number */
  const setDevices = (name, number) => setWanted({ ...wanted, devices: { ...wanted.devices, [name]: number } });
  /** @param {string} id @param {TenantTexts} texts */
  const setTenant = (id, texts) => setWanted({ ...wanted, tenants: { ...wanted.tenants, [id]: texts } });
  /** @param {SubmitEvent} event */
  const attempt = async (event) => {
    event.preventDefault();
    const body = requestOf(wanted);
    setState({ result, request, attempts, error: null, busy: true });
    const done = { attempts: attempts + 1, busy: false };
    try {
      const response = await send("POST", "/v1/what-if", body);
      setState({ ...done, result: await response.json(), request: body, error: null });
    } catch (problem) {
      setState({ ...done, result: null, request: null, error: problem });
    }
  };
  return html`
    <form class="card" onSubmit=${attempt}>
      <div class="columns">
        <div class="field">
          <label for="policy">Policy</label>
          <input id="policy" list="policies" placeholder=${policy.policy} value=${wanted.policy}
            onInput=${withValue((name) => setWanted({ ...wanted, policy: name }))} />
          <datalist id="policies">${policies.map((name) => html`<option value=${name}></option>`)}</datalist>
        </div>
        ${Object.entries(devices).map(([name, number]) => html`<div class="field" key=${name}>
          <label for=${`devices-${name}`}>Devices: ${name}</label>
          <input id=${`devices-${name}`} type="number" min="0" step="1" placeholder=${number}
            value=${wanted.devices[name] ?? ""} onInput=${withValue((text) => setDevices(name, text))} />
        </div>`)}
      </div>
      ${tenants.length > 0 && html`<${TenantFields} tenants=${tenants} wanted=${wanted.tenants} set=${setTenant} />`}
      <button type="submit" class="primary" disabled=${busy}>${busy ? "Computing…" : "Show consequences"}</button>
      ${error && html`<${Failure} error=${error} />`}
    </form>
    ${result && html`<${Consequences} result=${result} />
      <${Apply} key=${attempts} request=${request} tenants=${tenants} onApplied=${() => setWanted(UNCHANGED)} />`}
  `;
}

/**
 * @param {{tenants: Api.TenantView[], wanted: Record<string, TenantTexts>, set: (id: string, texts: TenantTexts) => void}} props
 */
function TenantFields({ tenants, wanted, set }) {
  /** @param {string} id @param {keyof TenantTexts} name @param {string} type @param {string} shown */
  const input = (id, name, type, shown) => html`<input type=${type} step="any" min="0" aria-label=${`${name} of ${id}`}
    placeholder=${shown} value=${wanted[id]?.[name] ?? ""}
    onInput=${withValue((text) => set(id, { ...wanted[id], [name]: text }))} />`;
  return html`<${Table}
    caption="Weights and quotas"
    heads=${["tenant", "weight", "guaranteed, such as v100=2", "at most, or none"]}
    rows=${tenants.map(({ id, weight, guarantee, limit }) => [
      id,
      input(id, "weight", "number", figure(weight)),
      input(id, "guarantee", "text", written(guarantee)),
      input(id, "limit", "text", written(limit)),
    ])}
  />`;
}

/** @param {Record<string, number>} quota */
const written = (quota) => Object.entries(quota).map(([name, number]) => `${name}=${number}`).join(",");

/** Return a quota such as v100=2,k80=1 or none; NaN where a number is missing, which the server refuses. @param {string} text */
function quotaOf(text) {
  if (text.trim() === "none") return {};
  const entries = text.split(",").map((part) => part.split("=").map((side) => side.trim()));
  return Object.fromEntries(entries.map(([name, number]) => [name, Number(number || NaN)]));
}

/** Return the changes that were filled in. @param {Wanted} wanted @returns {Changes} */
function requestOf({ policy, tenants, devices }) {
  const changed = Object.entries(tenants).flatMap(([id, { weight, guarantee, limit }]) => {
    const fields = {
      ...(weight ? { weight: Number(weight) } : {}),
      ...(guarantee ? { guarantee: quotaOf(guarantee) } : {}),
      ...(limit ? { limit: quotaOf(limit) } : {}),
    };
    return Object.keys(fields).length === 0 ? [] : [{ id, ...fields }];
  });
  const counted = Object.entries(devices).filter(([, number]) => number !== "");
  return {
    ...(policy ? { policy } : {}),
    tenants: changed,
    devices: Object.fromEntries(counted.map(([name, number]) => [name, Number(number)])),
  };
}

/** @param {{result: Api.Consequences}} props */
function Consequences({ result }) {
  return html`
    <${Section} title=${`Tenants: ${result.policy_now} → ${result.policy_then}`}>
      <p class="help">
        Average devices and speed in the long run; the speed counts devices of average speed of the
        present cluster (${counts(result.devices_now)}).
      </p>
      ${result.stranded.length > 0 &&
      html`<p class="notice error">These jobs could no longer run: ${result.stranded.slice(0, 20).join(", ")}${result.stranded.length > 20 && ", …"}.</p>`}
      ${result.tenants.length === 0
        ? html`<${Empty}>No job can run now.<//>`
        : html`<${Table}
            caption="Consequences per tenant"
            heads=${["tenant", "devices now", "devices then", "speed now", "speed then", "change"]}
            figures=${[3, 4, 5]}
            rows=${result.tenants.map((tenant) => [
              tenant.tenant,
              used(tenant.devices_now),
              used(tenant.devices_then),
              figure(tenant.speed_now),
              figure(tenant.speed_then),
              change(tenant.speed_now, tenant.speed_then),
            ])}
          />`}
      ${result.trades.length > 0 && html`<h3>Trades</h3><ul>${result.trades.map((text) => html`<li>${text}</li>`)}</ul>`}
    <//>
    ${result.jobs.some((job) => job.then !== null)
      ? html`<${ChangedJobs} jobs=${result.jobs} />`
      : result.jobs.length > 0 &&
        html`<p class="help">${result.policy_then} divides among tenants, so it gives jobs no speeds to compare.</p>`}
  `;
}

/** Return devices without those of which there are none. @param {Record<string, number>} devices */
const used = (devices) => counts(Object.fromEntries(Object.entries(devices).filter(([, number]) => number > 0)));

/** @param {{jobs: Api.JobConsequence[]}} props */
function ChangedJobs({ jobs }) {
  const changed = jobs.filter((job) => job.now !== job.then);
  const shown = (changed.length > 0 ? changed : jobs).slice(0, SHOWN_JOBS);
  return html`<${Section} title=${changed.length > 0 ? "Jobs whose speed changes" : "Jobs"}>
      <${Table}
        caption="Consequences per job"
        heads=${["job", "tenant", "steps/s now", "steps/s then", "change"]}
        figures=${[2, 3, 4]}
        rows=${shown.map((job) => [
          html`<a href=${`#/jobs/${encodeURIComponent(job.id)}`}>${job.id}</a>`,
          job.tenant,
          figure(job.now),
          figure(job.then),
          change(job.now, job.then),
        ])}
      />
      ${changed.length > SHOWN_JOBS && html`<p class="help">The first ${SHOWN_JOBS} of ${changed.length}.</p>`}
    <//>`;
}

/** @param {number | null} now @param {number | null} then */
function change(now, then) {
  if (now === null || then === null) return "–";
  if (Math.abs(then - now) <= 1e-6 * Math.max(now, then)) return "none";
  if (now === 0) return "new";
  const percent = 100 * (then / now - 1);
  return `${percent > 0 ? "+" : "−"}${Math.abs(percent).toFixed(1)} %`;
}

/** @param {{request: Changes, tenants: Api.TenantView[], onApplied: () => void}} props */
function Apply({ request, tenants, onApplied }) {
  const [{ text, error }, setState] = useState({ text: "", error: null });
  const live = request.policy !== undefined || request.tenants.length > 0;
  if (!live) return html`<p class="help">Only the numbers of devices differ; the cluster itself decides them.</p>`;
  const apply = async () => {
    if (!confirm("Apply the policy, weights and quotas to the cluster now?")) return;
    try {
      for (const { id, ...fields } of request.tenants) {
        const tenant = tenants.find((each) => each.id === id);
        await send("PUT", tenantPath(id), { ...tenant, ...fields });
      }
      if (request.policy !== undefined) await send("PUT", "/v1/policy", { policy: request.policy });
      setState({ text: "Applied.", error: null });
      onApplied();
    } catch (problem) {
      setState({ text: "", error: problem });
    }
  };
  return html`<p class="actions">
      <button type="button" class="danger" onClick=${() => void apply()}>Apply to the cluster</button>
      <span role="status">${text}</span>
    </p>
    ${error && html`<${Failure} error=${error} />`}`;
}
