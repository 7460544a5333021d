/** Hyperparameter searches: their list, and one of them with its trials and figures. */

import { get } from "../api.js";
import { Badge, Empty, Facts, Loaded, Section, Table } from "../components.js";
import { count, figure, time } from "../format.js";
import { useLive } from "../live.js";
import { html, useState, withValue } from "../dom.js";
import { Lines, ParallelCoordinates } from "../search-figures.js";

const SHOWN_LINES = 150;
const SHOWN_ROWS = 100;

/** @typedef {Api.TrialView & {best: number | null}} Trial ``best``: its best value of the metric */

/** @param {{query: URLSearchParams}} props */
export function Searches({ query }) {
  const [tenant, name] = [query.get("tenant"), query.get("name")];
  return tenant === null || name === null
    ? html`<${List} />`
    : html`<${Search} key=${`${tenant}/${name}`} tenant=${tenant} name=${name} />`;
}

function List() {
  const searches = useLive(() => get("/v1/searches"), [], { every: 10 });
  return html`<h1>Searches</h1>
    <p class="help">Jobs with the same <code>multijob</code>: the trials of <code>fairlead tune</code>, and sweeps.</p>
    <${Loaded} of=${searches}>
      ${(/** @type {Api.SearchView[]} */ list) =>
        list.length === 0
          ? html`<${Empty}>No search yet: <code>fairlead tune search.yaml train.py</code>.<//>`
          : html`<${Table}
              caption="Searches, the newest first"
              heads=${["search", "tenant", "submitted", "trials", "unended", "running", "device hours"]}
              figures=${[3, 4, 5, 6]}
              rows=${list.map((search) => [
                html`<a href=${address(search)}>${search.name}</a>`,
                search.tenant,
                time(search.submitted_at),
                count(search.trials),
                count(search.unended),
                count(search.running),
                figure(search.device_hours),
              ])}
            />`}
    <//>`;
}

/** @param {{tenant: string, name: string}} search */
const address = ({ tenant, name }) => `#/searches?${new URLSearchParams({ tenant, name })}`;

/** @param {{tenant: string, name: string}} props */
function Search({ tenant, name }) {
  const [metric, setMetric] = useState("");
  const [direction, setDirection] = useState("");
  const search = useLive(
    () => get("/v1/searches/trials", { tenant, name, ...(metric ? { metric } : {}) }),
    [tenant, name, metric],
    { every: 10, wants: () => false },
  );
  return html`<h1>${name} <small>${tenant}</small></h1>
    <p><a href="#/searches">All searches</a></p>
    <${Loaded} of=${search}>
      ${(/** @type {Api.SearchTrials} */ data) => {
        const sign = (direction || guess(data.metric)) === "least" ? -1 : 1;
        const trials = ranked(data.trials, sign);
        return html`
          <div class="filters">
            <label>Metric <select value=${data.metric ?? ""} onChange=${withValue(setMetric)}>
              ${data.search.metrics.map((one) => html`<option value=${one}>${one}</option>`)}
            </select></label>
            <label>Best is the <select value=${sign < 0 ? "least" : "greatest"} onChange=${withValue(setDirection)}>
              <option value="greatest">greatest value</option>
              <option value="least">least value</option>
            </select></label>
          </div>
          <${Summary} data=${data} trials=${trials} />
          <${Figures} data=${data} trials=${trials} sign=${sign} />
          <${Trials} data=${data} trials=${trials} />`;
      }}
    <//>`;
}

/** Return whether small values of a metric are probably good. @param {string | null} metric */
const guess = (metric) => (/loss|error|perplexity/i.test(metric ?? "") ? "least" : "greatest");

/** Return the trials, the best first and those without a report last. @param {Api.TrialView[]} trials @param {number} sign @returns {Trial[]} */
function ranked(trials, sign) {
  const known = trials.map((trial) => ({
    ...trial,
    best: trial.points.length === 0 ? null : sign * Math.max(...trial.points.map(({ value }) => sign * value)),
  }));
  /** @param {Trial} trial */
  const rank = (trial) => (trial.best === null ? -Infinity : sign * trial.best);
  return known.sort((a, b) => (rank(b) === rank(a) ? 0 : rank(b) - rank(a)));
}

