/** One job: progress, metrics, speeds, leases, log, explanation, and changes of it. */

import { get, jobPath, send } from "../api.js";
import { Badge, Bar, Curve, Empty, Facts, Failure, Loaded, Section, Table } from "../components.js";
import { count, counts, duration, figure, percent, plural, time } from "../format.js";
import { useLive } from "../live.js";
import { html, useEffect, useState } from "../dom.js";
import { Log } from "./log.js";

const ENDED = ["finished", "failed", "cancelled"];
const SHOWN_LEASES = 20;

/** @param {{id: string, session: any}} props */
export function Job({ id, session }) {
  const wants = (notice) => notice.job === undefined || notice.job === id;
  const job = useLive(() => get(jobPath(id)), [id], { every: 3, wants });
  return html`<${Loaded} of=${job}>
    ${(data) => html`<${Page} job=${data} session=${session} wants=${wants} refresh=${job.refresh} />`}
  <//>`;
}

function Page({ job, session, wants, refresh }) {
  const ended = ENDED.includes(job.state);
  const explanation = useExplanation(job);
  return html`
    <div class="title">
      <h1>${job.id} ${job.name && html`<small>${job.name}</small>`}</h1>
      <${Badge} state=${job.state} />
      <${Actions} job=${job} session=${session} ended=${ended} refresh=${refresh} />
    </div>
    ${job.message && html`<p class="notice" role="status">${job.message}</p>`}
    ${job.suspicion && html`<p class="notice error">Suspicious report: ${job.suspicion}</p>`}
    <${Progress} job=${job} ended=${ended} speed=${explanation.speed} />
    <${Metrics} job=${job} wants=${wants} />
    ${explanation.scheduled && html`<${Explanation} ...${explanation} />`}
    ${!ended && html`<${Speeds} job=${job} wants=${wants} />`}
    <${Log} id=${job.id} gang=${job.gang} ended=${ended} />
    <${Leases} job=${job} wants=${wants} />
    <${Details} job=${job} />
  `;
}

function Actions({ job, session, ended, refresh }) {
  const [error, setError] = useState(null);
  const [priority, setPriority] = useState(String(job.priority));
  useEffect(() => setPriority(String(job.priority)), [job.priority]);
  const owns = session.role === "admin" || (session.role === "tenant" && session.tenant === job.tenant);
  if (!owns || ended) return null;
  const act = async (method, path, body) => {
    try {
      await send(method, path, body);
      setError(null);
    } catch (problem) {
      setError(problem);
    }
    refresh();
  };
  const post = (action) => () => void act("POST", jobPath(job.id, action));
  const cancel = () => confirm(`Cancel job ${job.id}?`) && post("cancel")();
  const change = (event) => {
    event.preventDefault();
    void act("PATCH", jobPath(job.id), { priority: Number(priority) });
  };
  return html`<span class="actions">
      ${job.state === "suspended"
        ? html`<button type="button" onClick=${post("resume")}>Resume</button>`
        : html`<button type="button" onClick=${post("suspend")}>Suspend</button>`}
      <button type="button" class="danger" onClick=${cancel}>Cancel</button>
      <form onSubmit=${change}>
        <label>Priority <input
          type="number" step="1" required value=${priority}
          onInput=${(event) => setPriority(event.target.value)} /></label>
        <button type="submit" disabled=${Number(priority) === job.priority}>Change</button>
      </form>
    </span>
    ${error && html`<${Failure} error=${error} />`}`;
}

function Progress({ job, ended, speed }) {
  const done = job.total_steps ? job.steps_done / job.total_steps : null;
  const devices = job.devices ? `${job.devices} ${job.accelerator}` : "none";
  return html`<${Section} title="Progress">
    ${done !== null && html`<${Bar} value=${done} label="progress" />`}
    <${Facts} facts=${[
      ["steps", `${count(job.steps_done)}${job.total_steps ? ` of ${count(job.total_steps)} (${percent(job.steps_done / job.total_steps)})` : ""}`],
      ["speed", job.steps_per_s === null ? "–" : `${figure(job.steps_per_s)} steps/s`],
      ["devices", devices],
      ["probable end", ended ? time(job.ended_at) : probableEnd(job, speed)],
      ["device hours", figure(job.device_hours)],
      ["preemptions", count(job.preemptions)],
      ["repeated work", duration(job.lost_s)],
    ]} />
  <//>`;
}

/**
 * Return when a job will probably end: from its present speed to its average under the policy.
 * @param {any} job
 * @param {number | null} average steps per second
 */
function probableEnd(job, average) {
  if (!job.total_steps) return "unknown: it declares no number of steps";
  const left = Math.max(0, job.total_steps - job.steps_done);
  const ends = [job.steps_per_s, average].filter((speed) => speed > 0).map((speed) => left / speed);
  if (ends.length === 0) return "unknown: it has no speed yet";
  const [soonest, latest] = [Math.min(...ends), Math.max(...ends)];
  const range = latest - soonest < 0.05 * latest ? "" : ` to ${duration(latest)}`;
  return `in ${duration(soonest)}${range}`;
}

