/** Timeline: devices × time, coloured by tenant, job or accelerator; a click opens the job. */

import { get, withQuery } from "../api.js";
import { Empty, Loaded, Section, Table, TenantName, inColourOrder } from "../components.js";
import { figure, plural, time } from "../format.js";
import { useLive } from "../live.js";
import { html, useDark, useEffect, useRef, useState, withValue } from "../dom.js";
import { GUTTER, MARKS, deviceAt, draw, rowHeight } from "../timeline-drawing.js";

/** @type {[seconds: number, text: string][]} */
const SPANS = [
  [60, "1 minute"], [600, "10 minutes"], [3600, "1 hour"], [6 * 3600, "6 hours"],
  [86_400, "1 day"], [7 * 86_400, "1 week"], [35 * 86_400, "5 weeks"],
];
const [MIN_SPAN, MAX_SPAN] = [2, 35 * 86_400];
const MAX_DEVICES = 1000;
const MAX_COLUMNS = 600;
const SHOWN_JOBS = 50;
const LONG_SPAN = 6 * 3600; // a few seconds more change no column of it

/** @typedef {{span: number, end: number | null}} View ``end`` null: follows the present */
/** @typedef {import("../timeline-drawing.js").Job} Job */
/** @typedef {import("../timeline-drawing.js").Shown & {listed: Api.TenantView[]}} Shown */
/** @typedef {(part: number) => void} Move by a part of the span */
/** @typedef {(factor: number, at?: number) => void} Zoom around a part of the span */

/** @param {{query: URLSearchParams}} props */
export function Timeline({ query }) {
  const [view, keepView] = useState(/** @type {View} */ (initialView(query)));
  /** @param {View} next */
  const setView = (next) => {
    keepView(next);
    const times = next.end === null ? { span: next.span } : { from: next.end - next.span, to: next.end };
    history.replaceState(null, "", withQuery("#/timeline", times));
  };
  const [colour, setColour] = useState("tenant");
  const [offset, setOffset] = useState(0);
  const skew = useRef(0); // of this machine's clock
  const now = () => Date.now() / 1000 + skew.current;
  const follows = view.end === null;
  const load = async () => {
    const end = view.end ?? now();
    const range = { from: end - view.span, to: end };
    const size = { columns: MAX_COLUMNS, offset, limit: MAX_DEVICES };
    const [data, listed] = await Promise.all([get("/v1/timeline", { ...range, ...size }), get("/v1/tenants")]);
    skew.current = data.now - Date.now() / 1000;
    return { ...data, jobs: rowsOf(data.jobs), listed };
  };
  const changing = view.span <= LONG_SPAN;
  const timeline = useLive(load, [view.span, view.end, offset], {
    every: follows ? (changing ? 5 : 60) : 0,
    wants: (notice) => follows && changing && /^(lease|job|node)/.test(notice.event),
  });
  /** @type {Move} */
  const move = (part) => setView({ span: view.span, end: notAfter((view.end ?? now()) + part * view.span, now()) });
  /** @type {Zoom} */
  const zoom = (factor, at = 0.5) => {
    const [span, end] = [Math.min(MAX_SPAN, Math.max(MIN_SPAN, view.span * factor)), view.end ?? now()];
    const centre = end - (1 - at) * view.span;
    setView({ span, end: follows ? null : notAfter(centre + (1 - at) * span, now()) });
  };
  return html`<h1>Timeline</h1>
    <${Controls} view=${view} setView=${setView} move=${move} zoom=${zoom} colour=${colour} setColour=${setColour} />
    <${Loaded} of=${timeline}>
      ${(/** @type {Shown} */ data) => html`
        <${Chart} data=${data} view=${{ span: view.span, end: view.end ?? data.end }} colour=${colour} move=${move} zoom=${zoom} />
        <${Pager} total=${data.total_devices} offset=${offset} setOffset=${setOffset} />
        <${JobsOf} data=${data} />
      `}
    <//>`;
}

/** Return columns as a list of rows. @param {Api.TimelineJobs} columns @returns {Job[]} */
function rowsOf({ id, tenant, kept, device_s, preemptions, failures }) {
  return id.map((_, i) => ({
    id: id[i],
    tenant: tenant[i],
    kept: kept[i],
    device_s: device_s[i],
    preemptions: preemptions[i],
    failures: failures[i],
  }));
}

/** @param {URLSearchParams} query */
function initialView(query) {
  const [from, to] = [Number(query.get("from")), Number(query.get("to"))];
  if (to > from && from > 0) return { span: to - from, end: to };
  const span = Number(query.get("span"));
  return { span: span >= MIN_SPAN && span <= MAX_SPAN ? span : 3600, end: null };
}

