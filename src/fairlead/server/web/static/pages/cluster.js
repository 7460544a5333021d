/** The cluster: nodes by rack, their devices coloured by tenant, load by accelerator. */

import { get } from "../api.js";
import { Bar, Empty, Facts, Loaded, Section, TenantName, colourClass } from "../components.js";
import { duration, plural } from "../format.js";
import { useLive } from "../live.js";
import { html } from "../dom.js";

export function Cluster() {
  const cluster = useLive(async () => {
    const [about, nodes, devices] = await Promise.all([
      get("/v1/about"),
      get("/v1/nodes"),
      get("/v1/nodes/devices"),
    ]);
    const byNode = new Map(devices.map(({ node, devices }) => [node, devices]));
    return { about, nodes: nodes.map((node) => ({ ...node, list: byNode.get(node.id) ?? [] })) };
  }, [], { every: 5 });
  return html`<h1>Cluster</h1>
    <${Loaded} of=${cluster}>${(data) => html`<${Overview} ...${data} />`}<//>`;
}

function Overview({ about, nodes }) {
  if (nodes.length === 0) return html`<${Empty}>The cluster has no node yet.<//>`;
  const held = nodes.flatMap((node) => node.list).filter((device) => device.state === "held");
  const tenants = [...new Set(held.map((device) => device.tenant))].filter((name) => name !== null).sort();
  const racks = [...new Set(nodes.map((node) => node.rack))].sort();
  return html`
    <${Section} title="Scheduling">
      <${Facts} facts=${[
        ["policy", about.policy],
        ["mechanism", about.mechanism],
        ["round", about.round_s === null ? "none" : duration(about.round_s)],
        ["divides among", about.divides_among_tenants ? "tenants" : "jobs"],
        ["start of a lease", duration(about.start_s)],
        ["version", about.version],
      ]} />
    <//>
    <${Section} title="Load"><${Load} nodes=${nodes} /><//>
    <p class="legend" aria-label="Tenants">
      ${tenants.map((tenant) => html`<span><${TenantName} tenant=${tenant} tenants=${tenants} /></span>`)}
      ${held.some((device) => device.tenant === null) &&
      html`<span><span class="dot c-other" aria-hidden="true"></span>other tenants</span>`}
      <span><span class="dot c-free" aria-hidden="true"></span>free</span>
    </p>
    ${racks.map((rack) => html`<${Rack} key=${rack} rack=${rack} tenants=${tenants}
      nodes=${nodes.filter((node) => node.rack === rack)} />`)}
  `;
}

function Load({ nodes }) {
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
        <span>${used} of ${own.length} used${down > 0 && `, ${down} down`}</span>
      </div>`;
    })}
  </div>`;
}

function Rack({ rack, nodes, tenants }) {
  return html`<${Section} title=${rack ? `Rack ${rack}` : "Nodes"}
    aside=${html`<span class="help">${plural(nodes.length, "node")}</span>`}>
    <div class="nodes">
      ${nodes.map((node) => html`<article class="node" key=${node.id}>
        <h3>${node.id} <${Condition} node=${node} /></h3>
        <ul class="squares">
          ${node.list.map((device, i) => html`<${Device} key=${i} device=${device} node=${node} tenants=${tenants} />`)}
        </ul>
      </article>`)}
    </div>
  <//>`;
}

function Condition({ node }) {
  const conditions = [!node.up && "down", node.drained && "drained", node.cordoned && "cordoned"];
  return conditions.filter(Boolean).map((text) => html`<span class="badge ${text}">${text}</span>`);
}

function Device({ device, node, tenants }) {
  const { accelerator, state, tenant, jobs } = device;
  const use = state === "held" ? `${jobs.join(" and ") || "a job"} of ${tenant ?? "another tenant"}` : state;
  const colour = state === "held" ? colourClass(tenant, tenants) : `c-${state}`;
  const label = `${accelerator}: ${node.up ? use : "down"}`;
  const look = `square ${node.up ? colour : "c-down"}`;
  const text = jobs[0] ?? accelerator;
  return html`<li>
    ${jobs.length > 0
      ? html`<a class=${look} href=${`#/jobs/${encodeURIComponent(jobs[0])}`} title=${label} aria-label=${label}>${text}</a>`
      : html`<span class=${look} title=${label}><span aria-hidden="true">${text}</span><span class="hidden">${label}</span></span>`}
  </li>`;
}