function Metrics({ job, wants }) {
  const metrics = useLive(() => get(jobPath(job.id, "metrics")), [job.id], { every: 5, wants });
  return html`<${Section} title="Metrics">
    <${Loaded} of=${metrics}>
      ${({ history, last }) => {
        const names = Object.keys(history);
        if (names.length === 0) {
          return html`<${Empty}>The job has reported no metrics: <code>run.report(loss=…)</code>.<//>`;
        }
        return html`<div class="curves">
          ${names.map((name) => html`<div key=${name}>
            <p class="help">${name}: last value ${figure(last[name])}</p>
            <${Curve} title=${name} points=${history[name]} />
          </div>`)}
        </div>`;
      }}
    <//>
  <//>`;
}

/** Return the explanation of a job, asked for once: it costs the server several solutions. */
function useExplanation(job) {
  const scheduled = ["queued", "running"].includes(job.state) && job.waits_for.length === 0;
  const [{ data, error }, setState] = useState({ data: null, error: null });
  const load = async () => {
    try {
      setState({ data: await get(jobPath(job.id, "explain")), error: null });
    } catch (problem) {
      setState({ data: null, error: problem });
    }
  };
  useEffect(() => {
    if (scheduled) void load();
  }, [job.id, scheduled]);
  return { scheduled, text: data?.text ?? null, speed: data?.speed ?? null, error, load };
}

function Explanation({ text, error, load }) {
  const again = html`<button type="button" onClick=${() => void load()}>Explain again</button>`;
  return html`<${Section} title=${"Why it waits, or runs where it runs"} aside=${again}>
    ${error && html`<p class="notice">${error.message}</p>`}
    ${text === null && error === null && html`<p class="notice loading">Computing…</p>`}
    ${text !== null && text.map((paragraph) => html`<p class="explained">${paragraph}</p>`)}
  <//>`;
}

function Speeds({ job, wants }) {
  const speeds = useLive(() => get(jobPath(job.id, "speeds")), [job.id], { every: 10, wants });
  return html`<${Section} title="Speeds">
    <${Loaded} of=${speeds}>
      ${(rows) => html`<${Table}
        caption="Believed speeds by accelerator"
        heads=${["accelerator", "gang", "believed", "source", "age", "now"]}
        figures=${[1, 2, 4, 5]}
        rows=${rows.map((speed) => [
          speed.accelerator,
          speed.gang,
          `${figure(speed.steps_per_s)} steps/s`,
          speed.source,
          duration(speed.age_s),
          speed.accelerator === job.accelerator ? `${figure(job.steps_per_s)} steps/s` : "",
        ])}
      />`}
    <//>
  <//>`;
}

function Leases({ job, wants }) {
  const leases = useLive(() => get(jobPath(job.id, "leases")), [job.id], { every: 10, wants });
  return html`<${Section} title="Leases">
    <${Loaded} of=${leases}>
      ${({ ended }) =>
        ended.length === 0
          ? html`<${Empty}>No lease has ended.<//>`
          : html`<${Table}
              caption="Ended leases, the newest first"
              heads=${["lease", "devices", "nodes", "started", "held", "end", "steps", "start", "lost"]}
              figures=${[4, 6, 7, 8]}
              rows=${ended.toReversed().slice(0, SHOWN_LEASES).map((lease) => [
                lease.lease,
                counts(lease.accelerators),
                Object.keys(lease.nodes).join(", "),
                time(lease.started_at),
                duration(lease.ended_at - lease.started_at),
                lease.ending,
                count(lease.steps),
                duration(lease.start_s),
                duration(lease.lost_s),
              ])}
            />
            ${ended.length > SHOWN_LEASES &&
            html`<p class="help">The newest ${SHOWN_LEASES} of ${plural(ended.length, "ended lease")}.</p>`}`}
    <//>
  <//>`;
}

function Details({ job }) {
  const facts = [
    ["tenant", job.tenant],
    ["workload", job.workload || "–"],
    ["gang", job.gang],
    ["weight", job.weight],
    ["priority", job.priority],
    ["submitted", time(job.submitted_at)],
    ["started", time(job.started_at)],
    ["ended", time(job.ended_at)],
    ["accelerators used", job.accelerators_used.join(", ") || "–"],
    ["failures", job.failures],
    ["exit codes", job.exit_codes.join(" ") + (job.signal ? ` (${job.signal})` : "") || "–"],
    ["waits for", job.waits_for.join(", ") || "–"],
    ["preemption", `${job.preempt}${job.pinned ? ", pinned now" : ""}`],
    ["search", job.multijob ?? "–"],
    ["code", job.code_commit ? `${job.code_commit.slice(0, 12)}${job.code_dirty ? " with changes" : ""}` : "–"],
    ["container", job.container || "–"],
  ];
  return html`<${Section} title="Details">
    <${Facts} facts=${facts} />
    <p class="help">Command</p>
    <pre tabindex="0" aria-label="Command">${job.command.join(" ")}</pre>
  <//>`;
}