/** Return an end of the window; one that is not before the present follows it. @param {number} end @param {number} now */
const notAfter = (end, now) => (end >= now ? null : end);

/** @param {{view: View, setView: (view: View) => void, move: Move, zoom: Zoom, colour: string, setColour: (name: string) => void}} props */
function Controls({ view, setView, move, zoom, colour, setColour }) {
  const known = SPANS.some(([span]) => span === view.span);
  return html`<div class="filters">
    <label>Span <select
      value=${known ? view.span : ""}
      onChange=${withValue((text) => setView({ ...view, span: Number(text) }))}>
      ${!known && html`<option value="">zoomed</option>`}
      ${SPANS.map(([span, text]) => html`<option value=${span}>${text}</option>`)}
    </select></label>
    <span class="pager">
      <button type="button" onClick=${() => move(-0.5)}>Earlier</button>
      <button type="button" disabled=${view.end === null} onClick=${() => move(0.5)}>Later</button>
      <button type="button" disabled=${view.end === null} onClick=${() => setView({ ...view, end: null })}>Now</button>
      <button type="button" onClick=${() => zoom(0.5)}>Zoom in</button>
      <button type="button" onClick=${() => zoom(2)}>Zoom out</button>
    </span>
    <label>Colours <select value=${colour} onChange=${withValue(setColour)}>
      ${["tenant", "job", "accelerator"].map((name) => html`<option value=${name}>by ${name}</option>`)}
    </select></label>
  </div>`;
}

/** @param {{data: Shown, view: {span: number, end: number}, colour: string, move: Move, zoom: Zoom}} props */
function Chart({ data, view, colour, move, zoom }) {
  const place = useRef(/** @type {HTMLElement | null} */ (null));
  const [width, setWidth] = useState(0);
  const dark = useDark();
  const [hint, setHint] = useState("");
  const drag = useRef(/** @type {{x: number, moved: boolean} | null} */ (null));
  const colours = colourIndex(data, colour);
  const height = 24 + data.devices.length * rowHeight(data.devices.length);
  useEffect(() => {
    const element = place.current;
    if (element === null) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    const canvas = place.current?.querySelector("canvas");
    if (canvas && width > 0) draw(canvas, { data, view, width, height, colourOf: colours.of });
  }, [data, view.span, view.end, width, height, colour, dark]);
  /** @param {MouseEvent & {currentTarget: HTMLElement}} event */
  const at = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    return { x: event.clientX - box.left, y: event.clientY - box.top };
  };
  /** @param {MouseEvent & {currentTarget: HTMLElement}} event */
  const pointed = (event) => deviceAt(data, view, width, at(event));
  /** @param {PointerEvent & {currentTarget: HTMLElement}} event */
  const onPointerUp = (event) => {
    const { x, moved } = drag.current ?? { x: 0, moved: true };
    drag.current = null;
    if (moved) move((x - at(event).x) / Math.max(1, width - GUTTER));
    else {
      const job = pointed(event)?.job;
      if (job?.kept) location.hash = `#/jobs/${encodeURIComponent(job.id)}`;
    }
  };
  /** @param {PointerEvent & {currentTarget: HTMLElement}} event */
  const onPointerMove = (event) => {
    if (drag.current !== null && Math.abs(at(event).x - drag.current.x) > 4) drag.current.moved = true;
    setHint(described(pointed(event)));
  };
  /** @param {WheelEvent & {currentTarget: HTMLElement}} event */
  const onWheel = (event) => {
    if (!event.ctrlKey && !event.shiftKey) return; // the page scrolls
    event.preventDefault();
    const part = (at(event).x - GUTTER) / Math.max(1, width - GUTTER);
    zoom((event.deltaY || event.deltaX) > 0 ? 1.5 : 1 / 1.5, Math.min(1, Math.max(0, part)));
  };
  /** @type {Record<string, () => void>} */
  const keys = { ArrowLeft: () => move(-0.25), ArrowRight: () => move(0.25), "+": () => zoom(0.5), "-": () => zoom(2) };
  /** @param {KeyboardEvent} event */
  const onKeyDown = (event) => {
    const action = keys[event.key];
    if (action === undefined) return;
    event.preventDefault();
    action();
  };
  return html`<section class="card">
    <p class="legend">
      ${colours.shown.map((name) => html`<span><${TenantName} tenant=${name} tenants=${colours.names} /></span>`)}
      ${data.runs.job.includes(-2) && html`<span><span class="dot c-taken" aria-hidden="true"></span>other tenants</span>`}
      ${data.outages.node.length > 0 && html`<span><span class="dot c-outage" aria-hidden="true"></span>node down</span>`}
      ${MARKS.map((kind) => html`<span><span class="mark-sign ${kind}" aria-hidden="true"></span>${kind}</span>`)}
    </p>
    <div
      class="timeline" ref=${place} tabindex="0" role="application"
      aria-label=${`${plural(data.devices.length, "device")} from ${time(view.end - view.span)} to ${time(view.end)}; arrow keys move, plus and minus zoom`}
      onPointerDown=${(/** @type {PointerEvent & {currentTarget: HTMLElement}} */ event) => (drag.current = { x: at(event).x, moved: false })}
      onPointerUp=${onPointerUp} onPointerMove=${onPointerMove} onPointerLeave=${() => { drag.current = null; setHint(""); }}
      onWheel=${onWheel} onKeyDown=${onKeyDown}
    ><canvas aria-hidden="true"></canvas></div>
    <p class="help hint">${hint || "Drag to move, Ctrl and wheel to zoom, click to open a job."}</p>
  </section>`;
}

