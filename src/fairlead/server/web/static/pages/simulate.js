/** Simulate and compare: policies on an uploaded or generated trace, in a process of its own. */

import { get, send } from "../api.js";
import { Badge, Bar, Empty, Failure, Loaded, Section, Table } from "../components.js";
import { time } from "../format.js";
import { useLive } from "../live.js";
import { html, useState, withValue } from "../dom.js";

const MAX_TRACE_BYTES = 2_000_000;
const SOURCES = { generated: "generated jobs", bundled: "the bundled trace, 120 jobs", file: "a file" };
const PATH = "/v1/simulations";

export function Simulate() {
  const runs = useLive(() => get(PATH), [], { every: 1.5, wants: () => false });
  const [error, setError] = useState(/** @type {any} */ (null));
  /** @param {() => Promise<unknown>} action */
  const act = async (action) => {
    try {
      await action();
      setError(null);
    } catch (problem) {
      setError(problem);
    }
    runs.refresh();
  };
  return html`<h1>Simulate and compare</h1>
    <p class="help">
      Compares policies on the same jobs in a simulation, beside the server: one at a time per tenant, for ten
      minutes of CPU time at most. It changes nothing on the cluster.
    </p>
    <${Form} start=${(/** @type {object} */ body) => act(() => send("POST", PATH, body))} setError=${setError} />
    ${error && html`<${Failure} error=${error} />`}
    <${Loaded} of=${runs}>
      ${(/** @type {Api.SimulationView[]} */ list) =>
        list.length === 0
          ? html`<${Empty}>You have run no simulation since the server started.<//>`
          : list.map((run) => html`<${Run} key=${run.id} run=${run} act=${act} />`)}
    <//>`;
}

/** @param {{start: (body: object) => Promise<void>, setError: (error: Error) => void}} props */
function Form({ start, setError }) {
  const names = useLive(() => get("/v1/policy/names"), [], { every: 0, wants: () => false });
  const [source, setSource] = useState("generated");
  /** @param {import("../dom.js").FormEvent} event */
  const submit = async (event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    /** @param {string} name */
    const text = (name) => String(form.get(name) ?? "").trim();
    const file = /** @type {File | null} */ (form.get("trace"));
    if (file !== null && file.size > MAX_TRACE_BYTES) {
      setError(new Error(`trace: ${file.size} bytes: expected at most ${MAX_TRACE_BYTES}`));
      return;
    }
    void start({
      policies: text("policies").split(/\s*;\s*|\s+/).filter(Boolean),
      ...(text("cluster") ? { cluster: text("cluster") } : {}),
      ...(text("speeds") ? { speeds: text("speeds") } : {}),
      ...(source === "bundled" ? { bundled: true } : {}),
      ...(file !== null ? { trace: await file.text() } : {}),
      ...(source === "generated" ? { jobs: Number(text("jobs")), jobs_per_hour: Number(text("jobs_per_hour")) } : {}),
    });
  };
  /** @param {string} name @param {string} label @param {string} help @param {object} attributes */
  const field = (name, label, help, attributes) => html`<div class="field">
    <label for=${`simulate-${name}`}>${label}</label>
    <input id=${`simulate-${name}`} name=${name} autocomplete="off" aria-describedby=${`help-${name}`} ...${attributes} />
    <small id=${`help-${name}`}>${help}</small>
  </div>`;
  return html`<form class="card" onSubmit=${submit}>
    <div class="columns">
      ${field("policies", "Policies", "separated by spaces; the first is the baseline", { required: true, defaultValue: "max-min fifo" })}
      ${field("cluster", "Cluster", "such as v100=8,k80=16; default v100=4/4,p100=4/4,k80=8/4", {})}
      ${field("speeds", "Speed table", "name of a bundled table; default gandiva-fair", {})}
      <div class="field"><label for="simulate-source">Trace</label>
        <select id="simulate-source" value=${source} onChange=${withValue(setSource)}>
          ${Object.entries(SOURCES).map(([name, label]) => html`<option value=${name}>${label}</option>`)}
        </select></div>
      ${source === "file" && field("trace", "File", "CSV or JSONL", { type: "file", required: true, accept: ".csv,.jsonl,.json,.trace,.txt" })}
      ${source === "generated" && field("jobs", "Generated jobs", "up to 2,000", { type: "number", min: 1, max: 2000, defaultValue: "100" })}
      ${source === "generated" && field("jobs_per_hour", "Jobs per hour", "arrivals of generated jobs", { type: "number", min: 0, step: "any", defaultValue: "3" })}
    </div>
    <p class="help">Installed policies: ${(names.data ?? []).join(", ")}.</p>
    <button type="submit" class="primary">Simulate</button>
  </form>`;
}

/** @param {{run: Api.SimulationView, act: (action: () => Promise<unknown>) => Promise<void>}} props */
function Run({ run, act }) {
  const cancel = () => act(() => send("POST", `${PATH}/${run.id}/cancel`));
  const download = () =>
    act(async () => {
      const response = await send("GET", `${PATH}/${run.id}/report`);
      const address = URL.createObjectURL(await response.blob());
      const link = document.createElement("a");
      link.href = address;
      link.download = "fairlead-comparison.html";
      link.click();
      URL.revokeObjectURL(address);
    });
  const aside = html`<span class="pager">
    <${Badge} state=${run.state === "done" ? "finished" : run.state} />
    ${run.state === "running" && html`<button type="button" onClick=${cancel}>Cancel</button>`}
    ${run.state === "done" && html`<button type="button" onClick=${download}>Download the report</button>`}
  </span>`;
  return html`<${Section} title=${run.policies.join(", ")} aside=${aside}>
    <p class="help">${run.cluster}, started ${time(run.started_at)}</p>
    ${run.state === "running" && html`<${Bar} value=${run.total ? run.done / run.total : 0} label="progress" />`}
    ${run.error && html`<p class="notice error">${run.error}</p>`}
    ${run.rows.length > 0 && html`<${Table} caption=${`Comparison ${run.id}`} heads=${run.heads} rows=${run.rows}
      figures=${run.heads.map((_, i) => i).slice(1)} />`}
  <//>`;
}
