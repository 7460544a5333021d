/** One job: progress, metrics, speeds, leases, log, explanation, and changes of it. */

import { get, jobPath, send } from "../api.js";
import { Curve } from "../charts.js";
import { Badge, Bar, Empty, Facts, Failure, Loaded, Section, Table } from "../components.js";
import { count, counts, duration, figure, percent, plural, time } from "../format.js";
import { useLive } from "../live.js";
import { html, useEffect, useState, withValue } from "../dom.js";
import { Log } from "./log.js";

const ENDED = ["finished", "failed", "cancelled"];
const SHOWN_LEASES = 20;

/** @typedef {(notice: import("../live.js").Notice) => boolean} Wants */
/** @typedef {{text: string[], speed: number, left_s?: {expected: number, low: number, high: number} | null}} Explained */

/** @param {{id: string, session: Api.SessionView}} props */
export function Job({ id, session }) {
  /** @type {Wants} */
  const wants = (notice) => notice.job === undefined || notice.job === id;
  const job = useLive(() => get(jobPath(id)), [id], { every: 3, wants });
  return html`<${Loaded} of=${job}>
    ${(/** @type {Api.JobView} */ data) => html`<${Page} job=${data} session=${session} wants=${wants} refresh=${job.refresh} />`}
  <//>`;
}

/** @param {{job: Api.JobView, session: Api.SessionView, wants: Wants, refresh: () => void}} props */
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
    <${Progress} job=${job} ended=${ended} speed=${explanation.speed} doubt=${explanation.doubt} />
    <${Metrics} job=${job} wants=${wants} />
    ${explanation.scheduled && html`<${Explanation} ...${explanation} />`}
    ${!ended && html`<${Speeds} job=${job} wants=${wants} />`}
    <${Log} id=${job.id} gang=${job.gang} ended=${ended} />
    <${Leases} job=${job} wants=${wants} />
    <${Details} job=${job} />
  `;
}

/** @param {{job: Api.JobView, session: Api.SessionView, ended: boolean, refresh: () => void}} props */
function Actions({ job, session, ended, refresh }) {
  const [error, setError] = useState(null);
  const [priority, setPriority] = useState(String(job.priority));
  useEffect(() => setPriority(String(job.priority)), [job.priority]);
  const owns = session.role === "admin" || (session.role === "tenant" && session.tenant === job.tenant);
  if (!owns) return null;
  const clone = html`<a class="button" href=${`#/submit?clone=${encodeURIComponent(job.id)}`}>Clone</a>`;
  if (ended) return html`<span class="actions">${clone}</span>`;
  /** @param {string} method @param {string} path @param {unknown} [body] */
  const act = async (method, path, body) => {
    try {
      await send(method, path, body);
      setError(null);
    } catch (problem) {
      setError(problem);
    }
    refresh();
  };
  /** @param {string} action */
  const post = (action) => () => void act("POST", jobPath(job.id, action));
  const cancel = () => confirm(`Cancel job ${job.id}?`) && post("cancel")();
  /** @param {SubmitEvent} event */
  const change = (event) => {
    event.preventDefault();
    void act("PATCH", jobPath(job.id), { priority: Number(priority) });
  };
  return html`<span class="actions">
      ${clone}
      ${job.state === "suspended"
        ? html`<button type="button" onClick=${post("resume")}>Resume</button>`
        : html`<button type="button" onClick=${post("suspend")}>Suspend</button>`}
      <button type="button" class="danger" onClick=${cancel}>Cancel</button>
      <form onSubmit=${change}>
        <label>Priority <input
          type="number" step="1" required value=${priority}
          onInput=${withValue(setPriority)} /></label>
        <button type="submit" disabled=${Number(priority) === job.priority}>Change</button>
      </form>
    </span>
    ${error && html`<${Failure} error=${error} />`}`;
}

/** @param {{job: Api.JobView, ended: boolean, speed: number | null, doubt: number}} props */
function Progress({ job, ended, speed, doubt }) {
  const done = job.total_steps ? job.steps_done / job.total_steps : null;
  const devices = job.devices ? counts(job.accelerators_held) : "none";
  return html`<${Section} title="Progress">
    ${done !== null && html`<${Bar} value=${done} label="progress" />`}
    <${Facts} facts=${[
      ["steps", `${count(job.steps_done)}${job.total_steps ? ` of ${count(job.total_steps)} (${percent(job.steps_done / job.total_steps)})` : ""}`],
      ["speed", job.steps_per_s === null ? "–" : `${figure(job.steps_per_s)} steps/s`],
      ["devices", devices],
      ended ? ["ended", time(job.ended_at)] : ["probable end", probableEnd(job, speed, doubt)],
      ["device hours", figure(job.device_hours)],
      ["preemptions", count(job.preemptions)],
      ["repeated work", duration(job.lost_s)],
    ]} />
  <//>`;
}

