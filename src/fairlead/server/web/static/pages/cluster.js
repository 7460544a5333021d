/** The cluster: nodes by rack, their devices coloured by tenant, load by accelerator. */

import { get } from "../api.js";
import { Bar, Empty, Facts, Loaded, Section, Table, TenantName, colourClass, inColourOrder } from "../components.js";
import { counts, duration, figure, percent, plural } from "../format.js";
import { useLive } from "../live.js";
import { html, useState, withValue } from "../dom.js";

/** @typedef {Api.NodeView & {list: Api.DeviceView[]}} Node */

const MAX_TEMPERATURE_C = 90;
const SHOWN_CHANGES = 50;
const ACTIONS = { start: "starts", stop: "stops", move: "moves" };
/**
 * Readings that colour devices: fraction of the highest value, null where the driver tells none.
 * @type {Record<string, (health: Api.DeviceHealthView) => number | null>}
 */
const READINGS = {
  utilisation: (health) => health.utilisation,
  memory: (health) => (health.memory_used_gib === null || !health.memory_gib ? null : health.memory_used_gib / health.memory_gib),
  temperature: (health) => (health.temperature_c === null ? null : health.temperature_c / MAX_TEMPERATURE_C),
};

export function Cluster() {
  const cluster = useLive(async () => {
    const [about, round, nodes, devices, listed] = await Promise.all([
      get("/v1/about"),
      get("/v1/round"),
      get("/v1/nodes"),
      get("/v1/nodes/devices"),
      get("/v1/tenants"),
    ]);
    const byNode = new Map(devices.map(({ node, devices }) => [node, devices]));
    return { about, round, listed, nodes: nodes.map((node) => ({ ...node, list: byNode.get(node.id) ?? [] })) };
  }, [], { every: 5 });
  return html`<h1>Cluster</h1>
    <${Loaded} of=${cluster}>${(/** @type {object} */ data) => html`<${Overview} ...${data} />`}<//>`;
}

/** @param {{about: Api.AboutView, round: Api.RoundView, listed: Api.TenantView[], nodes: Node[]}} props */
function Overview({ about, round, listed, nodes }) {
  const [colour, setColour] = useState("tenant");
  if (nodes.length === 0) return html`<${Empty}>The cluster has no node yet.<//>`;
  const held = nodes.flatMap((node) => node.list).filter((device) => device.state === "held");
  const present = [...new Set(held.flatMap((device) => device.tenant ?? []))].sort();
  const tenants = inColourOrder(listed, present);
  const racks = [...new Set(nodes.map((node) => node.rack))].sort();
  return html`
    <${Section} title="Scheduling">
      <${Facts} facts=${[
        ["policy", about.policy],
        ["mechanism", about.mechanism],
        ["round", inWords(about.round_s, round.ends_at, about.now)],
        ["divides among", about.divides_among_tenants ? "tenants" : "jobs"],
        ["start of a lease", duration(about.start_s)],
        ["version", about.version],
      ]} />
    <//>
    <${Section} title="Load"><${Load} nodes=${nodes} prices=${about.usd_per_hour} /><//>
    <div class="filters">
      <label>Colours <select value=${colour} onChange=${withValue(setColour)}>
        ${["tenant", ...Object.keys(READINGS)].map((name) => html`<option value=${name}>by ${name}</option>`)}
      </select></label>
      ${colour !== "tenant" && nodes.every((node) => node.health.length === 0) &&
      html`<span class="help">No driver reports readings of these devices.</span>`}
    </div>
    <p class="legend" aria-label="Tenants">
      ${present.map((tenant) => html`<span><${TenantName} tenant=${tenant} tenants=${tenants} /></span>`)}
      ${held.some((device) => device.tenant === null) &&
      html`<span><span class="dot c-other" aria-hidden="true"></span>other tenants</span>`}
      <span><span class="dot c-free" aria-hidden="true"></span>free</span>
    </p>
    ${racks.map((rack) => html`<${Rack} key=${rack} rack=${rack} tenants=${tenants} colour=${colour}
      nodes=${nodes.filter((node) => node.rack === rack)} />`)}
    ${about.round_s !== null && html`<${NextRound} round=${round} now=${about.now} />`}
  `;
}

/** The jobs that the next round starts, stops or moves. @param {{round: Api.RoundView, now: number}} props */
function NextRound({ round, now }) {
  const { planned, changes, hidden } = round;
  const rows = changes.slice(0, SHOWN_CHANGES).map((change) => [
    html`<a href=${`#/jobs/${encodeURIComponent(change.job)}`}>${change.job}</a>`,
    change.tenant,
    ACTIONS[change.action],
    counts(change.accelerators),
  ]);
  return html`<${Section} title="Changes in the next round">
    ${!planned && html`<p class="help">${waitsFor(round, now)}</p>`}
    ${planned && changes.length + hidden === 0 && html`<${Empty}>Every job keeps its devices.<//>`}
    ${rows.length > 0 &&
    html`<${Table} caption="Jobs that start, stop or move" heads=${["job", "tenant", "change", "devices then"]} rows=${rows} />`}
    ${changes.length > rows.length && html`<p class="help">The first ${rows.length} of ${changes.length}.</p>`}
    ${hidden > 0 && html`<p class="help">${plural(hidden, "job")} of other tenants ${hidden === 1 ? "changes" : "change"}, too.</p>`}
  <//>`;
}