/** @param {{data: Api.SearchTrials, trials: Trial[]}} props */
function Summary({ data, trials }) {
  const { search, metric } = data;
  const best = trials.find((trial) => trial.best !== null);
  return html`<${Section} title="Best so far">
    <${Facts} facts=${[
      [metric ?? "metric", best === undefined ? "no report yet" : figure(best.best)],
      ["trial", best === undefined ? "–" : html`<a href=${`#/jobs/${encodeURIComponent(best.job)}`}>${best.name || best.job}</a>`],
      ...(best === undefined ? [] : Object.entries(best.hyperparameters)),
      ["trials", `${count(search.trials)}, ${count(search.unended)} unended`],
      ["device hours", figure(search.device_hours)],
      ["submitted", time(search.submitted_at)],
    ]} />
  <//>`;
}

/** @param {{data: Api.SearchTrials, trials: Trial[], sign: number}} props */
function Figures({ data, trials, sign }) {
  const reported = trials.filter((trial) => trial.best !== null);
  if (reported.length === 0) return null;
  const shown = reported.slice(0, SHOWN_LINES).reverse(); // the best last, and so on top
  const note = reported.length > SHOWN_LINES ? ` The best ${SHOWN_LINES} of ${count(reported.length)} trials.` : "";
  const names = Object.keys(reported[0].hyperparameters).filter((name) => shown.every((trial) => name in trial.hyperparameters));
  const metric = data.metric ?? "";
  return html`
    <${Section} title=${`Best ${metric} over time`}>
      <${Lines} label=${`best ${metric} over time`} unit="minutes"
        lines=${[{ label: metric, places: improvements(data, sign) }]} />
    <//>
    <${Section} title="Learning curves">
      <p class="help">A line per trial; the best is highlighted.${note}</p>
      <${Lines} label=${`${metric} of ${shown.length} trials over their steps`} unit="steps"
        lines=${shown.map((trial) => ({
          label: trial.name || trial.job,
          places: trial.points.map(({ steps, value }) => ({ x: steps, y: value })),
        }))} />
    <//>
    ${names.length > 0 && html`<${Section} title="Parallel coordinates">
      <p class="help">A line per trial, through its hyperparameters to its best ${metric}.${note}</p>
      <${ParallelCoordinates} label=${`hyperparameters and best ${metric} of ${shown.length} trials`}
        names=${[...names, metric]}
        rows=${shown.map((trial) => ({
          label: trial.name || trial.job,
          values: [...names.map((name) => trial.hyperparameters[name]), String(trial.best)],
        }))} />
    <//>`}`;
}

/** Return the best value so far over time, as steps. @param {Api.SearchTrials} data @param {number} sign */
function improvements(data, sign) {
  const reports = data.trials.flatMap((trial) => trial.points).sort((a, b) => a.at - b.at);
  /** @param {number} at */
  const minutes = (at) => Math.max(0, (at - data.search.submitted_at) / 60);
  /** @type {{x: number, y: number}[]} */
  const places = [];
  for (const { at, value } of reports) {
    const last = places.at(-1);
    if (last !== undefined && sign * value <= sign * last.y) continue;
    if (last !== undefined) places.push({ x: minutes(at), y: last.y });
    places.push({ x: minutes(at), y: value });
  }
  const end = reports.at(-1);
  if (end !== undefined) places.push({ x: minutes(end.at), y: places[places.length - 1].y });
  return places;
}

/** @param {{data: Api.SearchTrials, trials: Trial[]}} props */
function Trials({ data, trials }) {
  const names = [...new Set(trials.flatMap((trial) => Object.keys(trial.hyperparameters)))];
  const clones = trials.some((trial) => trial.start_from !== null);
  return html`<${Section} title="Trials">
    ${trials.length > SHOWN_ROWS && html`<p class="help">The best ${SHOWN_ROWS} of ${count(trials.length)}.</p>`}
    <${Table}
      caption="Trials, the best first"
      heads=${["trial", ...names, data.metric ?? "metric", "steps", "device hours", ...(clones ? ["continues"] : []), "state"]}
      rows=${trials.slice(0, SHOWN_ROWS).map((trial) => [
        html`<a href=${`#/jobs/${encodeURIComponent(trial.job)}`}>${trial.name || trial.job}</a>`,
        ...names.map((name) => trial.hyperparameters[name] ?? "–"),
        figure(trial.best),
        count(trial.steps_done),
        figure(trial.device_hours),
        ...(clones ? [trial.start_from ?? "–"] : []),
        html`<${Badge} state=${trial.state} />`,
      ])}
    />
  <//>`;
}