/**
 * Return when a job will probably end: from its present speed to its average under the policy.
 * @param {Api.JobView} job
 * @param {number | null} average steps per second
 * @param {number} doubt factor up and down from the average that holds its true value with 80 % probability
 */
function probableEnd(job, average, doubt) {
  if (!job.total_steps) return "unknown: it declares no number of steps";
  const left = Math.max(0, job.total_steps - job.steps_done);
  const speeds = [job.steps_per_s ?? 0, (average ?? 0) * doubt, (average ?? 0) / doubt];
  const ends = speeds.filter((speed) => speed > 0).map((speed) => left / speed);
  if (ends.length === 0) return "unknown: it has no speed yet";
  const [soonest, latest] = [Math.min(...ends), Math.max(...ends)];
  const range = latest - soonest < 0.05 * latest ? "" : ` to ${duration(latest)}`;
  return `in ${duration(soonest)}${range}`;
}

/** @param {{job: Api.JobView, wants: Wants}} props */
function Metrics({ job, wants }) {
  const metrics = useLive(() => get(jobPath(job.id, "metrics")), [job.id], { every: 5, wants });
  return html`<${Section} title="Metrics">
    <${Loaded} of=${metrics}>
      ${(/** @type {Api.JobMetrics} */ { history, last }) => {
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

/** Return the explanation of a job, asked for once: it costs the server several solutions. @param {Api.JobView} job */
function useExplanation(job) {
  const scheduled = ["queued", "running"].includes(job.state) && job.waits_for.length === 0;
  const [{ data, error }, setState] = useState(/** @type {{data: Explained | null, error: any}} */ ({ data: null, error: null }));
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
  const doubt = data?.left_s ? data.left_s.high / data.left_s.expected : 1;
  return { scheduled, text: data?.text ?? null, speed: data?.speed ?? null, doubt, error, load };
}

/** @param {{text: string[] | null, error: any, load: () => Promise<void>}} props */
function Explanation({ text, error, load }) {
  const again = html`<button type="button" onClick=${() => void load()}>Explain again</button>`;
  return html`<${Section} title=${"Why it waits, or runs where it runs"} aside=${again}>
    ${error && html`<p class="notice">${error.message}</p>`}
    ${text === null && error === null && html`<p class="notice loading">Computing…</p>`}
    ${text !== null && text.map((paragraph) => html`<p class="explained">${paragraph}</p>`)}
  <//>`;
}

/** @param {{job: Api.JobView, wants: Wants}} props */
function Speeds({ job, wants }) {
  const speeds = useLive(() => get(jobPath(job.id, "speeds")), [job.id], { every: 10, wants });
  return html`<${Section} title="Speeds">
    <${Loaded} of=${speeds}>
      ${(/** @type {Api.SpeedView[]} */ rows) => html`<${Table}
        caption="Believed speeds by accelerator"
        heads=${["accelerator", "gang", "believed", "source", "age", "now"]}
        figures=${[1, 2, 4, 5]}
        rows=${rows.map((speed) => [
          speed.accelerator,
          speed.placement === "spread" ? `${speed.gang} spread` : speed.gang,
          `${figure(speed.steps_per_s)}${speed.low === null ? "" : ` (${figure(speed.low)} to ${figure(speed.high)})`} steps/s`,
          speed.source,
          duration(speed.age_s),
          speed.accelerator === job.accelerator ? `${figure(job.steps_per_s)} steps/s` : "",
        ])}
      />`}
    <//>
  <//>`;
}

/** @param {{job: Api.JobView, wants: Wants}} props */
function Leases({ job, wants }) {
  const leases = useLive(() => get(jobPath(job.id, "leases")), [job.id], { every: 10, wants });
  return html`<${Section} title="Leases">
    <${Loaded} of=${leases}>
      ${(/** @type {Api.JobLeases} */ { ended }) =>
        ended.length === 0
          ? html`<${Empty}>No lease has ended.<//>`
          : html`<${Table}
              caption="Ended leases, the newest first"
              heads=${["lease", "devices", "nodes", "started", "held", "ended", "steps", "until the first step", "after the last step", "repeated"]}
              figures=${[4, 6, 7, 8, 9]}
              rows=${ended.toReversed().slice(0, SHOWN_LEASES).map((lease) => [
                lease.lease,
                counts(lease.accelerators),
                Object.keys(lease.nodes).join(", "),
                time(lease.started_at),
                duration(lease.ended_at - lease.started_at),
                lease.ending,
                count(lease.steps),
                duration(lease.start_s),
                duration(lease.end_s),
                duration(lease.lost_s),
              ])}
            />
            ${ended.length > SHOWN_LEASES &&
            html`<p class="help">The newest ${SHOWN_LEASES} of ${plural(ended.length, "ended lease")}.</p>`}`}
    <//>
  <//>`;
}

/** @param {{job: Api.JobView}} props */
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
    ["packed with", job.shares_with.join(", ") || (job.partners ? "jobs of other tenants" : "–")],
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