/** @param {ReturnType<typeof deviceAt>} place */
function described(place) {
  if (place === null) return "";
  const { device, job, at, hidden, down } = place;
  const held = hidden ? "a job of another tenant" : job === null ? "free" : `${job.id} of ${job.tenant}`;
  const use = down ? "node down" : held;
  return `${time(at)}: ${device.node}, device ${device.number} (${device.accelerator}): ${use}`;
}

/**
 * Return the names that have colours, those of the legend, and the colour of a run by job and device.
 * @param {Shown} data
 * @param {string} colour
 * @returns {{names: string[], shown: string[], of: (job: number, device: number) => number}}
 */
function colourIndex({ devices, jobs, listed }, colour) {
  if (colour === "accelerator") {
    const names = [...new Set(devices.map((device) => device.accelerator))].sort();
    return { names, shown: names, of: (_job, device) => names.indexOf(devices[device].accelerator) };
  }
  if (colour === "job") {
    const numbers = jobs.map((job) => hash(job.id));
    return { names: [], shown: [], of: (job) => numbers[job] };
  }
  const shown = [...new Set(jobs.map((job) => job.tenant))].sort();
  const names = inColourOrder(listed, shown);
  const index = new Map(names.map((name, i) => [name, i]));
  const numbers = jobs.map((job) => index.get(job.tenant) ?? 0);
  return { names, shown, of: (job) => numbers[job] };
}

/** @param {string} text */
function hash(text) {
  let value = 0;
  for (let i = 0; i < text.length; i += 1) value = (31 * value + text.charCodeAt(i)) >>> 0;
  return value % 10;
}

/** @param {{total: number, offset: number, setOffset: (offset: number) => void}} props */
function Pager({ total, offset, setOffset }) {
  if (total <= MAX_DEVICES) return null;
  return html`<p class="pager">
    <button type="button" disabled=${offset === 0} onClick=${() => setOffset(offset - MAX_DEVICES)}>Previous devices</button>
    <button type="button" disabled=${offset + MAX_DEVICES >= total} onClick=${() => setOffset(offset + MAX_DEVICES)}>Next devices</button>
    <span class="help">devices ${offset + 1} to ${Math.min(total, offset + MAX_DEVICES)} of ${total}</span>
  </p>`;
}

/** @param {{data: Shown}} props */
function JobsOf({ data }) {
  const jobs = data.jobs.toSorted((a, b) => b.device_s - a.device_s).slice(0, SHOWN_JOBS);
  const title = data.jobs.length > SHOWN_JOBS ? `The ${SHOWN_JOBS} largest of ${data.jobs.length} jobs` : "Jobs in this time";
  return html`<${Section} title=${title}>
    ${jobs.length === 0
      ? html`<${Empty}>No job that you may see held a device.<//>`
      : html`<${Table}
          caption="Jobs in this time"
          heads=${["job", "tenant", "device hours", "preemptions", "failures"]}
          figures=${[2, 3, 4]}
          rows=${jobs.map((job) => [
            job.kept ? html`<a href=${`#/jobs/${encodeURIComponent(job.id)}`}>${job.id}</a>` : job.id,
            job.tenant,
            figure(job.device_s / 3600),
            job.preemptions,
            job.failures,
          ])}
        />`}
  <//>`;
}