/** Return the reason for which no changes are known. @param {Api.RoundView} round @param {number} now */
function waitsFor({ ends_at: end, plan_at: plan }, now) {
  if (end === null) return "No round runs: the next plan is applied as soon as it is made.";
  if (plan !== null && plan > now) return `They are planned in ${duration(plan - now)}.`;
  return "They are being planned.";
}

/** Return the length and the end of the running round. @param {number | null} length @param {number | null} end @param {number} now */
function inWords(length, end, now) {
  if (length === null) return "none";
  return `${duration(length)}${end === null ? "" : `, ends in ${duration(Math.max(0, end - now))}`}`;
}

/** @param {{nodes: Node[], prices: Record<string, number>}} props */
function Load({ nodes, prices }) {
  const devices = nodes.flatMap((node) => node.list.map((device) => ({ ...device, up: node.up })));
  const accelerators = [...new Set(devices.map((device) => device.accelerator))].sort();
  return html`<div class="loads">
    ${accelerators.map((accelerator) => {
      const own = devices.filter((device) => device.accelerator === accelerator);
      const used = own.filter((device) => device.state !== "free").length;
      const down = own.filter((device) => !device.up).length;
      return html`<div key=${accelerator}>
        <strong>${accelerator}</strong>
        <${Bar} value=${used / own.length} label="load of ${accelerator}" />
        <span>${used} of ${own.length} used${down > 0 && `, ${down} down`}${
          prices[accelerator] !== undefined && `, ${figure(prices[accelerator])} USD/h each`}</span>
      </div>`;
    })}
  </div>`;
}

/** @param {{rack: string, nodes: Node[], tenants: string[], colour: string}} props */
function Rack({ rack, nodes, tenants, colour }) {
  return html`<${Section} title=${rack ? `Rack ${rack}` : "Nodes"}
    aside=${html`<span class="help">${plural(nodes.length, "node")}</span>`}>
    <div class="nodes">
      ${nodes.map((node) => html`<article class="node" key=${node.id}>
        <h3>${node.id} <${Condition} node=${node} /></h3>
        <ul class="squares">
          ${node.list.map((device, i) => html`<${Device} key=${i} device=${device} node=${node} tenants=${tenants}
            colour=${colour} health=${node.health.find(({ number }) => number === i)} />`)}
        </ul>
      </article>`)}
    </div>
  <//>`;
}

/** @param {{node: Node}} props */
function Condition({ node }) {
  const conditions = [!node.up && "down", node.drained && "drained", node.cordoned && "cordoned"];
  return conditions.filter(Boolean).map((text) => html`<span class="badge ${text}">${text}</span>`);
}

/** Return the readings of a device in words. @param {Api.DeviceHealthView | undefined} health */
function readings(health) {
  if (health === undefined) return "";
  const { fault, utilisation, memory_used_gib: used, memory_gib: memory, temperature_c: temperature, throttled } = health;
  const parts = [
    fault !== null && `fault: ${fault}`,
    utilisation !== null && `${percent(utilisation)} busy`,
    used !== null && `${figure(used)}${memory === null ? "" : ` of ${figure(memory)}`} GiB`,
    temperature !== null && `${figure(temperature)} °C`,
    throttled.length > 0 && `throttled: ${throttled.join(", ")}`,
  ];
  return parts.filter(Boolean).map((part) => `; ${part}`).join("");
}

/** Return the class of a reading, from heat1 to heat5. @param {number | null} fraction */
const heat = (fraction) =>
  fraction === null ? "c-free" : `heat${1 + Math.min(4, Math.max(0, Math.floor(5 * fraction)))} reading`;

/**
 * @param {{device: Api.DeviceView, node: Node, tenants: string[], colour: string, health: Api.DeviceHealthView | undefined}} props
 */
function Device({ device, node, tenants, colour, health }) {
  const { accelerator, state, tenant, jobs } = device;
  const use = state === "held" ? `${jobs.join(" and ") || "a job"} of ${tenant ?? "another tenant"}` : state;
  const byUse = state === "held" ? colourClass(tenant, tenants) : `c-${state}`;
  const shade = colour === "tenant" ? byUse : heat(health === undefined ? null : READINGS[colour](health));
  const label = `${accelerator}: ${node.up ? use : "down"}${readings(health)}`;
  const look = `square ${!node.up || (health?.fault ?? null) !== null ? "c-down" : shade}`;
  const text = jobs[0] ?? accelerator;
  return html`<li>
    ${jobs.length > 0
      ? html`<a class=${look} href=${`#/jobs/${encodeURIComponent(jobs[0])}`} title=${label} aria-label=${label}>${text}</a>`
      : html`<span class=${look} title=${label}><span aria-hidden="true">${text}</span><span class="hidden">${label}</span></span>`}
  </li>`;
}
